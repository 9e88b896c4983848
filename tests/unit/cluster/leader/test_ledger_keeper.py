"""The ledger's topic: each entry once and in order, whatever is lost between the copy and the report of it."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from waiting import until

from stockade.cluster.access.store import PrincipalStore
from stockade.cluster.config import LedgerSection
from stockade.cluster.controller import ledger
from stockade.cluster.controller.commands import (
    Command,
    DeleteTopic,
    Done,
    FenceInstalled,
    InitProducer,
    RaiseFeatureLevel,
    RegisterNode,
    decode_command,
    encode_command,
)
from stockade.cluster.controller.ledger import KeepLedger, chained
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.topology.catalog import CONTROLLER_GROUP, Topic, group_id
from stockade.cluster.features import Features
from stockade.cluster.groups import Router
from stockade.cluster.leader.controller_group import ControllerGroup
from stockade.cluster.leader.ledger_keeper import LedgerKeeper, copied_up_to
from stockade.cluster.model import By
from stockade.cluster.node.node_service import NodeService
from stockade.partition.api.ledger import NO_HASH
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import Appended, encode_result
from stockade.partition.errors import (
    LeaderNotAvailable,
    LedgerFull,
    NotLeaderOrFollower,
    OffsetMismatch,
    ProducerFenced,
    StockadeError,
    TopicSealed,
    UnknownTopicOrPartition,
)
from stockade.partition.internal_names import LEDGER_TOPIC
from stockade.partition.records.batch import decode_batch
from stockade.raft.core.group import Group

from ..fakes import FakeGroup, FakeHost, fake
from ..node.test_node import append, grant, run

ROOT = By("root", request="r-1", client="::1")
DEFAULT = LedgerSection()


@pytest.fixture(autouse=True)
def keeps_nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests do the steps of the keeper themselves."""

    async def rest(keeper: LedgerKeeper) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(LedgerKeeper, "run", rest)


def keeper(service: NodeService, section: LedgerSection = DEFAULT) -> LedgerKeeper:
    """As a member makes it that begins to lead."""
    return LedgerKeeper(service.at_controller().control, service._group_statuses._router, section)


async def begun(service: NodeService, host: FakeHost) -> ControllerGroup:
    """The control of a cluster whose ledger has its topic."""
    host.level = 2
    control = service.at_controller().control
    await keeper(service).step()
    await until(lambda: service.held(LEDGER_TOPIC, 0))
    return control


def stored(service: NodeService) -> list[bytes]:
    """The entries that the topic has."""
    replica = service.held(LEDGER_TOPIC, 0)
    assert replica is not None
    found = replica.machine.log.read(0, 1 << 30)
    return [value for message in found.messages() for value in decode_batch(message).column("value").to_pylist()]


async def act(service: NodeService, name: str) -> None:
    with suppress(StockadeError):
        await service.at_controller().topics.delete_topic(name, None, None, ROOT)


def test_copied_up_to_returns_the_last_entry_of_the_topic() -> None:
    assert copied_up_to(5, 3, Appended(4, 6, False, 0, 1)) == 7
    assert copied_up_to(5, 3, OffsetMismatch(log_end=7)) == 7, "an earlier copy of all of them"
    assert copied_up_to(5, 3, OffsetMismatch(log_end=5)) == 5, "of the first"
    assert copied_up_to(5, 3, OffsetMismatch(log_end=9)) == 9, "a later leader was faster"
    assert copied_up_to(5, 3, OffsetMismatch(log_end=3)) is None, "entries are lost"
    assert copied_up_to(5, 3, TopicSealed(log_end=4)) is None
    with pytest.raises(LeaderNotAvailable):
        copied_up_to(5, 3, LeaderNotAvailable())


