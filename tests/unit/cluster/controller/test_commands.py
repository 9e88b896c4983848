"""The bytes of commands and answers."""

from datetime import UTC, datetime
from typing import get_args

import msgspec
import pytest

from stockade.cluster.access.principals import PrincipalToken
from stockade.cluster.controller.backups import NoteBackup
from stockade.cluster.controller.balance import ChooseControllers, PlacedMove, Rebalance, SetBalance
from stockade.cluster.controller.commands import (
    Acquire,
    AddNode,
    Arranged,
    CancelTicket,
    ChangeTopic,
    CheckMove,
    CloseSession,
    Command,
    CreateTopic,
    DeleteTopic,
    Disown,
    Done,
    Enrol,
    Enrolled,
    FencedPartition,
    FenceInstalled,
    FenceProducer,
    FenceRef,
    FenceSession,
    FenceTopic,
    ForgetNames,
    ForgetResources,
    Freed,
    GrantState,
    InitProducer,
    MoveDone,
    OpenSession,
    Own,
    Owned,
    ProducerFence,
    ProducerFenceInstalled,
    ProducerState,
    RaiseFeatureLevel,
    ReaderFenceInstalled,
    ReaderRef,
    Reassign,
    RegisterNode,
    Release,
    RemoveNode,
    RemoveZone,
    RenewSession,
    RenewSessions,
    Result,
    SessionEnded,
    SessionState,
    Tick,
    TicketState,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    TopicFenced,
    Verdict,
    WithdrawProducers,
    decode_command,
    decode_result,
    encode_command,
    encode_result,
)
from stockade.cluster.controller.ledger import (
    BeginLedger,
    KeepLedger,
    LedgerCopied,
    Noted,
    NoteIntent,
    NoteOutcome,
)
from stockade.cluster.controller.principals import (
    AddPrincipalToken,
    DeletePrincipal,
    DeletePrincipalToken,
    PrincipalPut,
    PutPrincipal,
)
from stockade.cluster.model import By, Claim
from stockade.partition.api.cluster import NotedBackup
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import InvalidRequest, NotEnoughReplicas, ProducerBusy, ProducerFenced, StockadeError

RESULTS: list[Result] = [
    Noted(7),
    TopicCreated(812, created=True),
    TopicDeleted(812, 16),
    SessionState("s-1", "loader", 10_000, 734_512),
    GrantState(
        grant_id="g-812-3",
        ticket_id="t-812-3",
        grant_index=3,
        session="s-1",
        topic="orders",
        topic_id=812,
        partitions=[0, 1],
        all_partitions=True,
        mode="Exclusive",
        producer_name="p",
        epoch=2**64 - 1,
        epochs=[2**64 - 1, 2**64 - 1],
        pending=[1],
    ),
    TicketState("t-812-4", "s-1", "orders", [0, 1], 7),
    TopicChanged(812, 815),
    TopicFenced(812, [FencedPartition(0, 5, 9, ["g-812-3"])]),
    Owned([Verdict("orders/0", True, 1, 2), Verdict("x", False, 3, 4, "GENERATION_FENCED")], [ReaderRef(1, "g", 2)]),
    Freed([FenceRef(812 << 16, 3)]),
    SessionEnded([FenceRef(812 << 16, 3)], [], client_id="mirror-1", grants=["g-1-0"], resources=2),
    ProducerState(1001, 4, "mirror", [ProducerFence(1001, 4, 812 << 16)]),
    ProducerState(1000, 0, None, []),
    Enrolled(1001, 4, 17),
    Arranged(),
    PrincipalPut(created=True),
    Done(),
]
REFUSALS = [
    ProducerBusy(reason="exclusive_present", holder_mode="Exclusive", current_epoch=1, queue_len=0),
    ProducerFenced("gone", reason="superseded", current_epoch=2**64 - 1),
    InvalidRequest("mode: unknown"),
    NotEnoughReplicas(),
]

TOKEN = PrincipalToken("00.11.22", datetime(2027, 1, 31, 12, 0, 0, 1000, UTC))


