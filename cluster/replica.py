"""One partition's replica on this node, as the HTTP interface uses it: the asynchronous shell around its machine."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ..partition.commands import (
    Append,
    Appended,
    AppendStage,
    ChangeStages,
    CommitPosition,
    Configure,
    Configured,
    InstallProducer,
    NotEnrolled,
    Offset,
    PositionCommitted,
    Result,
    Retain,
    Stamp,
    Token,
    Trim,
    Trimmed,
)
from ..partition.config import PartitionConfig
from ..partition.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    NotOwner,
    OffsetOutOfRange,
    ProducerFenced,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from ..partition.index import SegmentIndex
from ..partition.records import Batch
from ..partition.segments import Slice
from ..partition.stored import StoredMachine
from ..partition.switches import stop_at
from ..partition.tenures import Tenure
from ..raft.group import Group
from .model import BatchStatus, PartitionStatus, Position, ReadGuard, TopicConfig
from .partition_group import AppliedMachine
from .staging import Staging

__all__ = ["AppliedMachine", "Replica"]

Enrol = Callable[[int, int, float], Awaitable[tuple[int, int]]]
"""(pid, group id, timeout in seconds) -> the producer epoch in force and the order of this answer among others.
Raises what the registry answers.
"""


class Replica(Staging):
    """A partition as this node holds it. Implements service.Partition."""

    def __init__(
        self,
        name: tuple[str, int, int],
        config: TopicConfig,
        stored: StoredMachine,
        open_group: Callable[[AppliedMachine], Group],
        *,
        url_of: Callable[[str | None], str | None],
        enrol: Enrol,
        timeout_s: float,
    ) -> None:
        """``name`` is (topic, topic id, partition); ``timeout_s`` bounds every call."""
        super().__init__(name, stored, open_group, url_of, timeout_s)
        self.config: TopicConfig = config
        self._enrol = enrol
        self._is_sealed = False
        self.config_order: int = self.topic_id
        self._configuring = asyncio.Lock()

    def reconfigure(self, config: TopicConfig, *, is_sealed: bool, order: int) -> None:
        """The topic's configuration as decided at ``order`` of the controller's log (at its creation: the topic's id).

        The leader puts it into the partition's log before the next write, or when ``configure`` is called.
        """
        if order > self.config_order:
            self.config, self._is_sealed, self.config_order = config, is_sealed, order

    @property
    def is_configured(self) -> bool:
        """Whether the configuration that this node knows is in force in the machine."""
        return self.machine.config_order >= self.config_order

    async def configure(self) -> None:
        """Bring the machine's configuration up to date, if this node leads."""
        async with self._configuring:
            if self.group.is_leader and not self.is_configured:
                config = self.config
                wanted = PartitionConfig(
                    self.topic_id,
                    config.require_fence,
                    config.strict_sequence,
                    config.max_producers,
                    config.producer_ttl_ms,
                    config.dedupe_window_ms,
                    config.writer_group,
                    self._is_sealed,
                )
                await self._ask(Configure(self.config_order, wanted, self.now_ms()), Configured)

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

    async def append(
        self,
        batch: Batch,
        *,
        topic_id: int | None,
        token: Token | None,
        stamp: Stamp | None,
        if_log_end: Offset | None,
        message_id: str | None = None,
        fence_epoch: int | None = None,
    ) -> Appended:
        """Propose the batch; a producer that is new here is enrolled first and the batch proposed again."""
        await self._prepare_write()
        stop_at("append-received")
        if message_id is not None and not self.machine.config.dedupe_window_ms:
            raise InvalidRequest("message_id: the topic has no dedupe_window_ms")
        command = Append(
            message=batch.message,
            count=batch.count,
            crc=batch.crc,
            timestamp_ms=batch.received_ms,
            max_timestamp_ms=batch.max_timestamp_ms,
            topic_id=topic_id,
            token=token,
            stamp=stamp,
            if_log_end=if_log_end,
            now_ms=self.now_ms(),
            fence_epoch=fence_epoch,
            message_id=message_id,
        )
        appended = await self._append(command)
        stop_at("append-applied")
        return appended

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
        if entry is None:
            return None
        run = entry.run
        batches = [BatchStatus(*msgspec.structs.astuple(batch)) for batch in run.cache]
        last_offset = batches[-1].last_offset if batches else None
        return PartitionStatus(self.topic, self.partition, run.epoch, run.last_seq, last_offset, batches)

    async def _prepare_write(self) -> None:
        self._check_leading()
        if not self.is_configured:
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self.configure()
            except (TimeoutError, RequestTimedOut) as error:  # nothing of the write was proposed yet
                raise LeaderNotAvailable("the topic's configuration could not be put in force in time") from error

    async def _check_guard(self, guard: ReadGuard | None) -> None:
        """Raises NotOwner unless the reader owns the partition, with nobody more recent who does."""
        await self._barrier()
        refusal = None if guard is None else self.machine.readers.judge(guard.group, guard.fence_epoch)
        if refusal is not None:
            raise self._named(refusal)

    async def _decide(self, command: Append | AppendStage | ChangeStages) -> Result:
        deadline = self._deadline()
        result = await self._propose(command, deadline)
        while isinstance(result, NotEnrolled):
            await self._introduce(result.pid, deadline)
            result = await self._propose(command, deadline)
        return result

    async def _introduce(self, pid: int, deadline: float) -> None:
        """Make a producer known here. Nothing of the append was stored yet, so even a lost step is no unknown
        outcome.
        """
        try:
            remaining = deadline - asyncio.get_running_loop().time()
            epoch, order = await self._enrol(pid, self.group.group_id, remaining)
            await self._propose(InstallProducer(pid, epoch, order, self.now_ms()), deadline)
        except ProducerFenced as refusal:  # by the registry, of a producer that is not known here
            unknown = {"state": "unknown", "base_offset": None, "last_offset": None}
            raise ProducerFenced(**refusal.fields, outcome=unknown) from None
        except RequestTimedOut as error:
            raise LeaderNotAvailable("the producer could not be looked up in time") from error
        except UnknownTopicOrPartition as error:
            # The controller knows topics by id here; this partition is being deleted.
            raise UnknownTopicOrPartition(topic=self.topic, partition=None) from error