def test_a_failover_between_copy_and_report_neither_loses_nor_doubles_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = await begun(service, host)
        topic = fake(service.held(LEDGER_TOPIC, 0).group)  # type: ignore[union-attr]
        await act(service, "t")
        for lost_of_topic, lost_of_controller in (([True], []), ([False], []), ([], [True]), ([], [False])):
            await act(service, "gone")
            topic.lose, fake(control.group).lose = lost_of_topic, lost_of_controller
            with pytest.raises(StockadeError):
                await keeper(service).step()
            await act(service, "also gone")
            await keeper(service).step()
            assert control.machine.ledger.waiting == 0
            entries = stored(service)
            assert len(entries) == control.machine.ledger.next - 1
            assert chained(1, entries, NO_HASH)

    run(tmp_path, monkeypatch, scenario)


@pytest.mark.parametrize("seed", range(5))
def test_several_leaders_that_copy_at_once_leave_each_entry_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)

    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = await begun(service, host)
        topic = fake(service.held(LEDGER_TOPIC, 0).group)  # type: ignore[union-attr]
        monkeypatch.setattr("stockade.cluster.leader.ledger_keeper.COPY_ENTRIES_MAX", 3)
        for _ in range(30):
            for _ in range(chance.randrange(8)):
                await act(service, "gone")
            topic.lose = [chance.random() < 0.5 for _ in range(chance.randrange(2))]
            fake(control.group).lose = [chance.random() < 0.5 for _ in range(chance.randrange(2))]
            await asyncio.gather(*(keeper(service).step() for _ in range(3)), return_exceptions=True)
            topic.lose, fake(control.group).lose = [], []
        await keeper(service).step()
        entries = stored(service)
        assert len(entries) == control.machine.ledger.next - 1 > 50
        assert chained(1, entries, NO_HASH)

    run(tmp_path, monkeypatch, scenario)


def test_the_ledger_begins_at_its_feature_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = service.at_controller().control
        await act(service, "gone")
        assert not control.machine.ledger.is_recording
        async with service.ledger.act("records.trim", "t", 0, {}, ROOT):
            pass
        assert not control.machine.ledger.is_recording, "an older node could not read the command"
        host.level = 2
        await control.begin_ledger()
        await act(service, "gone")
        assert control.machine.ledger.next == 3
        async with service.ledger.act("records.trim", "t", 0, {"before": 3}, ROOT) as result:
            result["log_start"] = 3
        with pytest.raises(UnknownTopicOrPartition):
            async with service.ledger.act("records.trim", "t", 0, {}, ROOT):
                raise UnknownTopicOrPartition(topic="t", partition=0)
        _, entries = control.machine.ledger.oldest(9, 1 << 20)
        assert [
            b'"outcome":"%b"' % outcome in entry
            for outcome, entry in zip([b"intended", b"done", b"intended", b"refused"], entries[2:], strict=True)
        ] == [True] * 4

    run(tmp_path, monkeypatch, scenario)


def test_an_act_does_not_begin_when_its_intent_cannot_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = await begun(service, host)
        monkeypatch.setattr("stockade.cluster.controller.ledger.OUTBOX_ENTRIES_MAX", 0)
        monkeypatch.setattr("stockade.cluster.controller.ledger.RESERVE_ENTRIES", 0)
        done: list[Any] = []
        with pytest.raises(LedgerFull):
            async with service.ledger.act("records.trim", "t", 0, {}, ROOT):
                done.append("not so")
        fake(control.group).lose = [True]
        with pytest.raises(LeaderNotAvailable):
            async with service.ledger.act("records.trim", "t", 0, {}, ROOT):
                done.append("not so")
        assert not done

    run(tmp_path, monkeypatch, scenario)


