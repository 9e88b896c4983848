"""A partition's machine together with its segment files, as a Raft group runs it: applied, captured, restored.

It adds nothing to what the machine decides. The machine's state goes into checkpoints as bytes (state.py), the log's
batches as the files they are in.
"""

from collections.abc import Sequence
from pathlib import Path

from . import segment_files, state
from .image import FileExtent, Image, ImageDamaged
from .machine import PartitionMachine
from .segments import SegmentLog


class StoredMachine:
    """Implements ``raft.machine.Machine``. ``log`` must be the machine's."""

    def __init__(self, machine: PartitionMachine, log: SegmentLog) -> None:
        assert machine.log is log
        self.machine = machine
        self.log = log

    @property
    def reclaimable(self) -> int:
        """Bytes of files that go when a checkpoint of the present state is stored."""
        return self.log.reclaimable

    def start(self, directory: Path) -> None:
        """Begin with nothing, in an empty directory."""
        self.log.start(directory)

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Apply one committed command."""
        return self.machine.apply(index, term, command)

    def capture(self) -> Image:
        """State and files after the last apply. Costs O(producers remembered), and opens files that need a sync."""
        return self.log.capture(state.encode(self.machine))

    def restore(self, directory: Path, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Be what was captured: files are cut to their extents, whatever else is in ``directory`` is removed.

        Verifies the state and the indexes; batches are read by ``inspect`` alone. Raises ImageDamaged, and must not be
        used after that.
        """
        decoded = state.decode(captured)
        state.put_back(self.machine, decoded)
        self.log.restore(directory, files, decoded.log_start, decoded.log_end)

    def inspect(self, directory: Path, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Read everything and compare it with its checks; changes nothing, and may run in a thread.

        Raises ImageDamaged.
        """
        decoded = state.decode(captured)
        log_end = decoded.log_start
        for segment in segment_files.open_segments(directory, files):
            segment_files.inspect(segment)
            log_end = segment.next_offset
        if log_end != decoded.log_end:
            raise ImageDamaged(f"the segments of {directory} do not end at offset {decoded.log_end}")
