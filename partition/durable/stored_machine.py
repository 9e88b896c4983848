"""A partition's machine together with its files, as a Raft group runs it: apply, capture, restore.

It decides nothing. In a checkpoint the machine's state is bytes (snapshot.py); the log's batches and the stages are
files.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..commands import Offset
from ..config import PartitionConfig
from ..log import segment_files
from ..log.image import FileExtent, Image, ImageDamaged
from ..log.index import SegmentIndex
from ..log.segments import SegmentLog
from ..state import snapshot
from ..state.machine import PartitionMachine
from . import stage_files
from .stage_files import DiskStageFiles, is_stage


class _Inspected(NamedTuple):
    """The result of an inspection: the segments in these files of a directory, every byte of which was verified."""

    directory: Path
    files: list[FileExtent]
    segments: list[SegmentIndex]


class StoredMachine:
    """Implements ``raft.machine.Machine`` for a PartitionMachine with this log, whose stages are in files, too."""

    bundles: bool = True
    """True, since no command of a partition depends on its index."""

    may_lag: bool = True
    """True, since clients read and write at the leader; a local read of another replica is stale by its contract."""

    def __init__(self, config: PartitionConfig, log: SegmentLog) -> None:
        """``config`` is in force until the first Configure is applied; it must be equal on every replica."""
        self.machine: PartitionMachine = PartitionMachine(config, log)
        self.log = log
        self.apply: Callable[[int, int, bytes], object] = self.machine.apply
        """Apply one committed command."""
        self.flush: Callable[[], None] = log.settle
        """Write the batches that were applied to their file, unless they are few and small."""
        self.begin_sync: Callable[[], Callable[[], None] | None] = log.begin_sync
        """Begin to sync the batches that were written to files."""
        self._inspected: _Inspected | None = None
        self._verified: frozenset[tuple[int, ...]] = frozenset()  # the identities of the segments inspected last
        self._stage_files = DiskStageFiles()
        self.machine.stages.files = self._stage_files

    @property
    def reclaimable(self) -> int:
        """Bytes of the files that are removed when a checkpoint of the present state is stored."""
        return self.log.reclaimable + self._stage_files.reclaimable

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of batches that were written to files since the last sync began."""
        return self.log.unsynced_bytes

    def start(self, directory: Path) -> None:
        """Begin without any file, in an empty directory."""
        self.log.begin(directory)
        self._stage_files.begin(directory)

    def capture(self) -> Image:
        """The image after the last apply. Costs O(remembered producers), and opens the files that need a sync."""
        image, stages = self.log.capture(snapshot.encode(self.machine)), self._stage_files
        return Image(
            image.state,
            (*image.files, *stages.extents()),
            _both(image.sync, stages.sync()),
            _both(image.stored, stages.stored()),
        )

    def restore(self, directory: Path, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Replace all state by the captured one. The files are truncated to their extents, all other files in
        ``directory`` are removed.

        Verifies the state and the indexes; only ``inspect`` reads batches. Indexes that the last ``inspect`` verified
        are not read again, since a copy is installed on the loop, and those of a large partition take seconds. Raises
        ImageDamaged; the machine must not be used after that.
        """
        self._put_back(directory, captured, files, directory)
        segment_files.keep_only(directory, files)

    def restore_beside(self, directory: Path, captured: bytes, files: Sequence[FileExtent], scratch: Path) -> None:
        """Like ``restore``, but nothing in ``directory`` is changed: what is applied from now on is stored in the empty
        directory ``scratch``. Dropped files stay, as no checkpoint is to be made of such a machine.
        """
        for file in filter(is_stage, files):
            shutil.copyfile(directory / file.name, scratch / file.name)
        self._put_back(directory, captured, files, scratch)

    def _put_back(self, directory: Path, captured: bytes, files: Sequence[FileExtent], own: Path) -> None:
        decoded = snapshot.decode(captured)
        batches, stages = _split(files)
        stage_files.check(own, stages, decoded.stages)
        snapshot.put_back(self.machine, decoded)
        inspected, self._inspected = self._inspected, None
        if inspected is None or (inspected.directory, inspected.files) != (directory, batches):
            segments = list(segment_files.open_segments(directory, batches))
        else:
            segments = inspected.segments
        self.log.restore(own, segments, decoded.log_start, decoded.log_end, _stored_end(decoded))
        self._stage_files.begin(own, stages)

    def inspect(self, directory: Path, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Read the state and all files and verify their checksums; changes nothing, and may run in a thread. Segments
        that the last inspection verified, and that are in the very same files, are not read again: each further copy of
        a partition that takes records has all of them. Raises ImageDamaged.
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
    """The offset below which records need not be in files here, as they are in the tiered store; 0 if none are."""
    return decoded.tier.end if decoded.tier is not None and decoded.tier.objects else 0


def _split(files: Sequence[FileExtent]) -> tuple[list[FileExtent], list[FileExtent]]:
    """(files of the log, files of stages)."""
    return [file for file in files if not is_stage(file)], [file for file in files if is_stage(file)]


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call
