"""A node of the cluster in memory: it answers as a leader, or with the URL of the node that leads."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from yarl import URL

from stockade.cluster.measures import Measures
from stockade.cluster.model import NO_PRINCIPAL, By, Leader
from stockade.partition.api.cluster import Cluster, Node, NodeSetting, PartitionCounts, Unready
from stockade.partition.api.ownership import Grant, SessionInfo, Ticket, grants_digest
from stockade.partition.api.producers import ProducerPair
from stockade.partition.api.topics import Mode, PartitionState, Topic, TopicConfig, TopicPage, TopicSummary
from stockade.partition.commands import (
    ClearFence,
    InstallFence,
    belongs_to_another,
    encode_command,
)
from stockade.partition.errors import (
    HoldAndWait,
    InconsistentTopicId,
    NotFound,
    NotLeaderOrFollower,
    PermissionDenied,
    PlanChanged,
    ProducerBusy,
    ProducerFenced,
    SessionExpired,
    TopicAlreadyExists,
    UnknownSession,
    UnknownTopicOrPartition,
)
from stockade.partition.state.machine import PartitionMachine

from .fake_cluster import TERM, FakeCluster, FakeTopic
from .fake_ledger import FakeLedger
from .fake_lists import FakeListing
from .fake_measures import fake_measures
from .fake_members import FakeOperating
from .fake_ownership import FakeOwning
from .fake_partition import FakePartition
from .fake_principals import FakePrincipals


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
                single=len(topic.machines),
                no_majority=0,
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