COMMANDS: list[Command] = [
    CreateTopic(
        now_ms=1,
        name="orders",
        partitions=2,
        replication_factor=None,
        config=TopicConfig(require_fence=True),
        nodes=[("n1", "z1"), ("n2", None)],
    ),
    DeleteTopic(now_ms=1, name="orders"),
    OpenSession(now_ms=1, session="s-1", client_id="c", ttl_ms=10_000),
    RenewSession(now_ms=1, session="s-1"),
    CloseSession(now_ms=1, session="s-1"),
    Acquire(
        now_ms=2**63 - 1,
        session="s-1",
        topic="orders",
        partitions=[1, 0],
        mode="Exclusive",
        producer_name="p",
        topic_id=812,
        resume_epoch=2**64 - 1,
    ),
    Acquire(now_ms=1, session="s-1", topic="orders", partitions=None, mode="?", producer_name=""),
    Release(now_ms=1, session="s-1", grant_id="g-812-3"),
    WithdrawProducers(now_ms=1, group_id=812 << 16, pids=[1001], order=17),
    ForgetNames(now_ms=1, names=["mirror"]),
    FenceInstalled(now_ms=1, group_id=812 << 16, order=3, log_end=17, previous=2),
    BeginLedger(now_ms=1),
    KeepLedger(now_ms=1, config=TopicConfig(retention_ms=1), nodes=[("n1", None)]),
    LedgerCopied(now_ms=1, number=7),
    NoteIntent(now_ms=1, by=By("p", request="r", client="::1"), act="x", topic="t", partition=1, wanted={"a": 1}),
    NoteOutcome(now_ms=1, intent=7, outcome="refused", code="PRODUCER_BUSY", result={"log_start": 1}),
    CancelTicket(now_ms=1, session="s-1", ticket_id="t-812-3"),
    RenewSessions(now_ms=1, deadlines_ms=[("s-1", 10_001)]),
    ChangeTopic(now_ms=1, name="orders", topic_id=None, partitions=3, seal=True, config={"max_producers": 3}, nodes=[]),
    FenceTopic(now_ms=1, topic="orders", partitions=[0], reason="drill"),
    Own(now_ms=1, session="s-1", group="g", claims=[Claim("x", 0), Claim("y")], sever="resource"),
    Disown(now_ms=1, session="s-1", group="g", resources=["x"]),
    ForgetResources(now_ms=1, keys=[("g", "x")]),
    ReaderFenceInstalled(now_ms=1, group_id=812 << 16, group="g", fence_epoch=2**64 - 1, owned=False),
    InitProducer(now_ms=1, name="mirror", pair=(1001, 4), nonce="n"),
    InitProducer(now_ms=1, name=None),
    FenceProducer(now_ms=1, name="mirror"),
    FenceSession(now_ms=1, handle="5d41402abc4b2a76", reason="drill", if_grants="0" * 16, if_resources=2),
    Enrol(now_ms=0, pid=1001, group_id=812 << 16 | 1),
    ProducerFenceInstalled(now_ms=1, pid=1001, epoch=4, group_id=812 << 16),
    Tick(now_ms=0),
    RegisterNode(
        now_ms=0, node_id="n1", url="http://n1:1", raft="n1:2", zone=None, incarnation=2**63 - 1, controllers=["n1"]
    ),
    AddNode(now_ms=1, node_id="n4", url="http://n4:1", raft="n4:2", zone="z1"),
    RemoveNode(now_ms=1, node_id="n4"),
    RemoveZone(now_ms=1, zone="z1"),
    Rebalance(now_ms=1, moves=[PlacedMove(65536, ["n1"], ["n2"])]),
    Rebalance(now_ms=1, moves=[], leaders=[("orders", 1, "n2", "n1")], plan="0", if_plan="0"),
    NoteBackup(now_ms=1, made=NotedBackup("p", "n", 2, 3, 4, 5, 6)),
    SetBalance(now_ms=1, changes={"mode": "off", "moves_at_once": 2}),
    ChooseControllers(now_ms=1, node_ids=["n1"], if_plan="0"),
    ChooseControllers(now_ms=1, node_ids=None),
    Reassign(now_ms=1, topic="orders", partition=1, replicas=["n1", "n2", "n4"]),
    CheckMove(now_ms=0, group_id=812 << 16, version=813),
    MoveDone(now_ms=0, group_id=812 << 16, version=813),
    PutPrincipal(now_ms=1, by=By("root", evicts=True), name="p", rights=["all"], certificates=["CN:p"], tokens=[TOKEN]),
    DeletePrincipal(now_ms=1, name="p"),
    AddPrincipalToken(now_ms=1, name="p", token=TOKEN),
    RaiseFeatureLevel(now_ms=1, level=2, supporting=["n1"]),
    DeletePrincipalToken(now_ms=1, name="p", token_id="00"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_survives_its_bytes(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


def test_every_command_and_every_answer_is_tried() -> None:
    assert {type(command) for command in COMMANDS} == set(get_args(Command))
    assert {type(result) for result in RESULTS} == set(get_args(Result))


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_an_answer_survives_its_bytes(result: Result) -> None:
    assert decode_result(encode_result(result)) == result


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.code)
def test_a_refusal_survives_its_bytes_with_fields_and_detail(refusal: StockadeError) -> None:
    revived = decode_result(encode_result(refusal))
    assert isinstance(revived, StockadeError)
    assert (revived, revived.detail) == (refusal, refusal.detail)


def test_equal_commands_have_equal_bytes_and_other_bytes_are_no_command() -> None:
    tick = Tick(now_ms=5)
    assert encode_command(tick) == encode_command(Tick(now_ms=5))
    for data in (b"", b"\xff", encode_command(tick)[:-1], encode_result(Done())):
        with pytest.raises(msgspec.DecodeError):
            decode_command(data)
