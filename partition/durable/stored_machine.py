"""A partition's machine together with its files, as a Raft group runs it: applied, captured, restored.

It adds nothing to what the machine decides. The machine's state goes into checkpoints as bytes (state.py), the log's
batches and the stages as the files they are in.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from . import segment_files, stage_files, state
from .image import FileExtent, Image, ImageDamaged
from .machine import PartitionMachine
from .segments import SegmentLog
from .stage_files import DiskStageFiles, is_stage


class StoredMachine:
    """Implements ``raft.machine.Machine``. ``log`` must be the machine's; its stages are kept in files from now on."""

    def __init__(self, machine: PartitionMachine, log: SegmentLog) -> None:
        assert machine.log is log
        self.machine = machine
        self.log = log
        self.apply: Callable[[int, int, bytes], object] = machine.apply
        """Apply one committed command."""
        self.begin_sync: Callable[[], Callable[[], None] | None] = log.begin_sync
        """Begin to sync what was written."""
        self._stage_files = DiskStageFiles()
        machine.stages.files = self._stage_files

    @property
    def reclaimable(self) -> int:
        """Bytes of files that go when a checkpoint of the present state is stored."""
        return self.log.reclaimable + self._stage_files.reclaimable

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of batches that were written, and that no sync was begun of."""
        return self.log.unsynced_bytes

    def start(self, directory: Path) -> None:
        """Begin with nothing, in an empty directory."""
        self.log.start(directory)
        self._stage_files.begin(directory)

    def flush(self) -> None:
        """Write the batches that were applied to their file."""
        self.log.flush()

    def capture(self) -> Image:
        """State and files after the last apply. Costs O(producers remembered), and opens files that need a sync."""
        image, stages = self.log.capture(state.encode(self.machine)), self._stage_files
        return Image(
            image.state,
            (*image.files, *stages.extents()),
            _both(image.sync, stages.sync()),
            _both(image.stored, stages.stored()),
        )

    def restore(self, directory: Path, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Be what was captured: files are cut to their extents, whatever else is in ``directory`` is removed.

        Verifies the state and the indexes; batches are read by ``inspect`` alone. Raises ImageDamaged, and must not be
        used after that.
        """
        decoded = state.decode(captured)
        batches, stages = _split(files)
        stage_files.check(directory, stages, decoded.stages)
        state.put_back(self.machine, decoded)
        self.log.restore(directory, batches, decoded.log_start, decoded.log_end)
        self._stage_files.begin(directory, stages)
        segment_files.remove_others(directory, files)

    def inspect(self, directory: Path, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Read everything and compare it with its checks; changes nothing, and may run in a thread.

        Raises ImageDamaged.
        """
        decoded = state.decode(captured)
        log_end = decoded.log_start
        batches, stages = _split(files)
        for segment in segment_files.open_segments(directory, batches):
            if segment.base_offset > log_end:
                raise ImageDamaged(f"offset {log_end} is in none of the segments of {directory}")
            segment_files.inspect(segment)
            log_end = segment.next_offset
        if log_end != decoded.log_end:
            raise ImageDamaged(f"the segments of {directory} do not end at offset {decoded.log_end}")
        stage_files.check(directory, stages, decoded.stages)
        stage_files.inspect(directory, decoded.stages)


def _split(files: Sequence[FileExtent]) -> tuple[list[FileExtent], list[FileExtent]]:
    """Files of the log, and files of stages."""
    return [file for file in files if not is_stage(file)], [file for file in files if is_stage(file)]


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call
