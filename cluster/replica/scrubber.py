"""Reads full segments on this node's disk again, slowly and for ever: bytes on a disk can change without an error.

Only full segments need that: the log, checkpoints and indexes are verified when a node starts.
"""

import asyncio
import errno
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from weakref import ref

from ...partition.log import segment_files
from ...partition.log.image import ImageDamaged
from ...partition.log.index import SegmentIndex
from ...raft.wal.errors import DiskRefused
from .replica import Replica
from .replica_manager import ReplicaManager

STEP_BYTES = 256 * 1024
"""Bytes that one call to a thread reads."""
REST_S = 10.0
"""Between two rounds."""
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})  # of the machine; they say nothing of the disk

_log = logging.getLogger(__name__)


class Scrubber:
    """The task that verifies every full segment of every replica of this node, at ``bytes_per_s`` on average."""

    def __init__(self, replicas: ReplicaManager, bytes_per_s: int) -> None:
        self._replicas = replicas
        self._bytes_per_s = bytes_per_s

    async def run(self) -> None:
        """Runs until cancelled. Raises DiskRefused when it finds other bytes than were written."""
        while True:
            # Weak, since a round may take days: a replica or segment that is dropped meanwhile must leave the memory.
            work = [(ref(one), ref(segment)) for one in self._replicas.all() for segment in one.log.full_segments]
            # In a fixed order, a node that is restarted often would never reach the last segments.
            random.shuffle(work)
            for each in work:
                await self._inspect(*each)
            if work:
                _log.info("inspected %d segments: all are as they were written", len(work))
            await asyncio.sleep(REST_S)

    async def _inspect(self, replica_ref: "ref[Replica]", segment_ref: "ref[SegmentIndex]") -> None:
        replica, segment = replica_ref(), segment_ref()
        if replica is None or segment is None:
            return
        batches = segment_files.inspected_on_disk(segment)
        try:
            while taken := await asyncio.to_thread(_take, batches):  # noqa: ASYNC110 (the sleep is the pace)
                await asyncio.sleep(taken / self._bytes_per_s)
        except (ImageDamaged, OSError) as error:
            is_refused = not isinstance(error, OSError) or error.errno not in _SHORTAGES
            if is_refused and self._is_kept(replica, segment):
                raise DiskRefused(Path(segment.segment), str(error)) from error

    def _is_kept(self, replica: Replica, segment: SegmentIndex) -> bool:
        """Whether the replica still has the segment: the file of one dropped, trimmed or replaced may be gone."""
        return any(each is replica for each in self._replicas.all()) and segment in replica.log.full_segments


def _take(batches: Iterator[int]) -> int:
    """Read on for STEP_BYTES; answers how many bytes that was, 0 at the end."""
    taken = 0
    for length in batches:
        taken += length
        if taken >= STEP_BYTES:
            break
    return taken
