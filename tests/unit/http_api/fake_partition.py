"""A partition of the cluster in memory: a real machine, whose leader tests may move."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from stockade.cluster.model import CommittedPosition, Conditions, Leader, ReadGuard, Settle
from stockade.partition.api.producers import PartitionProducer
from stockade.partition.api.records import GroupPosition, PartitionContents, StageInfo
from stockade.partition.commands import (
    Append,
    Appended,
    AppendStage,
    BeginAt,
    ChangeStages,
    Command,
    CommitPosition,
    InstallProducer,
    NotEnrolled,
    Offset,
    PutStage,
    Staged,
    Token,
    Trim,
    Trimmed,
    encode_command,
)
from stockade.partition.errors import (
    FeatureLevelTooLow,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StockadeError,
)
from stockade.partition.log.interface import Slice
from stockade.partition.records.batch import Batch
from stockade.partition.state.fence import Tenure
from stockade.partition.state.machine import PartitionMachine

from .fake_cluster import TERM, FakeCluster, FakeTopic

_under_way: set[asyncio.Task[None]] = set()


class FakePartition:
    """One partition as one node reaches it."""

    def __init__(self, cluster: FakeCluster, node_id: str, topic: FakeTopic, partition: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.partition = partition
        self.config = topic.config
        self._shared = topic
        self.changed = cluster.changed

    @property
    def machine(self) -> PartitionMachine:
        return self._shared.machines[self.partition]

    def has_news(self, offset: int) -> bool:
        return not self.is_leading or self.machine.log_end > offset

    def tenure(self, grant_id: str) -> Tenure | None:
        return self.machine.fence.tenure(grant_id)

    @property
    def is_leading(self) -> bool:
        return self.leader().node_id == self.node_id

    def leader(self) -> Leader:
        return self.cluster.leader(self._shared.leaders[self.partition])

    def submit(self, batch: Batch, conditions: Conditions, settle: Settle) -> bool:
        async def append() -> None:
            try:
                found: Any = await self.append(batch, conditions)
            except Exception as error:
                found = error
            settle(found)

        task = asyncio.get_running_loop().create_task(append())
        _under_way.add(task)
        task.add_done_callback(_under_way.discard)
        return True

    async def append(self, batch: Batch, conditions: Conditions) -> Appended:
        self._check_leading()
        self.cluster.writer_came.set()
        await self.cluster.may_store.wait()
        command = Append(
            message=batch.message,
            count=batch.count,
            crc=batch.crc,
            timestamp_ms=batch.received_ms,
            max_timestamp_ms=batch.max_timestamp_ms,
            **msgspec.structs.asdict(conditions),
        )
        result = self._decide(command)
        self.cluster.wake()
        assert isinstance(result, Appended), result
        return result

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
        if not local:
            self._check_leading()
        self._check_guard(guard)
        log = self.machine.log
        start = log.log_end if offset is None else log.log_start if offset == -1 else offset
        if not log.log_start <= start <= log.log_end:
            raise OffsetOutOfRange(start, log.log_start, log.log_end, stale=local)
        if log.log_end == start and max_wait_ms and min_bytes:
            await self._wait(max_wait_ms / 1000)
            if not local:
                self._check_leading()
            self._check_guard(guard)
        return msgspec.structs.replace(log.read(start, max_bytes), stale=local)

    async def read_tail(self, count: int) -> tuple[Slice, int]:
        self._check_leading()
        return self.machine.log.tail(count), self.machine.topic_epoch

    async def find_offset(self, timestamp_ms: int | None) -> tuple[Offset, int | None, Offset, Offset]:
        self._check_leading()
        log = self.machine.log
        return *log.find_timestamp(timestamp_ms), log.log_start, log.log_end

    async def trim(
        self,
        before: Offset | None,
        *,
        topic_id: int | None,
        token: Token | None,
        principal: str = "",
        if_epoch: int | None = None,
        if_log_end: Offset | None = None,
    ) -> tuple[Offset, Offset]:
        self._check_leading()
        trimmed = self._apply(Trim(before, topic_id, token, 0, principal, if_epoch, if_log_end))
        assert isinstance(trimmed, Trimmed)
        return trimmed.log_start, trimmed.log_end

    async def begin_at(self, offset: int, *, topic_id: int | None, principal: str = "") -> tuple[Offset, Offset]:
        self._check_leading()
        begun = self._apply(BeginAt(offset, topic_id, 0, principal))
        assert isinstance(begun, Trimmed)
        return begun.log_start, begun.log_end

    async def position(self, group: str) -> CommittedPosition:
        self._check_leading()
        known = self.machine.readers.positions.get(group)
        return CommittedPosition(None, None) if known is None else CommittedPosition(known.offset, known.metadata)

    async def commit_position(
        self, group: str, offset: Offset | None, metadata: str | None, fence_epoch: int | None, principal: str = ""
    ) -> None:
        self._check_leading()
        if offset is None and group == "new":
            raise FeatureLevelTooLow(feature_level=1, needed=2)
        self._apply(CommitPosition(group, offset, metadata, fence_epoch, principal))

    async def put_stage(
        self, name: str, digest: str, batch: Batch, *, ttl_ms: int, topic_id: int | None, principal: str = ""
    ) -> bool:
        self._check_leading()
        fields = (name, digest, batch.message, batch.count, batch.crc, batch.max_timestamp_ms, ttl_ms)
        staged = self._apply(PutStage(*fields, topic_id, received_ms=batch.received_ms, principal=principal))
        assert isinstance(staged, Staged)
        return staged.new

    async def stages(self, prefix: str) -> list[StageInfo]:
        self._check_leading()
        return [
            StageInfo(s.name, s.count, s.length, s.digest, s.kept, None if s.kept else s.ttl_ms, s.base_offset, None)
            for s in self.machine.stages.stages.values()
            if s.name.startswith(prefix)
        ]

    async def change_stages(
        self,
        keep: list[str],
        delete: list[str],
        *,
        producer: tuple[int, int],
        topic_id: int | None,
        principal: str = "",
        evicts: bool = False,
    ) -> None:
        self._check_leading()
        self._decide(ChangeStages(keep, delete, *producer, topic_id, principal=principal, evicts=evicts))

    async def append_stage(
        self, name: str, received_ms: int, conditions: Conditions, *, evicts: bool = False
    ) -> tuple[Appended, int]:
        self._check_leading()
        result = self._decide(AppendStage(name, received_ms, **msgspec.structs.asdict(conditions), evicts=evicts))
        assert isinstance(result, Appended)
        return result, self.machine.stages.stages[name].length

    async def fences(self) -> list[Tenure]:
        self._check_leading()
        return self.machine.tenures()

    async def contents(self, most: int, tells: Callable[[str], bool]) -> PartitionContents:
        self._check_leading()
        found = self.machine.readers.positions
        positions = [GroupPosition(group, position.offset) for group, position in found.items() if tells(group)]
        ends = self.machine.log_start, self.machine.log_end
        return PartitionContents(self.topic, self.partition, *ends, 7, len(found), positions[:most], 0, 0)

    async def latest_producers(self, most: int) -> tuple[int, list[PartitionProducer]]:
        self._check_leading()
        known = list(reversed(self.machine.producers.entries.items()))
        return len(known), [PartitionProducer(pid, row.run.epoch, row.run.last_seq, 0, 1) for pid, row in known[:most]]

    def _check_guard(self, guard: ReadGuard | None) -> None:
        refusal = None if guard is None else self.machine.readers.judge(guard.group, guard.fence_epoch, guard.principal)
        if refusal is not None:
            raise refusal

    async def _wait(self, timeout_s: float) -> None:
        self.cluster.reader_came.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self.cluster.changed.wait()
        except TimeoutError:
            pass
        finally:
            self.cluster.reader_left.set()

    def _decide(self, command: Append | AppendStage | ChangeStages) -> object:
        result = self._apply(command)
        while isinstance(result, NotEnrolled):
            self._apply(InstallProducer(result.pid, 0))
            result = self._apply(command)
        return result

    def _apply(self, command: Command) -> object:
        result = self.machine.apply(self.cluster.next_index(), TERM, encode_command(command))
        if isinstance(result, StockadeError):
            raise result
        return result

    def _check_leading(self) -> None:
        leader = self.leader()
        if leader.node_id != self.node_id:
            raise NotLeaderOrFollower(leader.url, leader.term or None)
