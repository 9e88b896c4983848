"""The protocol that a group runs: a deterministic state machine over raw bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..partition.image import FileExtent, Image, ImageDamaged

__all__ = ["CheckpointedMachine", "FileExtent", "Image", "ImageDamaged", "Machine"]


class Machine(Protocol):
    """A replicated state machine.

    Its group calls ``apply`` on the node's event loop, once for each committed command, in log order, on every replica.
    After a restart the log since the last checkpoint is applied again. The result of a call goes to whoever proposed
    the command on this node; elsewhere it is thrown away.

    It may have an attribute ``bundles``, true on every replica: commands that were proposed together may share an entry
    of the log, and then they have one index. Without it each has an index of its own.
    """

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Apply the command at ``index``. Deterministic: no clock, no randomness, no IO that can answer differently.

        A refused command returns its refusal. An exception is a bug that every replica would share: it stops the node.
        """
        ...


@runtime_checkable
class CheckpointedMachine(Machine, Protocol):
    """A machine whose state can be kept in a checkpoint, and sent to others.

    It may have a method ``flush``: it is called after a run of applies, before anybody is told of them, so that what
    they wrote goes to files together. Its exception stops the node, as one of ``apply`` does.

    It may have an attribute ``reclaimable``: bytes of its files that only older images need, and that go when a
    checkpoint of the present state is stored. They bring the next checkpoint nearer, as commands do.

    It may have an attribute ``unsynced_bytes``, and with it a method ``begin_sync``: what it has written to its files
    and nobody has begun to sync, and a call that begins it, answering the rest of the work for a thread (None: there is
    none). It is called when so much has been written that a checkpoint would hold up the write-ahead log, whose syncs
    share the disk. Nothing relies upon it but the time that appends take; an OSError of it stops the node.

    It keeps its files in one directory, flat. Everything but ``inspect`` and the syncs runs on the event loop.
    """

    def start(self, directory: Path) -> None:
        """Begin with no state in a fresh, empty directory. Called once, or else ``restore``, before anything else."""
        ...

    def capture(self) -> Image:
        """The state after the last apply. Cheap: it copies no file."""
        ...

    def restore(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None:
        """Replace all state by that of an image, whose files are in ``directory``; perhaps in place of a running state.

        Files are cut to their extents, and whatever else the directory holds is removed. Raises ImageDamaged if
        something is missing, short or unreadable.
        """
        ...

    def inspect(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None:
        """Check received or recovered bytes thoroughly, against their checksums. Changes nothing; may run in a thread.

        Raises ImageDamaged.
        """
        ...
