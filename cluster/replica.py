"""One partition's replica on this node, as the HTTP interface uses it: the asynchronous shell around its machine."""

from collections.abc import Sequence

import msgspec

from ..partition.commands import (
    CommitPosition,
    Offset,
    PositionCommitted,
    Retain,
    Token,
    Trim,
    Trimmed,
)
from ..partition.errors import NotOwner, OffsetOutOfRange
from ..partition.index import SegmentIndex
from ..partition.segments import Slice
from ..partition.tenures import Tenure
from .model import BatchStatus, PartitionStatus, Position, ReadGuard
from .partition_group import AppliedMachine
from .staging import Staging

__all__ = ["AppliedMachine", "Replica"]


class Replica(Staging):
    """A partition as this node holds it. Implements service.Partition."""

    async def retain(self, wall_ms: int) -> None:
        """Drop what the topic's retention no longer keeps at this wall clock time, and let the machine forget what is
        due on the lease clock, if this node leads.
        """
        if self.group.is_leader and self.has_due(wall_ms):
            await self._ask(Retain(self._retained_from(wall_ms), self.now_ms()), Trimmed)

    @property
    def full_segments(self) -> Sequence[SegmentIndex]:
        """The segments on this disk that do not change any more, until they are dropped."""
        return self._log.full_segments

    def has_due(self, wall_ms: int) -> bool:
        """Whether ``retain`` would have something to do."""
        return self._retained_from(wall_ms) > self.machine.log_start or self.machine.has_due(self.now_ms())

    def _retained_from(self, wall_ms: int) -> Offset:
        return self._log.retained_from(wall_ms, self.config.retention_ms, self.config.retention_bytes)

    async def read(
        self,
        offset: Offset | None,
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        local: bool,
        guard: ReadGuard | None = None,
    ) -> Slice:
        """Committed batches from ``offset`` (None: log end, -1: log start), linearizable unless ``local``.

        A guard is checked by the leader alone, and again after a wait.
        """
        if not local or guard is not None:
            await self._check_guard(guard)
        machine = self.machine
        start = machine.log_end if offset is None else machine.log_start if offset == -1 else offset
        if not machine.log_start <= start <= machine.log_end:
            raise OffsetOutOfRange(start, machine.log_start, machine.log_end)

        def enough() -> bool | None:
            if self._end:
                return True
            if min_bytes <= 1:
                return True if machine.log_end - start >= min_bytes else None
            found = self._log.read(start, max_bytes)
            return True if found.size >= min_bytes or found.next_offset < machine.log_end else None

        if max_wait_ms:
            await self.changed.until(enough, max_wait_ms / 1000)
        self._check_not_ended()
        if max_wait_ms and guard is not None:
            await self._check_guard(guard)
        return msgspec.structs.replace(self._log.read(start, max_bytes), stale=local)

    async def read_tail(self, count: int) -> tuple[Slice, int]:
        """The batches that hold the last ``count`` records, and topic_epoch."""
        await self._barrier()
        return self._log.tail(count), self.machine.topic_epoch

    async def find_offset(self, timestamp_ms: int | None) -> tuple[Offset, int | None, Offset, Offset]:
        """First record at or after a time; None: first record with the greatest timestamp."""
        await self._barrier()
        return *self._log.find_timestamp(timestamp_ms), self.machine.log_start, self.machine.log_end

    async def trim(self, before: Offset | None, *, topic_id: int | None, token: Token | None) -> tuple[Offset, Offset]:
        """Drop records below ``before`` (None: all); (log_start, log_end) after that (SEMANTICS 5.14)."""
        await self._prepare_write()
        trimmed = await self._ask(Trim(before, topic_id, token, self.now_ms()), Trimmed)
        return trimmed.log_start, trimmed.log_end

    async def position(self, group: str) -> Position:
        """The group's committed position; linearizable."""
        await self._barrier()
        known = self.machine.readers.positions.get(group)
        return Position(None, None) if known is None else Position(known.offset, known.metadata)

    async def commit_position(self, group: str, offset: Offset, metadata: str | None, fence_epoch: int | None) -> None:
        """Raises NotOwner, OffsetOutOfRange."""
        self._check_leading()
        try:
            await self._ask(CommitPosition(group, offset, metadata, fence_epoch), PositionCommitted)
        except NotOwner as refusal:
            raise self._named(refusal) from None

    async def fences(self) -> list[Tenure]:
        """History of the slot, the latest first: the present holders too. Linearizable."""
        await self._barrier()
        return self.machine.tenures()

    async def producer(self, pid: int) -> PartitionStatus | None:
        """A producer as this partition knows it; linearizable. None: not at all."""
        await self._barrier()
        entry = self.machine.producer(pid)
        if entry is None or entry.is_bare:
            return None
        run = entry.run
        batches = [BatchStatus(*msgspec.structs.astuple(batch)) for batch in run.cache]
        last_offset = batches[-1].last_offset if batches else None
        return PartitionStatus(self.topic, self.partition, run.epoch, run.last_seq, last_offset, batches)

    async def _check_guard(self, guard: ReadGuard | None) -> None:
        """Raises NotOwner unless the reader owns the partition, with nobody more recent who does."""
        await self._barrier()
        refusal = None if guard is None else self.machine.readers.judge(guard.group, guard.fence_epoch)
        if refusal is not None:
            raise self._named(refusal)