def test_while_the_ledgers_topic_takes_nothing_grants_go_on_and_acts_of_administration_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Takeovers, renewals, fences and ends; and when the topic is back, the chain is whole, and tells of its gap."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = await begun(service, host)
        await keeper(service).step()
        monkeypatch.setattr(ledger, "OUTBOX_ENTRIES_MAX", 5)
        monkeypatch.setattr(ledger, "RESERVE_ENTRIES", 2)
        topic, services = fake(service.held(LEDGER_TOPIC, 0).group), service.at_controller()  # type: ignore[union-attr]
        topic.lose = [False] * 1000
        tenures = []
        for _ in range(5):
            tenures.append(await grant(service, "ExclusiveWithFencing"))
            with pytest.raises(StockadeError):
                await keeper(service).step()
            await append(service, b"x", token=tenures[-1][1])
        taken, token = tenures[-1]
        await services.sessions.renew_session(token.session)
        await services.resources.fence_topic("t", [0], None, "a drill", by=ROOT)
        with pytest.raises(ProducerFenced):
            await append(service, b"x", token=token)
        await services.sessions.release(taken.grant, token.session)
        await act(service, "gone")
        with pytest.raises(LedgerFull):
            await services.topics.delete_topic("t", None, None, ROOT)
        topic.lose = []
        await keeper(service).step()
        await services.topics.delete_topic("t", None, None, ROOT)
        await keeper(service).step()
        entries = stored(service)
        assert chained(1, entries, NO_HASH)
        assert len(entries) == control.machine.ledger.next - 1
        [gap] = [entry for entry in entries if b'"act":"ledger.gap"' in entry]
        assert b'"left_out":' in gap

    run(tmp_path, monkeypatch, scenario)


def test_the_ledgers_retention_follows_the_configuration_with_one_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = await begun(service, host)
        before = control.machine.ledger.next
        await keeper(service, LedgerSection(retention_ms=86_400_000)).step()
        await keeper(service, LedgerSection(retention_ms=86_400_000)).step()
        assert control.machine.ledger.next == before + 1
        topic = control.machine.catalog.topic(LEDGER_TOPIC)
        assert topic is not None
        assert topic.config == TopicConfig(retention_ms=86_400_000, retention_bytes=DEFAULT.retention_bytes)

    run(tmp_path, monkeypatch, scenario)


def test_entries_that_the_topic_has_lost_are_never_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stockade.cluster.leader.ledger_keeper.PERIOD_S", 0.0)

    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = await begun(service, host)
        await act(service, "gone")
        control.machine.ledger.copied(2)
        step = asyncio.ensure_future(keeper(service).step())
        await until(lambda: "does not end before entry 3" in caplog.text)
        step.cancel()
        assert stored(service) == []
        assert control.machine.ledger.waiting

    run(tmp_path, monkeypatch, scenario)


def test_no_entry_is_copied_to_a_topic_that_is_longer_than_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The controllers' disks were put back to an older copy: nothing is dropped as if it were copied."""
    monkeypatch.setattr("stockade.cluster.leader.ledger_keeper.PERIOD_S", 0.0)

    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = await begun(service, host)
        await act(service, "gone")
        await keeper(service).step()
        before = control.machine.capture().state
        for _ in range(5):
            await act(service, "gone")
        await keeper(service).step()
        control.machine.restore(None, before, [])
        await act(service, "gone")
        step = asyncio.ensure_future(keeper(service).step())
        await until(lambda: "does not end before entry" in caplog.text)
        step.cancel()
        assert control.machine.ledger.waiting == 1

    run(tmp_path, monkeypatch, scenario)


def test_a_deposed_leader_that_stood_still_does_not_say_that_the_ledgers_topic_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its successor has copied entries that it does not know yet."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = await begun(service, host)
        await act(service, "gone")
        before = control.machine.capture().state
        for _ in range(5):
            await act(service, "gone")
        await keeper(service).step()
        control.machine.restore(None, before, [])

        async def deposed() -> None:
            raise NotLeaderOrFollower(leader=None, leader_term=2)

        monkeypatch.setattr(control, "barrier", deposed)
        with pytest.raises(NotLeaderOrFollower):
            await keeper(service).step()
        assert "does not end before entry" not in caplog.text

    run(tmp_path, monkeypatch, scenario)


