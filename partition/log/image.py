"""An image is what a checkpoint is made of: a machine's state as bytes, and the files whose beginnings belong to it.

Values only; nothing here reads or writes a file. A machine goes on appending to its files while a checkpoint is made:
the first bytes of each file belong to the image, and they never change again.
"""

from collections.abc import Callable

import msgspec


class ImageDamaged(Exception):
    """A captured state, or a file of its image, has changed since it was captured. The text says which, for people."""


class FileExtent(msgspec.Struct, frozen=True):
    """The first ``size`` bytes of the file ``name`` (in the machine's directory); they are final.

    ``is_sealed``: nothing is ever appended to the file. Only such a file may be shared with another folder by a hard
    link: another file goes on growing in both.
    """

    name: str
    size: int
    is_sealed: bool = False


def _nothing() -> None:
    """For machines that keep no files."""


class Image(msgspec.Struct, frozen=True):
    """A machine as it was after the last command it applied.

    ``state`` is equal on every replica that applied the same commands. ``sync`` makes the extents durable: it blocks,
    is called in a thread, and lets the loop go on appending behind the extents meanwhile. ``stored`` is called on the
    loop when a checkpoint made of this image is durable and in force: files that only older images need may go then,
    and not before, since a restart goes back to the last checkpoint.
    """

    state: bytes
    files: tuple[FileExtent, ...] = ()
    sync: Callable[[], None] = _nothing
    stored: Callable[[], None] = _nothing
