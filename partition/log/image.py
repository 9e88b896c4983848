"""The image of a machine, from which a checkpoint is made: its state as bytes, and extents of its files.

Values only; nothing here reads or writes a file. A machine goes on appending to its files while a checkpoint is made:
the first bytes of each file belong to the image, and they never change again.
"""

from collections.abc import Callable

import msgspec


class ImageDamaged(Exception):
    """A captured state, or a file of its image, is not as it was captured. The text says which, for people."""


class FileExtent(msgspec.Struct, frozen=True):
    """The first ``size`` bytes of the file ``name`` (in the machine's directory); they are final.

    ``is_sealed``: nothing is ever appended to the file. Only such a file may be shared with another folder by a hard
    link: a file that is not sealed would grow in both folders.
    """

    name: str
    size: int
    is_sealed: bool = False


def _nothing() -> None:
    """Do nothing: the default for machines that keep no files."""


class Image(msgspec.Struct, frozen=True):
    """The state of a machine after the last command that it applied.

    ``state`` is equal on every replica that applied the same commands. ``sync`` makes the extents durable: it blocks
    and is called in a thread, while the loop may append beyond the extents. ``stored`` is called on the loop when a
    checkpoint made of this image is durable and in force. Files that only older images need may be removed then, and
    not before, since a restart goes back to the last checkpoint.
    """

    state: bytes
    files: tuple[FileExtent, ...] = ()
    sync: Callable[[], None] = _nothing
    stored: Callable[[], None] = _nothing
