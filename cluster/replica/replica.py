"""One partition's replica on this node: the asynchronous shell around its machine, for the fronts.

A write becomes a command of the partition's group, and its verdict is made where the command is applied. Before that,
the shell refuses a write if another node leads, the topic is gone, or disks or the quota have no room. A lost proposal
is an unknown outcome, never a failure. A write needs more than one command in two cases: a new configuration of the
topic is put in force before it; or the partition does not know the producer, which is then enrolled, and the write is
proposed again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from heapq import nsmallest
from itertools import islice
from typing import Literal, TypeVar

from msgspec import structs

from ...partition.api.producers import BatchStatus, PartitionProducer, ProducerOnPartition
from ...partition.api.records import GroupPosition, PartitionContents, StageInfo
from ...partition.api.topics import TopicConfig
from ...partition.commands import (
    PRODUCER_EPOCH_MAX,
    SEQUENCE_MODULUS,
    Append,
    Appended,
    AppendStage,
    BeginAt,
    ChangeStages,
    Command,
    CommitPosition,
    Configure,
    Configured,
    InstallProducer,
    NotEnrolled,
    Offset,
    PositionCommitted,
    PutStage,
    Result,
    Retain,
    Staged,
    StagesChanged,
    Stamp,
    Token,
    Trim,
    Trimmed,
    encode_command,
)
from ...partition.durable.stored_machine import StoredMachine
from ...partition.errors import (
    InsufficientStorage,
    InternalError,
    InvalidRequest,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    NotOwner,
    OffsetOutOfRange,
    ProducerFenced,
    RequestTimedOut,
    StockadeError,
    StorageQuotaExceeded,
    UnknownTopicOrPartition,
)
from ...partition.log.interface import Slice
from ...partition.log.segments import SegmentLog
from ...partition.records.batch import Batch
from ...partition.state.fence import Tenure
from ...partition.state.machine import PartitionMachine
from ...partition.state.producers import FORGOTTEN, SequenceRun
from ...raft.core.group import Committed, Group, Outcome, Rejected
from ..condition import Condition
from ..features import FORGOTTEN_MESSAGE_IDS, FORGOTTEN_POSITIONS, KEPT_OFFSETS, STAGE_OWNERS, Features
from ..groups import ServedGroup
from ..model import CommittedPosition, Conditions, ReadGuard, Settle
from ..rpc import GroupStatus
from ..tiered.log import TieredLog

RETRY_AFTER_MS = 100
"""Time after which a write that a partition was too busy for may be tried again."""

_Answer = TypeVar("_Answer", bound=Result)

Enrol = Callable[[int, int, float], Awaitable[tuple[int, int, str]]]
"""(pid, group id, timeout in seconds) -> the producer epoch in force, the order of this answer among others, and the
principal that has the producer's name. Raises the registry's refusal.
"""


class Replica(ServedGroup):
    """A partition as this node holds it. Implements ``api.Partition``; what it refuses it raises as StockadeError."""

    def __init__(
        self,
        name: tuple[str, int, int],
        config: TopicConfig,
        stored: StoredMachine,
        open_group: Callable[[StoredMachine], Group],
        *,
        features: Features,
        urls: Mapping[str | None, str],
        enrol: Enrol,
        timeout_s: float,
        without_room: Callable[[Group], list[str]] = lambda group: [],
    ) -> None:
        """``name`` is (topic, topic id, partition). ``without_room`` returns the nodes whose full disks keep the group
        from taking another record; if there are none, a record may be proposed.
        """
        super().__init__(open_group(stored), features, urls, timeout_s, RETRY_AFTER_MS)
        self.topic: str = name[0]
        self.topic_id: int = name[1]
        self.partition: int = name[2]
        self.config: TopicConfig = config
        self.config_order: int = self.topic_id
        self.first_slot: int = 0
        """Order of a decision about the slot (0: none) that a partition without a configuration installs before it."""
        self.machine: PartitionMachine = stored.machine
        self.changed: Condition = Condition()
        """Notified when the machine's state may have changed, and when this replica is retired."""
        self.log: SegmentLog = stored.log
        self.whole: TieredLog = TieredLog(stored.log, stored.machine.tier)
        """The log as readers see it: what is on this disk, and what is in the tiered store."""
        self._enrol = enrol
        self._without_room = without_room
        self._is_sealed = False
        self._configuring = asyncio.Lock()
        self._end: Literal["deleted", "moved"] | None = None
        self.group.on_applied = self.changed.notify

    # Leadership, and the end of this replica.

    @property
    def is_leading(self) -> bool:
        """Whether this node leads this partition, as far as it knows."""
        return self.group.is_leader

    @property
    def ready(self) -> bool:
        """Whether the replica has applied what was committed when it first heard of a leader."""
        return self.group.ready

    def not_leading(self) -> NotLeaderOrFollower:
        """The refusal that sends the caller to the leader. Raises UnknownTopicOrPartition if the topic was deleted."""
        if self._end == "deleted":
            raise UnknownTopicOrPartition(topic=self.topic, partition=None)
        return super().not_leading()

    def status(self) -> GroupStatus:
        """The state of the group as this replica knows it, for other nodes."""
        group, machine, fence = self.group, self.machine, self.machine.fence
        return GroupStatus(
            *(group.group_id, group.leader, group.term, fence.topic_epoch, fence.mode, machine.config_order),
            holder=fence.holder,
            log_start=machine.log_start,
            log_end=machine.log_end,
            lags=dict(group.lags) if group.is_leader else None,
        )

    def tenure(self, grant_id: str) -> Tenure | None:
        """The tenure of a grant, present or remembered, as far as this replica has applied the log."""
        return self.machine.fence.tenure(grant_id)

    def retire(self, *, is_deleted: bool) -> None:
        """Refuse all requests from now on, waiting ones too: the topic was deleted, or this replica moved away."""
        self._end = "deleted" if is_deleted else "moved"
        self.changed.notify()

    def close(self) -> None:
        """Close the files."""
        self.log.close()

    @property
    def is_gone(self) -> bool:
        """Whether the topic was deleted, or this replica moved away."""
        return self._end is not None

    @property
    def has_unwritten(self) -> bool:
        """Whether applied batches wait in memory to be written to their segment."""
        return self.log.has_unwritten

    @property
    def kept_bytes(self) -> int:
        """Bytes that count for the quota: of the batches with records that are kept, and of stages not appended yet."""
        return self.whole.kept_bytes + self.machine.stages.size

    def write_out(self) -> None:
        """Write the applied batches that wait in memory to their segment."""
        self.log.flush()

    @property
    def replicated_ms(self) -> int:
        """The lease clock as the machine has it."""
        return self.machine.clock_ms

    # The topic's configuration.

    def reconfigure(self, config: TopicConfig, *, is_sealed: bool, order: int) -> None:
        """Take the topic's configuration as decided at ``order`` of the controller's log (at creation: its id).

        The leader puts it into the partition's log before the next write, or when ``configure`` is called.
        """
        if order > self.config_order:
            self.config, self._is_sealed, self.config_order = config, is_sealed, order

    @property
    def is_configured(self) -> bool:
        """Whether the configuration that this node knows is in force in the machine."""
        return self.machine.config_order >= self.config_order

    @property
    def _has_slot(self) -> bool:
        """Whether the slot that the partition was created with is installed (SEMANTICS 7.4)."""
        return self.machine.config_order >= 0 or self.machine.fence.grant_index >= self.first_slot

    async def configure(self) -> None:
        """Bring the machine's configuration up to date, if this node leads and the partition has its first slot."""
        async with self._configuring:
            if self.group.is_leader and self._has_slot and not self.is_configured:
                config = self.config.of_partition(self.topic_id, sealed=self._is_sealed)
                await self._ask(Configure(self.config_order, config, self.now_ms()), Configured)

    # Writes.

    async def append(self, batch: Batch, conditions: Conditions) -> Appended:
        """Propose the batch and wait for the verdict."""
        await self._prepare_write()
        command = self._command(batch, conditions)
        self._check_room(command)
        return await self._append(command)

    def submit(self, batch: Batch, conditions: Conditions, settle: Settle) -> bool:
        """Propose the batch without waiting: ``settle`` is called with the verdict, exactly once.

        Returns False if nothing was proposed and ``settle`` is not called: the topic's configuration has to be put in
        force first, which ``append`` does, or there is no room, for which ``append`` raises the refusal.
        """
        if not self.is_configured or self._without_room(self.group):
            return False
        if self.config.quota_bytes >= 0 and self._exceeds_quota(len(batch.message)):
            return False
        command = encode_command(self._command(batch, conditions))
        self.group.submit(command, self.timeout_s, lambda outcome: settle(self._verdict(outcome)))
        return True

    def _command(self, batch: Batch, conditions: Conditions) -> Append:
        message_id = conditions.message_id
        if message_id is not None and not self.machine.config.dedupe_window_ms:
            raise InvalidRequest("message_id: the topic has no dedupe_window_ms")
        _check_range(conditions.stamp)
        return Append(
            batch.message,
            batch.count,
            batch.crc,
            batch.received_ms,
            batch.max_timestamp_ms,
            conditions.topic_id,
            conditions.token,
            conditions.stamp,
            conditions.if_log_end,
            self.now_ms(),
            conditions.fence_epoch,
            message_id,
            conditions.principal,
        )

    def _verdict(self, outcome: Outcome) -> Appended | StockadeError | None:
        """What ``submit`` settles with; None leaves it to ``append``: another node leads, or a producer is new here."""
        if isinstance(outcome, Committed):
            found = outcome.result
        else:
            found = None if isinstance(outcome, Rejected) else self.undecided(outcome)
        if isinstance(found, NotOwner):
            return self._named(found)
        return found if isinstance(found, Appended | StockadeError) else None

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
        """Drop the records below ``before`` (None: all); returns (log_start, log_end) after that (SEMANTICS 5.14)."""
        await self._prepare_write()
        command = Trim(before, topic_id, token, self.now_ms(), principal, if_epoch, if_log_end)
        trimmed = await self._ask(command, Trimmed)
        return trimmed.log_start, trimmed.log_end

    async def begin_at(self, offset: Offset, *, topic_id: int | None, principal: str = "") -> tuple[Offset, Offset]:
        """Let a log that has never had a record begin at ``offset``; returns (log_start, log_end) after that."""
        self.features.require(KEPT_OFFSETS)
        await self._prepare_write()
        begun = await self._ask(BeginAt(offset, topic_id, self.now_ms(), principal), Trimmed)
        return begun.log_start, begun.log_end

    async def commit_position(
        self, group: str, offset: Offset | None, metadata: str | None, fence_epoch: int | None, principal: str = ""
    ) -> None:
        """Commit a position; None: forget. Raises NotOwner, PermissionDenied, OffsetOutOfRange, FeatureLevelTooLow."""
        self._check_leading()
        if offset is None:
            self.features.require(FORGOTTEN_POSITIONS)
        try:
            await self._ask(CommitPosition(group, offset, metadata, fence_epoch, principal), PositionCommitted)
        except NotOwner as refusal:
            raise self._named(refusal) from None

    # Stages.

    async def put_stage(
        self, name: str, digest: str, batch: Batch, *, ttl_ms: int, topic_id: int | None, principal: str = ""
    ) -> bool:
        """Store a stage; returns whether it is new. Raises StageAlreadyExists, ThrottlingQuotaExceeded."""
        await self._prepare_write()
        owner = principal if self.features.at_least(STAGE_OWNERS) else ""
        of_batch = batch.message, batch.count, batch.crc, batch.max_timestamp_ms
        command = PutStage(name, digest, *of_batch, ttl_ms, topic_id, self.now_ms(), batch.received_ms, owner)
        self._check_room(command)
        return (await self._ask(command, Staged)).new

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
        """Keep some stages, delete others. ``producer``: id and epoch. Raises NotFound, InvalidProducerEpoch."""
        await self._prepare_write()
        result = await self._decide(ChangeStages(keep, delete, *producer, topic_id, self.now_ms(), principal, evicts))
        if not isinstance(result, StagesChanged):
            raise InternalError(f"a partition answered {result!r}")

    async def append_stage(
        self, name: str, received_ms: int, conditions: Conditions, *, evicts: bool = False
    ) -> tuple[Appended, int]:
        """Append a stage's batch; returns the verdict and the size of the batch. Raises NotFound, and as ``append``."""
        _check_range(conditions.stamp)
        await self._prepare_write()
        self._check_disks()  # a stage counts for the quota already
        command = AppendStage(name, received_ms, **structs.asdict(conditions), now_ms=self.now_ms(), evicts=evicts)
        appended = await self._append(command)
        stage = self.machine.stages.stages.get(name)  # the stage may have been deleted since
        return appended, stage.length if stage is not None else 0

    async def stages(self, prefix: str) -> list[StageInfo]:
        """The stages whose names begin with ``prefix``, in the order in which they were stored; linearizable."""
        await self.barrier()
        return self.machine.stages.listed(prefix, self.machine.clock_ms)

    # Reads.

    def has_news(self, offset: Offset) -> bool:
        """Whether this node has records from ``offset`` on, or dropped them, or is not the one to ask (`Followed`)."""
        return self.is_gone or not self.is_leading or self.machine.log_end > offset

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

        A guard is checked by the leader alone, and again after a wait. Raises NotOwner, OffsetOutOfRange: with
        ``stale`` when ``local``, for the bounds are those of this replica.
        """
        if not local or guard is not None:
            await self._check_guard(guard)
        machine = self.machine
        start = machine.log_end if offset is None else machine.log_start if offset == -1 else offset
        if not machine.log_start <= start <= machine.log_end:
            raise OffsetOutOfRange(start, machine.log_start, machine.log_end, stale=local)

        def enough() -> bool | None:
            if self._end:
                return True
            if min_bytes <= 1:
                return True if machine.log_end - start >= min_bytes else None
            if start < machine.log_start or not self.whole.is_here(start):  # trimmed, or moved to the tiered store
                return True
            found = self.log.read(start, max_bytes)
            return True if found.size >= min_bytes or found.next_offset < machine.log_end else None

        if max_wait_ms:
            await self.changed.until(enough, max_wait_ms / 1000)
        if self._end is not None:
            raise self.not_leading()
        if max_wait_ms and guard is not None:
            await self._check_guard(guard)
        if start < machine.log_start:
            raise OffsetOutOfRange(start, machine.log_start, machine.log_end, stale=local)
        if self.whole.is_here(start):
            return structs.replace(self.log.read(start, max_bytes), stale=local)
        return await self._read_old(start, max_bytes, local=local, guard=guard)

    async def _read_old(self, start: Offset, max_bytes: int, *, local: bool, guard: ReadGuard | None) -> Slice:
        """Read records that are not on this disk; afterwards check all that may have changed during the fetch."""
        try:
            found = await self.whole.read(start, max_bytes)
            if guard is not None:
                await self._check_guard(guard)
        except OffsetOutOfRange as gone:  # trimmed during the fetch
            raise OffsetOutOfRange(start, gone.fields["log_start"], gone.fields["log_end"], stale=local) from None
        if self._end is not None:
            raise self.not_leading()
        return structs.replace(found, stale=local)

    async def read_tail(self, count: int) -> tuple[Slice, int]:
        """The first slice of the last ``count`` records, from whose end the caller reads on, and topic_epoch."""
        await self.barrier()
        return await self.whole.tail(count), self.machine.topic_epoch

    async def find_offset(self, timestamp_ms: int | None) -> tuple[Offset, int | None, Offset, Offset]:
        """The first record at or after a time, or with the greatest timestamp (None), as ``api.Partition`` says."""
        await self.barrier()
        return *await self.whole.find_timestamp(timestamp_ms), self.machine.log_start, self.machine.log_end

    async def position(self, group: str) -> CommittedPosition:
        """The group's committed position; linearizable."""
        await self.barrier()
        known = self.machine.readers.positions.get(group)
        return CommittedPosition(None, None) if known is None else CommittedPosition(known.offset, known.metadata)

    async def fences(self) -> list[Tenure]:
        """The tenures of the slot, those of present holders too, the latest first. Linearizable."""
        await self.barrier()
        return self.machine.tenures()

    async def contents(self, most: int, tells: Callable[[str], bool]) -> PartitionContents:
        """The log's ends, its bytes on this node's disk, and the ``most`` lowest positions of groups that ``tells``
        allows; linearizable.
        """
        await self.barrier()
        found, ends = self.machine.readers.positions, (self.machine.log_start, self.machine.log_end)
        lowest = nsmallest(most, ((position.offset, group) for group, position in found.items() if tells(group)))
        positions = [GroupPosition(group, offset) for offset, group in lowest]
        tiers, size = (self.log.local_start, self.machine.tier.size), self.log.stored_bytes
        return PartitionContents(self.topic, self.partition, *ends, size, len(found), positions, *tiers)

    async def latest_producers(self, most: int) -> tuple[int, list[PartitionProducer]]:
        """The number of producers known here, and the ``most`` latest used of them, newest first; linearizable."""
        await self.barrier()
        entries = self.machine.producers.entries
        return len(entries), [_listed(pid, entries[pid].run) for pid in islice(reversed(entries), most)]

    async def producer(self, pid: int) -> ProducerOnPartition | None:
        """A producer as this partition knows it; None: it knows no such producer. Linearizable."""
        await self.barrier()
        entry = self.machine.producer(pid)
        if entry is None or entry.is_bare:
            return None
        run = entry.run
        batches = [BatchStatus(*structs.astuple(batch)) for batch in run.cache]
        last_offset = batches[-1].last_offset if batches else None
        return ProducerOnPartition(self.topic, self.partition, run.epoch, run.last_seq, last_offset, batches)

    # Retention.

    def has_due(self, wall_ms: int) -> bool:
        """Whether ``retain`` would have something to do."""
        has_due = self.machine.has_due(self.now_ms()) or self._hides_message_ids()
        return has_due or self._retained_from(wall_ms) > self.machine.log_start

    def _hides_message_ids(self) -> bool:
        return self.features.at_least(FORGOTTEN_MESSAGE_IDS) and self.machine.message_ids.hides_due(self.now_ms())

    def _retained_from(self, wall_ms: int) -> Offset:
        return self.log.retained_from(wall_ms, self.config.retention_ms, self.config.retention_bytes, *self.whole.older)

    async def retain(self, wall_ms: int) -> None:
        """If this node leads, drop what the retention no longer keeps, and forget what is due on the lease clock."""
        if self.group.is_leader and self.has_due(wall_ms):
            await self._ask(Retain(self._retained_from(wall_ms), self.now_ms(), self._hides_message_ids()), Trimmed)

    # Inside.

    def _check_leading(self) -> None:
        if not self.group.is_leader:
            raise self.not_leading()

    async def _prepare_write(self) -> None:
        """Put the configuration in force, if it is not. Raises NotLeaderOrFollower, LeaderNotAvailable."""
        self._check_leading()
        if not self.is_configured:
            await self.changed.until(lambda: self._has_slot or not self.is_leading or None, self.timeout_s)
            self._check_leading()
            if not self._has_slot:
                raise LeaderNotAvailable("the partition is new, and the fence of its writer is not installed yet")
            try:
                async with asyncio.timeout(self.timeout_s):
                    await self.configure()
            except (TimeoutError, RequestTimedOut) as error:  # nothing of the write was proposed yet
                raise LeaderNotAvailable("the topic's configuration could not be put in force in time") from error

    def _check_disks(self) -> None:
        """Raises InsufficientStorage. Trims, positions and fences go on: they are small, and trims make room."""
        if nodes := self._without_room(self.group):
            raise InsufficientStorage(nodes)

    def _check_room(self, command: Append | PutStage) -> None:
        """Raises InsufficientStorage, and StorageQuotaExceeded for a command that the machine would store, but for no
        other: a zombie has to learn that it is fenced, a producer whose answer was lost that its batch is stored.
        """
        self._check_disks()
        quota = self.config.quota_bytes
        if quota >= 0 and self._exceeds_quota(len(command.message)) and self.machine.may_store(command):
            raise StorageQuotaExceeded(quota, self.kept_bytes)

    def _exceeds_quota(self, size: int) -> bool:
        """Whether a batch of ``size`` bytes exceeds the quota, together with stages and the batches in flight."""
        under_way = self.group.pending[1] + self.machine.stages.size
        return not self.whole.keeps_at_most(self.config.quota_bytes - size - under_way)

    async def _append(self, command: Append | AppendStage) -> Appended:
        try:
            result = await self._decide(command)
        except NotOwner as refusal:
            raise self._named(refusal) from None
        assert isinstance(result, Appended), result
        return result

    def _named(self, refusal: NotOwner) -> NotOwner:
        """The refusal with the name of the resource, which the machine does not know."""
        return NotOwner(**refusal.fields, resource=f"{self.topic}/{self.partition}")

    async def _decide(self, command: Append | AppendStage | ChangeStages) -> Result:
        """Propose a producer's command. A producer that is new here is enrolled, and the command proposed again."""
        deadline = self._deadline()
        result = await self._propose(command, deadline)
        while isinstance(result, NotEnrolled):
            await self._introduce(result.pid, deadline)
            if isinstance(command, Append):
                self._check_room(command)
            result = await self._propose(command, deadline)
        return result

    async def _introduce(self, pid: int, deadline: float) -> None:
        """Enrol a producer on this partition. The append was not stored yet, so a lost step here is no unknown outcome
        of the append.
        """
        try:
            remaining = deadline - asyncio.get_running_loop().time()
            epoch, order, principal = await self._enrol(pid, self.group.group_id, remaining)
            await self._propose(InstallProducer(pid, epoch, order, self.now_ms(), principal), deadline)
        except ProducerFenced as refusal:  # by the registry, of a producer that is not known here
            raise ProducerFenced(**refusal.fields, outcome=FORGOTTEN.fields()) from None
        except RequestTimedOut as error:
            raise LeaderNotAvailable("the producer could not be looked up in time") from error
        except UnknownTopicOrPartition as error:
            # The controller knows topics by id here; this partition is being deleted.
            raise UnknownTopicOrPartition(topic=self.topic, partition=None) from error

    async def _check_guard(self, guard: ReadGuard | None) -> None:
        """Pass a read barrier, and then judge the guard, if there is one. Raises NotOwner, PermissionDenied."""
        await self.barrier()
        if guard is None:
            return
        refusal = self.machine.readers.judge(guard.group, guard.fence_epoch, guard.principal)
        if refusal is not None:
            raise self._named(refusal) if isinstance(refusal, NotOwner) else refusal

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self.timeout_s

    async def _ask(self, command: Command, answer: type[_Answer]) -> _Answer:
        """Propose a command; returns its answer, which is of the type ``answer``."""
        result = await self._propose(command, self._deadline())
        if not isinstance(result, answer):
            raise InternalError(f"a partition answered {result!r}")
        return result

    async def _propose(self, command: Command, deadline: float) -> Result:
        remaining = deadline - asyncio.get_running_loop().time()
        return await self.answer_to(encode_command(command), remaining)  # type: ignore[return-value]


def _check_range(stamp: Stamp | None) -> None:
    """Assert, before a proposal, that replicas can apply the stamp: an error in apply would stop all of them, again at
    every start.
    """
    if stamp is not None:
        assert 0 <= stamp.pid < 1 << 63
        assert 0 <= stamp.epoch <= PRODUCER_EPOCH_MAX
        assert 0 <= stamp.first_seq < SEQUENCE_MODULUS


def _listed(pid: int, run: SequenceRun) -> PartitionProducer:
    last = run.cache[-1] if run.packed else None
    offset, at_ms = (None, None) if last is None else (last.last_offset, last.timestamp_ms)
    return PartitionProducer(pid, run.epoch, run.last_seq, offset, at_ms)
