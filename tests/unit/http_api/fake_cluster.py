"""A cluster in memory for tests of the HTTP interface: real partition machines, a simple controller, leaders
that tests may move.

Every node of it is a Service of its own; a node that does not lead raises NotLeaderOrFollower with the URL of
the one that does.
"""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from yarl import URL

from stockade.cluster.controller.principals import Principals
from stockade.cluster.measures import Measures
from stockade.cluster.model import NO_PRINCIPAL, By, CommittedPosition, Conditions, Leader, ReadGuard
from stockade.partition.api.cluster import Cluster, Node, NodeSetting, PartitionCounts, Unready
from stockade.partition.api.ownership import Grant, SessionInfo, Ticket, grants_digest
from stockade.partition.api.producers import PartitionProducer, ProducerPair
from stockade.partition.api.records import GroupPosition, PartitionContents
from stockade.partition.api.topics import Mode, PartitionState, Topic, TopicConfig, TopicPage, TopicSummary
from stockade.partition.commands import (
    Append,
    Appended,
    BeginAt,
    ClearFence,
    Command,
    CommitPosition,
    InstallFence,
    Offset,
    Token,
    Trim,
    Trimmed,
    belongs_to_another,
    encode_command,
)
from stockade.partition.errors import (
    FeatureLevelTooLow,
    HoldAndWait,
    InconsistentTopicId,
    NotFound,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    PermissionDenied,
    PlanChanged,
    ProducerBusy,
    ProducerFenced,
    SessionExpired,
    StockadeError,
    TopicAlreadyExists,
    UnknownSession,
    UnknownTopicOrPartition,
)
from stockade.partition.log.interface import Slice
from stockade.partition.log.segments import SegmentLog
from stockade.partition.records.batch import Batch
from stockade.partition.state.fence import Tenure
from stockade.partition.state.machine import PartitionConfig, PartitionMachine

from .fake_ledger import FakeLedger
from .fake_lists import FakeListing
from .fake_measures import fake_measures
from .fake_members import FakeOperating
from .fake_ownership import FakeOwning
from .fake_principals import FakePrincipals
from .fake_stages import FakeStaging
from .fake_submits import FakeSubmitting

TERM = 6


@dataclass
class FakeTopic:
    name: str
    topic_id: int
    replication_factor: int | None
    config: TopicConfig
    machines: list[PartitionMachine]
    leaders: list[str | None]
    sealed: bool = False


