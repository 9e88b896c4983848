"""The protocol that a group runs: a deterministic state machine over raw bytes, and the files that it keeps."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ..partition.log.image import FileExtent, Image, ImageDamaged

__all__ = ["FileExtent", "Image", "ImageDamaged", "Machine"]


class Machine(Protocol):
    """A replicated state machine. One that inherits from this class has the defaults below: no files that grow.

    Its group calls ``apply`` on the node's event loop, once for each committed command, in log order, on every replica.
    After a restart it is restored from its checkpoint, and the log since then is applied again. It keeps its files in
    one directory, flat. Everything but ``inspect`` and the syncs runs on the event loop.
    """

    bundles: bool = False
    """Whether commands that were proposed together may share an entry of the log, and so one index; otherwise each
    command has an index of its own. Equal on every replica."""

    may_lag: bool = False
    """Whether a replica that does not lead may apply committed entries in longer runs, a moment later (``ApplyLag`` in
    follower.py says how much); otherwise it applies them at once.
    """

    def start(self, directory: Path) -> None:
        """Begin with no state in a fresh, empty directory. This or ``restore`` is called before anything else."""
        ...

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Apply the command at ``index``. Deterministic: no clock, no randomness, no IO that can answer differently.

        The result goes to the caller that proposed the command on this node; every other replica drops it. A refused
        command returns its refusal. An exception is a bug that every replica would share: it stops the node.
        """
        ...

    def flush(self) -> None:
        """Write to files, together, what a run of applies left in memory. Called after the run, before any proposal of
        it is answered. An exception stops the node, as one of ``apply`` does.
        """
        return None  # noqa: RET501  # a default, not an abstract method

    def capture(self) -> Image:
        """The image of the state after the last apply. Cheap: it copies no file."""
        ...

    def restore(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None:
        """Replace all state by that of an image, whose files are in ``directory``; perhaps in place of a running state.

        Files are cut to their extents, and all other files of the directory are removed. Raises ImageDamaged if
        something is missing, short or unreadable.
        """
        ...

    def inspect(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None:
        """Verify an image's state and files against their checksums. Changes nothing; may run in a thread.

        A ``restore`` of the same files, which never change again, need not repeat it. Raises ImageDamaged.
        """
        ...

    @property
    def reclaimable(self) -> int:
        """Bytes of files that only older images need: they go when a checkpoint of the present state is stored.

        They count towards the next checkpoint, as applied commands do.
        """
        return 0

    @property
    def unsynced_bytes(self) -> int:
        """Bytes written to files for which no sync was begun yet."""
        return 0

    def begin_sync(self) -> Callable[[], None] | None:
        """Begin to sync what was written. Returns the blocking rest of the work, for a thread; None if there is none.

        Called when ``unsynced_bytes`` are so many that a checkpoint's sync would hold up the syncs of the write-ahead
        log on the same disk. Only the latency of appends depends on it. An OSError of the work stops the node.
        """
        return None
