"""A partition's machine together with its files, as a Raft group runs it: applied, captured, restored.

It decides nothing. In a checkpoint the machine's state is bytes (snapshot.py); the log's batches and the stages are the
files they are in.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..commands import Offset
from ..log import segment_files
from ..log.image import FileExtent, Image, ImageDamaged
from ..log.index import SegmentIndex
from ..log.segments import SegmentLog
from ..state import snapshot
from ..state.machine import PartitionMachine
from . import stage_files
from .stage_files import DiskStageFiles, is_stage


class _Inspected(NamedTuple):
    """The segments in these files of a directory, every byte of which was verified."""

    directory: Path
    files: list[FileExtent]
    segments: list[SegmentIndex]


class StoredMachine:
    """Implements ``raft.machine.Machine``. ``log`` must be the machine's; its stages are in files from now on."""

    bundles: bool = True
    """No command of a partition looks at its index."""

    may_lag: bool = True
    """Clients read and write at the leader; a local read of another replica is stale by its contract."""

    def __init__(self, machine: PartitionMachine, log: SegmentLog) -> None:
        assert machine.log is log
        self.machine = machine
        self.log = log
        self.apply: Callable[[int, int, bytes], object] = machine.apply
        """Apply one committed command."""
        self.flush: Callable[[], None] = log.settle
        """Write the batches that were applied to their file, unless they are few and small."""
        self.begin_sync: Callable[[], Callable[[], None] | None] = log.begin_sync
        """Begin to sync what was written."""
        self._inspected: _Inspected | None = None
        self._verified: frozenset[tuple[int, ...]] = frozenset()  # the identities of the segments inspected last
        self._stage_files = DiskStageFiles()
        machine.stages.files = self._stage_files

    @property
    def reclaimable(self) -> int:
        """Bytes of files that go when a checkpoint of the present state is stored."""
        return self.log.reclaimable + self._stage_files.reclaimable

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of batches that were written to files since the last sync began."""
        return self.log.unsynced_bytes

    def start(self, directory: Path) -> None:
        """Begin with nothing, in an empty directory."""
        self.log.begin(directory)
        self._stage_files.begin(directory)

    def capture(self) -> Image:
        """State and files after the last apply. Costs O(producers remembered), and opens files that need a sync."""
        image, stages = self.log.capture(snapshot.encode(self.machine)), self._stage_files
        return Image(
            image.state,
            (*image.files, *stages.extents()),
            _both(image.sync, stages.sync()),
            _both(image.stored, stages.stored()),
        )

    def restore(self, directory: Path, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Replace all state by the captured one: files are cut to their extents, all others in ``directory`` removed.

        Verifies the state and the indexes; only ``inspect`` reads batches. Indexes that it has just verified are not
        read again, as a copy is installed on the loop: those of a large partition take seconds. Raises ImageDamaged;
        the machine must not be used after that.
        """
        decoded = snapshot.decode(captured)
        batches, stages = _split(files)
        stage_files.check(directory, stages, decoded.stages)
        snapshot.put_back(self.machine, decoded)
        inspected, self._inspected = self._inspected, None
        if inspected is None or (inspected.directory, inspected.files) != (directory, batches):
            segments = list(segment_files.open_segments(directory, batches))
        else:
            segments = inspected.segments
        self.log.restore(directory, segments, decoded.log_start, decoded.log_end, _stored_end(decoded))
        self._stage_files.begin(directory, stages)
        segment_files.keep_only(directory, files)

    def inspect(self, directory: Path, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Read everything and compare it with its checks; changes nothing, and may run in a thread. Segments that the
        inspection before found sound, and that are the very same files, are not read again: each further copy of a
        partition that takes records has them all. Raises ImageDamaged.
        """
        decoded = snapshot.decode(captured)
        log_end = max(decoded.log_start, _stored_end(decoded))
        batches, stages = _split(files)
        segments = []
        for segment in segment_files.open_segments(directory, batches):
            if segment.base_offset > log_end:
                raise ImageDamaged(f"offset {log_end} is in none of the segments of {directory}")
            if segment_files.identity(segment) not in self._verified:
                for _ in segment_files.inspected(segment):
                    pass
            log_end = segment.next_offset
            segments.append(segment)
        if log_end != decoded.log_end:
            raise ImageDamaged(f"the segments of {directory} do not end at offset {decoded.log_end}")
        stage_files.check(directory, stages, decoded.stages, reads=True)
        self._inspected = _Inspected(directory, batches, segments)
        self._verified = frozenset(map(segment_files.identity, segments))


def _stored_end(decoded: snapshot.State) -> Offset:
    """Records below it need not be in files: they are in the store beyond this disk."""
    return decoded.tier.end if decoded.tier is not None and decoded.tier.objects else 0


def _split(files: Sequence[FileExtent]) -> tuple[list[FileExtent], list[FileExtent]]:
    """Files of the log, and files of stages."""
    return [file for file in files if not is_stage(file)], [file for file in files if is_stage(file)]


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call