@dataclass
class FakeCluster:
    """State that all nodes share. ``urls`` are filled in when the nodes listen."""

    urls: dict[str, str] = field(default_factory=dict)
    controller: str | None = "n1"
    topics: dict[str, FakeTopic] = field(default_factory=dict)
    sessions: dict[str, SessionInfo] = field(default_factory=dict)
    principals: dict[str, str] = field(default_factory=dict)
    registered: Principals = field(default_factory=Principals)
    grants: dict[str, Grant] = field(default_factory=dict)
    holders: dict[str, str] = field(default_factory=dict)
    producers: dict[str, ProducerPair] = field(default_factory=dict)
    tickets: dict[str, Ticket] = field(default_factory=dict)
    expired: set[str] = field(default_factory=set)
    owned: dict[tuple[str, str], tuple[str | None, int, int]] = field(default_factory=dict)
    orders: list[tuple[Any, ...]] = field(default_factory=list)
    acts: list[tuple[Any, ...]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    may_store: asyncio.Event = field(default_factory=asyncio.Event)
    writer_came: asyncio.Event = field(default_factory=asyncio.Event)
    reader_came: asyncio.Event = field(default_factory=asyncio.Event)
    reader_left: asyncio.Event = field(default_factory=asyncio.Event)
    disk: tempfile.TemporaryDirectory[str] = field(default_factory=tempfile.TemporaryDirectory)
    logs: list[SegmentLog] = field(default_factory=list)
    index: int = 0
    news: int = 0

    def __post_init__(self) -> None:
        self.may_store.set()

    def partition_config(self, topic: FakeTopic) -> PartitionConfig:
        config = topic.config
        return PartitionConfig(
            topic.topic_id,
            config.require_fence,
            config.strict_sequence,
            dedupe_window_ms=config.dedupe_window_ms,
            writer_group=config.writer_group,
            sealed=topic.sealed,
        )

    def log(self, topic_id: int, partition: int) -> SegmentLog:
        directory = Path(self.disk.name) / f"{topic_id}-{partition}"
        directory.mkdir()
        log = SegmentLog(1 << 20)
        log.begin(directory)
        self.logs.append(log)
        return log

    def close(self) -> None:
        for log in self.logs:
            log.close()
        self.disk.cleanup()

    def next_index(self) -> int:
        self.index += 1
        return self.index

    def leader(self, node_id: str | None) -> Leader:
        return Leader(node_id, self.urls[node_id], TERM) if node_id is not None else Leader(None, None, 0)

    def lead(self, topic: str, node_id: str | None, partition: int = 0) -> None:
        """Let a node lead a partition, and everybody hear of it."""
        self.topics[topic].leaders[partition] = node_id
        self.news += 1
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class FakePartition(FakeSubmitting, FakeStaging):
    """One partition as one node reaches it."""

    def __init__(self, cluster: FakeCluster, node_id: str, topic: FakeTopic, partition: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.partition = partition
        self.config = topic.config
        self._shared = topic

    @property
    def machine(self) -> PartitionMachine:
        return self._shared.machines[self.partition]

    def tenure(self, grant_id: str) -> Tenure | None:
        return self.machine.fence.tenure(grant_id)

    def leader(self) -> Leader:
        return self.cluster.leader(self._shared.leaders[self.partition])

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

    def _apply(self, command: Command) -> object:
        result = self.machine.apply(self.cluster.next_index(), TERM, encode_command(command))
        if isinstance(result, StockadeError):
            raise result
        return result

    def _check_leading(self) -> None:
        leader = self.leader()
        if leader.node_id != self.node_id:
            raise NotLeaderOrFollower(leader.url, leader.term or None)


class FakeService(FakeOperating, FakeOwning, FakeListing, FakePrincipals):
    """One node."""

    def __init__(self, cluster: FakeCluster, node_id: str = "n1") -> None:
        self.shared: FakeCluster = cluster
        self.node_id = node_id
        self.ledger = FakeLedger(cluster.acts)
        self.missing: list[Unready] = []
        self.bug: Exception | None = None

    def at_controller(self) -> "FakeService":
        return self

    @property
    def sessions(self) -> "FakeService":
        return self

    topics = resources = producers = members = lists = principals = sessions

    def cluster(self) -> Cluster:
        nodes = [Node(node_id, url, "127.0.0.1:1", None, True) for node_id, url in self.shared.urls.items()]
        return Cluster("c-1", self.node_id, "0.1.0", self.controller().info, nodes, feature_level=self.ledger.level)

    def counts(self) -> PartitionCounts:
        topics = self.shared.topics.values()
        led = [m.fence for each in topics for k, m in enumerate(each.machines) if self._leads(each, k)]
        held, epochs = sum(fence.slot is not None for fence in led), sum(fence.topic_epoch for fence in led)
        return PartitionCounts(
            sum(len(each.machines) for each in topics), len(led), held, 0, 0, epochs, self.shared.index
        )

    def _leads(self, topic: FakeTopic, partition: int) -> bool:
        return FakePartition(self.shared, self.node_id, topic, partition).leader().node_id == self.node_id

    def unready(self) -> list[Unready]:
        return self.missing

    def settings(self) -> list[NodeSetting]:
        return [NodeSetting("node_id", self.node_id, None), NodeSetting("limits.request_timeout_ms", 500, 10_000)]

    async def measures(self, *, names: bool = False) -> Measures:
        return fake_measures(self.node_id)

    @property
    def leadership_news(self) -> int:
        return self.shared.news

    async def await_leadership_news(self, seen: int, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.shared.news == seen:
                    await self.shared.changed.wait()

    def controller(self) -> Leader:
        return self.shared.leader(self.shared.controller)

    def node_at(self, url: str) -> str | None:
        found = (node_id for node_id, known in self.shared.urls.items() if known == url)
        return next((node_id for node_id in found if node_id != self.node_id), None)

    async def open_stream(self, node_id: str, protocol: asyncio.Protocol) -> None:
        """Where nodes have no connections of their own: to the port of the other node's front."""
        url = URL(self.shared.urls[node_id])
        assert url.host is not None
        assert url.port is not None
        await asyncio.get_running_loop().create_connection(lambda: protocol, url.host, url.port)

    def accept_streams(self, accept: Callable[[str], asyncio.Protocol | None]) -> None:
        self.accept = accept

    def held(self, topic: str, partition: int) -> FakePartition | None:
        found = self.shared.topics.get(topic)
        if self.bug is not None or found is None or partition >= len(found.machines):
            return None
        return FakePartition(self.shared, self.node_id, found, partition)

    async def partition(self, topic: str, partition: int, topic_id: int | None) -> FakePartition:
        if self.bug is not None:
            raise self.bug
        found = self._topic(topic)
        if topic_id not in (None, found.topic_id):
            raise InconsistentTopicId(topic_id=found.topic_id)
        if partition >= len(found.machines):
            raise UnknownTopicOrPartition(topic=topic, partition=partition)
        return FakePartition(self.shared, self.node_id, found, partition)

    async def list_topics(self) -> list[TopicSummary]:
        self._check_controlling()
        found = sorted(self.shared.topics.values(), key=lambda topic: topic.name)
        return [
            TopicSummary(
                *(topic.name, topic.topic_id, len(topic.machines), topic.replication_factor or 1, topic.sealed),
                require_fence=topic.config.require_fence,
                held=sum(machine.slot is not None for machine in topic.machines),
            )
            for topic in found
        ]

    async def get_topic(self, name: str, topic_id: int | None = None) -> Topic:
        self._check_controlling()
        topic = self._topic(name)
        leaders = [self.shared.leader(node_id) for node_id in topic.leaders]
        partitions = [
            PartitionState(k, leader.url, leader.node_id, leader.term, ["n1"], machine.topic_epoch, _mode(machine))
            for k, (leader, machine) in enumerate(zip(leaders, topic.machines, strict=True))
        ]
        return Topic(name, topic.topic_id, topic.replication_factor or 1, topic.sealed, topic.config, partitions)

    async def get_topic_page(self, name: str, first: int, most: int, find: str) -> TopicPage:
        topic = await self.get_topic(name)
        found = [each for each in topic.partitions if find in str(each.partition)]
        known = topic.name, topic.topic_id, topic.replication_factor, topic.sealed, topic.config
        return TopicPage(*known, len(found), found[first : first + most])

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int | None,
        config: TopicConfig,
        by: By = NO_PRINCIPAL,
        *,
        leaves_retention: bool = False,
    ) -> tuple[Topic, bool]:
        self._check_controlling()
        known = self.shared.topics.get(name)
        if known is not None:
            if (len(known.machines), known.replication_factor, known.config) != (
                partitions,
                replication_factor,
                config,
            ):
                raise TopicAlreadyExists(topic_id=known.topic_id)
            return await self.get_topic(name), False
        topic_id = self.shared.next_index()
        topic = FakeTopic(name, topic_id, replication_factor, config, [], [self.node_id] * partitions)
        settings = self.shared.partition_config(topic)
        topic.machines = [PartitionMachine(settings, self.shared.log(topic_id, k)) for k in range(partitions)]
        self.shared.topics[name] = topic
        return await self.get_topic(name), True

    async def delete_topic(
        self, name: str, topic_id: int | None, if_grants: str | None = None, by: By = NO_PRINCIPAL
    ) -> None:
        self._check_controlling()
        topic = self._topic(name)
        if if_grants not in (None, grants_digest(self.shared.grants)):
            raise PlanChanged(grants=sorted(self.shared.grants))
        if topic_id not in (None, topic.topic_id):
            raise InconsistentTopicId(topic_id=topic.topic_id)
        del self.shared.topics[name]

    async def open_session(self, client_id: str, ttl_ms: int, by: By = NO_PRINCIPAL) -> SessionInfo:
        self._check_controlling()
        ttl_ms = min(ttl_ms, 300_000)
        session = SessionInfo(f"s-{self.shared.next_index()}", client_id, ttl_ms, 1000 + ttl_ms, ttl_ms)
        self.shared.sessions[session.session] = session
        self.shared.principals[session.session] = by.principal
        return session

    async def renew_session(self, session: str, by: By = NO_PRINCIPAL) -> SessionInfo:
        self._check_controlling()
        return self._session(session, by)

    async def close_session(self, session: str, by: By = NO_PRINCIPAL) -> None:
        self._check_controlling()
        if session in self.shared.sessions:
            self._session(session, by)
        self.shared.sessions.pop(session, None)

    async def acquire(
        self,
        topic: str,
        session: str,
        partitions: Sequence[int] | None,
        mode: Mode,
        producer_name: str,
        *,
        resume_epoch: int | None,
        topic_id: int | None,
        ticket_ttl_ms: int | None = None,
        by: By = NO_PRINCIPAL,
    ) -> Grant | Ticket:
        self._check_controlling()
        self._session(session, by)
        found = self._topic(topic)
        if topic_id not in (None, found.topic_id):
            raise InconsistentTopicId(topic_id=found.topic_id)
        wanted = sorted(partitions) if partitions is not None else list(range(len(found.machines)))
        if producer_name == "holder":
            raise HoldAndWait(held_grants=["g-1-1"], ticket=None)
        if resume_epoch is not None and resume_epoch < max(found.machines[k].topic_epoch for k in wanted) + 1:
            raise ProducerFenced(current_epoch=1, reason="superseded")
        if producer_name == "slow":
            ticket = Ticket("t-1", "installing", None, topic, wanted, None)
            self.shared.tickets[ticket.ticket] = ticket
            return ticket
        machines = [found.machines[k] for k in wanted]
        taken = next((machine for machine in machines if machine.slot is not None), None)
        if taken is not None and taken.slot is not None and mode == "Exclusive":
            raise ProducerBusy(
                reason="exclusive_present",
                holder_mode=taken.slot.mode,
                current_epoch=taken.topic_epoch,
                queue_len=0,
                holder=msgspec.to_builtins(taken.fence.holder),
            )
        if taken is not None and mode == "WaitForExclusive":
            ticket = Ticket(f"t-{self.shared.next_index()}", "waiting", 0, topic, wanted, None)
            self.shared.tickets[ticket.ticket] = ticket
            self.shared.holders[ticket.ticket] = session
            return ticket
        return self._seat(found, session, wanted, mode, producer_name)

    async def get_ticket(self, ticket: str, session: str, wait_ms: int, by: By = NO_PRINCIPAL) -> Ticket:
        self._check_controlling()
        self._session(session, by)
        if ticket == "t-fenced":
            raise ProducerFenced(current_epoch=1, reason="evicted")
        if ticket not in self.shared.tickets:
            raise NotFound(what="ticket")
        return self.shared.tickets[ticket]

    async def release(self, grant: str, session: str, by: By = NO_PRINCIPAL) -> None:
        self._check_controlling()
        self._session(session, by)
        held = self.shared.grants.get(grant)
        if held is None:
            return
        if self.shared.holders[grant] != session:
            raise ProducerFenced(current_epoch=held.epoch, reason="not_holder")
        assert held.epoch is not None
        for partition in held.partitions:
            machine = self.shared.topics[held.topic].machines[partition]
            machine.apply(0, TERM, encode_command(ClearFence(grant, held.epoch, self.shared.next_index())))
        del self.shared.grants[grant]

    async def init_producer(
        self, name: str | None, pair: tuple[int, int] | None, nonce: str | None, by: By = NO_PRINCIPAL
    ) -> ProducerPair:
        self._check_controlling()
        if name is None:
            return ProducerPair(2 * self.shared.next_index(), 0, None)
        known = self.shared.producers.get(name)
        if known is None:
            made = ProducerPair(2 * self.shared.next_index() + 1, 0, name)
        elif pair in (None, (known.producer_id, known.producer_epoch)):
            made = ProducerPair(known.producer_id, known.producer_epoch + 1, name)
        else:
            raise ProducerFenced(current_epoch=known.producer_epoch, reason="identity")
        self.shared.producers[name] = made
        return made

    def _seat(self, topic: FakeTopic, session: str, partitions: list[int], mode: Mode, producer_name: str) -> Grant:
        index = self.shared.next_index()
        epoch = 1 + max(topic.machines[k].topic_epoch for k in partitions)
        grant_id = f"g-{topic.topic_id}-{index}"
        for partition in partitions:
            client_id = self.shared.sessions[session].client_id
            install = InstallFence(grant_id, epoch, session, producer_name, mode, index, client_id)
            topic.machines[partition].apply(index, TERM, encode_command(install))
        epochs = {str(partition): epoch for partition in partitions}
        grant = Grant(grant_id, topic.name, topic.topic_id, mode, producer_name, partitions, epoch, epochs)
        self.shared.grants[grant_id] = grant
        self.shared.holders[grant_id] = session
        return grant

    def _topic(self, name: str) -> FakeTopic:
        if name not in self.shared.topics:
            raise UnknownTopicOrPartition(topic=name, partition=None)
        return self.shared.topics[name]

    def _session(self, session: str, by: By = NO_PRINCIPAL) -> SessionInfo:
        if session in self.shared.expired:
            raise SessionExpired
        if session not in self.shared.sessions:
            raise UnknownSession
        if belongs_to_another(self.shared.principals.get(session, ""), by.principal):
            raise PermissionDenied()
        return self.shared.sessions[session]

    def _check_controlling(self) -> None:
        if self.bug is not None:
            raise self.bug
        leader = self.controller()
        if leader.node_id != self.node_id:
            raise NotLeaderOrFollower(leader.url, leader.term or None)


def _mode(machine: PartitionMachine) -> Mode | None:
    return machine.slot.mode if machine.slot is not None else None  # type: ignore[return-value]