class Founded:
    """The control of a cluster of one node, in zone ``a``, whose ledger has its topic there."""

    def __init__(self) -> None:
        def group_of(machine: ControllerMachine) -> Group:
            return cast(Group, FakeGroup(CONTROLLER_GROUP, {"a1": 1}, machine))

        self.control = ControllerGroup(
            group_of, Features(), {}, 1.0, PrincipalStore(Path("nowhere")), lambda node_id: True
        )
        self.register("a1")
        self.do(RaiseFeatureLevel(now_ms=0, level=2, supporting=["a1"]))
        self.do(KeepLedger(now_ms=0, config=TopicConfig(), nodes=[("a1", "a")]))

    def do(self, command: Command) -> None:
        group = fake(self.control.group)
        group._index += 1
        answer = group.machine.apply(group._index, 1, encode_command(command))
        assert not isinstance(answer, StockadeError), answer

    def register(self, *node_ids: str) -> None:
        """These nodes come; the first letter is the zone."""
        for node_id in node_ids:
            self.do(
                RegisterNode(
                    now_ms=0, node_id=node_id, url="u", raft="h:1", zone=node_id[0], incarnation=1, controllers=["a1"]
                )
            )

    @property
    def topic(self) -> Topic:
        return self.control.machine.catalog.by_id[self.control.machine.ledger.topic_id or 0]

    def moves_to(self) -> list[str] | None:
        """Where the topic's replicas shall be, if it moves."""
        move = self.control.machine.assignment.moves.get(group_id(self.topic.topic_id, 0))
        return move.target if move is not None else None


def test_the_ledger_grows_into_further_zones() -> None:
    """Its three replicas were on the first nodes by id: all in one zone, next to a topic that was spread."""
    it = Founded()
    it.register("a2", "a3", "b1", "c1", "d1")
    it.control.is_present = lambda node_id: node_id != "b1"
    asyncio.run(LedgerKeeper(it.control, cast(Router, None), DEFAULT)._grow(it.topic))
    assert it.moves_to() == ["a1", "c1", "d1"]


def test_the_ledger_grows_and_takes_its_configuration_however_many_entries_come() -> None:
    """Each copy brings another entry: a step that copied until none waited never ended."""
    it = Founded()
    section = LedgerSection(retention_ms=86_400_000)

    class Busy:
        copies = 0

        async def propose(self, group: int, voters: list[str], command: bytes, timeout_s: float) -> bytes:
            self.copies += 1
            assert self.copies < 10, "the step does not end"
            it.do(InitProducer(now_ms=0, name=f"p{self.copies}"))
            return encode_result(Appended(0, 0, False, 0, None))

    busy = Busy()
    its_keeper = LedgerKeeper(it.control, cast(Router, busy), section)

    async def scenario() -> None:
        await its_keeper.step()
        it.register("b1", "c1")
        await its_keeper.step()

    asyncio.run(scenario())
    assert it.moves_to() == ["a1", "b1", "c1"]
    assert it.topic.config.retention_ms == section.retention_ms
    assert busy.copies == 2, "entries that come during a copy share the next one"


def test_a_step_copies_all_entries_that_waited_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.cluster.leader.ledger_keeper.COPY_ENTRIES_MAX", 3)
    it = Founded()
    for number in range(10):
        it.do(InitProducer(now_ms=0, name=f"p{number}"))

    class Taking:
        async def propose(self, group: int, voters: list[str], command: bytes, timeout_s: float) -> bytes:
            return encode_result(Appended(0, 0, False, 0, None))

    asyncio.run(LedgerKeeper(it.control, cast(Router, Taking()), DEFAULT).step())
    assert it.control.machine.ledger.waiting == 0


def test_below_its_feature_level_no_command_has_the_fields_of_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ticket that waits keeps the id of its request: replicas of older software would make another entry of it."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = service.at_controller().control
        sent: list[bytes] = []
        propose = control.answer_to

        async def spied(data: bytes, timeout_s: float) -> object:
            sent.append(data)
            return await propose(data, timeout_s)

        monkeypatch.setattr(control, "answer_to", spied)
        install = FenceInstalled(now_ms=0, group_id=1 << 16, order=1, log_end=17, previous=3)
        for level in (1, 2):
            host.level = level
            await act(service, "gone")
            await control.decide(lambda now: install, Done)
        told = [decode_command(data) for data in sent]
        assert [cast(DeleteTopic, each).by for each in told[::2]] == [By("root"), ROOT]
        assert [(each.log_end, each.previous) for each in cast(list[FenceInstalled], told[1::2])] == [
            (None, None),
            (17, 3),
        ]

    run(tmp_path, monkeypatch, scenario)
