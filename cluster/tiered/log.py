"""One log over the files on this disk and the objects in the store: every read that may go below the first local file.

The bounds of the log are looked at again after each wait: what was trimmed while an object was fetched is not served.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from ...partition.commands import Offset, TierObject
from ...partition.errors import OffsetOutOfRange, TieredStoreUnavailable
from ...partition.log.index import SegmentIndex
from ...partition.log.interface import Run, Slice
from ...partition.log.segment_files import read_messages
from ...partition.log.segments import SegmentLog
from ...partition.log.timestamps import find, greatest_since
from ...partition.state.tier import Tier
from .store import TieredStore

TAIL_BYTES = 16 * 1024 * 1024
"""Bytes of the first slice of a tail; with what lies around them in their objects less than any cache holds."""
SEARCHES_MAX = 3
"""Searches for the greatest timestamp, when its record is trimmed meanwhile."""


class StoredPart(NamedTuple):
    """Implements ``segments.Part`` for an object."""

    next_offset: Offset
    size: int
    last_timestamp_ms: int


class Older(NamedTuple):
    """Parts of a log before its local files, the oldest first, and their bytes."""

    parts: Iterator[StoredPart]
    size: int


class TieredLog:
    """Reads of one partition. ``store`` None: this node has no store."""

    def __init__(self, log: SegmentLog, tier: Tier) -> None:
        self.store: TieredStore | None = None
        self._log = log
        self._tier = tier

    @property
    def older(self) -> "Older":
        """The objects that end where the first local file begins, or before. An object that reaches beyond does not
        count: it has records that are in local files, too, and a retention that counts these twice drops others early.
        """
        objects = self._tier.objects
        count = bisect_right(objects, self._log.local_start, key=attrgetter("end"))
        size = self._tier.size - sum(each.log_bytes for each in objects[count:])
        parts = (StoredPart(each.end, each.log_bytes, each.received_ms) for each in islice(objects, count))
        return Older(parts, size)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the batches with records from log_start on, wherever they are; objects of ``older`` count whole."""
        return self._log.kept_bytes + self.older.size

    def keeps_at_most(self, size: int) -> bool:
        """Whether ``kept_bytes <= size``. Each append asks it, so it looks at objects only if it must."""
        return self._log.kept_bytes + self._tier.size <= size or self.kept_bytes <= size

    def is_here(self, offset: Offset) -> bool:
        """Whether reads from this offset need no store."""
        return offset >= self._log.local_start

    async def read(self, offset: Offset, max_bytes: int) -> Slice:
        """As ``SegmentLog.read``. Raises OffsetOutOfRange, TieredStoreUnavailable."""
        with _from_cache():
            return await self._read(offset, max_bytes)

    async def _read(self, offset: Offset, max_bytes: int) -> Slice:
        log, runs, at, room = self._log, list[Run](), offset, max_bytes
        while at < log.log_end and not self.is_here(at):
            self._check(offset)
            segment = await self._segment(self._tier.at(at))
            run = segment.run(at, room, at_least_one=not runs)
            if run is None:
                break
            runs.append(run)
            at, room = run.next_offset, room - run.length
            if at < segment.next_offset or room <= 0:
                break
        else:
            if not runs:
                return log.read(offset, max_bytes)
            if room > 0 and at < log.log_end:
                runs += _fitting(log.read(at, room), room)
        self._check(offset)
        return Slice(runs, log.log_start, log.log_end, runs[-1].next_offset, read_messages)

    async def tail(self, count: int) -> Slice:
        """As ``SegmentLog.tail``, but a slice of about TAIL_BYTES at most, from whose end the caller reads on: the
        cache may hold fewer objects than a tail has. Raises TieredStoreUnavailable.
        """
        return await self.read(max(self._log.log_start, self._log.log_end - count), TAIL_BYTES)

    async def find_timestamp(self, timestamp_ms: int | None) -> tuple[Offset, int | None]:
        """As ``SegmentLog.find_timestamp``, of the whole log. Raises TieredStoreUnavailable."""
        with _from_cache():
            if timestamp_ms is not None:
                return await self._first_since(timestamp_ms)
            for _ in range(SEARCHES_MAX):
                found = await self._first_since(await self._greatest())
                if found[1] is not None:
                    return found
        return -1, None  # the record with the greatest timestamp was trimmed each time, or there is none

    async def _first_since(self, wanted: int) -> tuple[Offset, int | None]:
        """The first record with a timestamp from ``wanted`` on. Searches objects in the order of their offsets, until
        the rest is in local files: these may be dropped while an object is fetched.
        """
        log, at = self._log, self._log.log_start
        while (item := self._candidate(at, wanted)) is not None:
            segment = await self._segment(item)
            found = find([segment], log.log_start, wanted, read_messages)
            if found[1] is not None:
                return found
            at = max(item.end, log.log_start)
        return log.find_timestamp(wanted)

    def _candidate(self, at: Offset, wanted: int) -> TierObject | None:
        """The first object with a record from ``at`` on that is not here, and with a timestamp from ``wanted`` on."""
        objects, local_start = self._tier.objects, self._log.local_start
        for item in islice(objects, bisect_right(objects, at, key=attrgetter("end")), None):
            if item.first >= local_start:
                return None
            if item.greatest_timestamp_ms >= wanted:
                return item
        return None

    async def _greatest(self) -> int:
        """Greatest timestamp of a record from log_start on; -1: there is none."""
        log, cut = self._log, -1
        while not self.is_here(at := log.log_start) and (item := self._tier.at(at)).first < at:
            segment = await self._segment(item)
            if log.log_start == at:  # nothing was trimmed meanwhile
                cut = greatest_since(segment, at, read_messages)
                break
        whole = (each.greatest_timestamp_ms for each in self._tier.objects if each.first >= log.log_start)
        return max(cut, log.greatest_timestamp(), *whole)

    async def _segment(self, item: TierObject) -> SegmentIndex:
        if self.store is None:
            raise TieredStoreUnavailable("these records are in a store, and this node has no [tiered] place")
        return await self.store.segment(self._tier.folder, item)

    def _check(self, offset: Offset) -> None:
        log = self._log
        if not log.log_start <= offset <= log.log_end:
            raise OffsetOutOfRange(offset, log.log_start, log.log_end)


@contextmanager
def _from_cache() -> Iterator[None]:
    """Raises TieredStoreUnavailable if a file leaves the cache before it is read: other reads needed the room."""
    try:
        yield
    except FileNotFoundError as error:
        raise TieredStoreUnavailable("these records left the cache before they were read") from error


def _fitting(more: Slice, room: int) -> list[Run]:
    """The runs of local batches that follow, unless the first exceeds ``room``: only an answer's first batch may."""
    return more.runs if more.size <= room else []
