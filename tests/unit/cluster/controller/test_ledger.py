"""The ledger in the controller's machine: what makes an entry, the chain, and the bounds of what waits to be copied."""

import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import get_args

import msgspec
import pytest

from stockade.cluster.access.principals import PrincipalToken, new_token, token_id
from stockade.cluster.controller import acts, ledger
from stockade.cluster.controller.balance import ChooseControllers, SetBalance
from stockade.cluster.controller.commands import (
    AddNode,
    ChangeTopic,
    CloseSession,
    Command,
    CreateTopic,
    DeleteTopic,
    Disown,
    FenceInstalled,
    FenceProducer,
    FenceSession,
    FenceTopic,
    InitProducer,
    Own,
    RaiseFeatureLevel,
    Reassign,
    Release,
    RemoveNode,
    RemoveZone,
    RenewSessions,
    Tick,
)
from stockade.cluster.controller.ledger import (
    BeginLedger,
    KeepLedger,
    LedgerCopied,
    Noted,
    NoteIntent,
    NoteOutcome,
    chained,
)
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.principals import (
    AddPrincipalToken,
    DeletePrincipal,
    DeletePrincipalToken,
    PutPrincipal,
)
from stockade.cluster.controller.timed import Asked
from stockade.cluster.controller.topology.catalog import group_id
from stockade.cluster.model import Claim
from stockade.partition.api.ledger import NO_HASH, entry_hash, session_handle
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import (
    FeatureUpdateFailed,
    InvalidRequest,
    LedgerFull,
    PermissionDenied,
    StockadeError,
    TopicAlreadyExists,
)
from stockade.partition.internal_names import LEDGER_TOPIC

from .recorded import NODES, ROOT, Recorded, acquire, acts_of, node, topic


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_every_command_has_a_rule() -> None:
    """A new command has to be put into one of the tables."""
    tables = (acts.ADMINISTRATION, acts.CHANGES, acts.DECIDED_INSIDE, acts.UNRECORDED)
    named = [kind for table in tables for kind in table]
    assert sorted(kind.__name__ for kind in named) == sorted(kind.__name__ for kind in get_args(Command))


def test_every_act_of_administration_carries_its_caller() -> None:
    assert all(issubclass(kind, Asked) for kind in acts.ADMINISTRATION)


TOKEN = PrincipalToken(new_token().hash)
PUT = PutPrincipal(now_ms=0, by=ROOT, name="p", rights=["read topic:*"], certificates=["CN:p"], tokens=[TOKEN])
ADMINISTERED: dict[type[Command], Command] = {
    CreateTopic: topic("new"),
    ChangeTopic: ChangeTopic(
        now_ms=0, by=ROOT, name="t", topic_id=None, partitions=3, seal=True, config={}, nodes=NODES, scattered=True
    ),
    DeleteTopic: DeleteTopic(now_ms=0, by=ROOT, name="t"),
    FenceTopic: FenceTopic(now_ms=0, by=ROOT, topic="t", partitions=[1], reason="a drill"),
    FenceSession: FenceSession(now_ms=0, by=ROOT, handle=session_handle("idle"), reason="hangs"),
    FenceProducer: FenceProducer(now_ms=0, by=ROOT, name="mirror"),
    AddNode: AddNode(now_ms=0, by=ROOT, node_id="n9", url="u", raft="r", zone="z"),
    RemoveNode: RemoveNode(now_ms=0, by=ROOT, node_id="n3"),
    RemoveZone: RemoveZone(now_ms=0, by=ROOT, zone="z"),
    Reassign: Reassign(now_ms=0, by=ROOT, topic="t", partition=0, replicas=["n3"]),
    PutPrincipal: msgspec.structs.replace(PUT, rights=["produce topic:t"]),
    DeletePrincipal: DeletePrincipal(now_ms=0, by=ROOT, name="p"),
    AddPrincipalToken: AddPrincipalToken(now_ms=0, by=ROOT, name="p", token=PrincipalToken(new_token().hash)),
    RaiseFeatureLevel: RaiseFeatureLevel(now_ms=0, by=ROOT, level=2, supporting=["n1", "n2", "n3", "z1"]),
    DeletePrincipalToken: DeletePrincipalToken(now_ms=0, by=ROOT, name="p", token_id=token_id(TOKEN)),
    SetBalance: SetBalance(now_ms=0, by=ROOT, changes={"mode": "off"}),
    ChooseControllers: ChooseControllers(now_ms=0, by=ROOT, node_ids=["n2"]),
}


def test_an_example_of_every_act_of_administration_is_tried() -> None:
    assert set(ADMINISTERED) == set(acts.ADMINISTRATION)


@pytest.fixture
def furnished(recorded: Recorded) -> Recorded:
    recorded.topic()
    recorded.do(InitProducer(now_ms=0, by=ROOT, name="mirror"))
    recorded.do(PUT)
    recorded.do(node("z1", "z"))
    recorded.session("idle")
    return recorded


@pytest.mark.parametrize("kind", ADMINISTERED, ids=lambda kind: kind.__name__)
def test_an_act_of_administration_makes_exactly_one_entry_with_caller_object_before_and_after(
    furnished: Recorded, kind: type[Command]
) -> None:
    [entry] = furnished.told(ADMINISTERED[kind])
    assert (entry.act, entry.outcome, entry.code) == (acts.ADMINISTRATION[kind], "done", None)
    assert (entry.principal, entry.request, entry.client) == ("root", "r-1", "10.0.0.7")
    assert (entry.index, entry.at_ms) == (furnished.index, 1_000 + furnished.index)
    assert entry.before != entry.after
    assert kind is RaiseFeatureLevel or entry.topic is not None or entry.name is not None


def test_the_entry_of_a_session_fence_has_the_sessions_grants_and_the_handle_of_their_grant_end_entries(
    furnished: Recorded,
) -> None:
    a = furnished.session("a")
    [made] = furnished.told(acquire(a, partitions=[0]))
    furnished.do(Own(now_ms=0, by=ROOT, session=a, group="g", claims=[Claim("x")]))
    furnished.told()
    grant = furnished.machine.slots.grants.of_session(a)[0].grant_id
    *ended, fenced = furnished.told(FenceSession(now_ms=0, by=ROOT, handle=session_handle(a), reason="hangs"))
    assert acts_of(ended) == ["grant.end", "session.end"]
    assert (fenced.act, fenced.name, fenced.principal) == ("session.fence", session_handle(a), "root")
    assert (fenced.before, fenced.after) == ({"grants": [grant], "resources": 1}, {"reason": "hangs"})
    assert made.after is not None
    assert made.after["session"] == fenced.name
    assert ended[0].after is not None
    assert ended[0].after["reason"] == "fenced: hangs"


@pytest.mark.parametrize("kind", ADMINISTERED, ids=lambda kind: kind.__name__)
def test_a_refused_or_repeated_act_of_administration_makes_exactly_one_entry(
    furnished: Recorded, kind: type[Command]
) -> None:
    furnished.do(ADMINISTERED[kind])
    [entry] = furnished.told(ADMINISTERED[kind])
    assert entry.outcome in {"refused", "unchanged", "done"}
    assert (entry.outcome == "refused") == (entry.code is not None)
    assert entry.outcome == "done" or entry.after in (entry.before, None)


def test_no_secret_is_in_the_ledger(furnished: Recorded) -> None:
    session = furnished.session("s-" + "5ec7e7" * 5)
    furnished.do(acquire(session))
    furnished.do(Own(now_ms=0, by=ROOT, session=session, group="g", claims=[Claim("t/0")]))
    furnished.do(CloseSession(now_ms=0, by=ROOT, session=session))
    said = b"".join(furnished.machine.ledger.oldest(1 << 30, 1 << 40)[1]).decode()
    assert session not in said
    assert session_handle(session) in said
    assert not re.search(r"[0-9a-f]{16}\.[0-9a-f]{32}\.", said), "the hash of a token"
    assert TOKEN.hash not in said


def test_the_entries_are_a_chain_and_a_change_of_any_byte_breaks_it(furnished: Recorded) -> None:
    first, entries = furnished.machine.ledger.oldest(1 << 30, 1 << 40)
    assert first == 1
    assert chained(1, entries, NO_HASH)
    assert furnished.machine.ledger.head == entry_hash(entries[-1])
    for place in range(len(entries) - 1):
        changed = [*entries]
        changed[place] = changed[place].replace(b'"client":"', b'"client":"x')
        assert not chained(1, changed, NO_HASH)
        assert not chained(1, [*entries[:place], *entries[place + 1 :]], NO_HASH)


def test_a_token_that_is_exchanged_or_prolonged_under_its_id_is_a_change_that_the_ledger_tells(
    recorded: Recorded,
) -> None:
    number, soon = token_id(TOKEN), datetime(2026, 12, 1, tzinfo=UTC)
    exchanged = PrincipalToken(f"{number}.{'0' * 32}.{'1' * 64}")
    prolonged = PrincipalToken(exchanged.hash, soon)
    first, same, second, third = recorded.told(
        PUT, PUT, *(msgspec.structs.replace(PUT, tokens=[token]) for token in (exchanged, prolonged))
    )
    assert [first.outcome, same.outcome, second.outcome, third.outcome] == ["done", "unchanged", "done", "done"]
    assert first.after == second.before
    assert second.after == third.before
    fingerprint = sha256(exchanged.hash.encode()).hexdigest()[:16]
    told = {"id": number, "expires_ms": round(soon.timestamp() * 1000), "fingerprint": fingerprint}
    assert third.after is not None
    assert third.after["tokens"] == [told]


def test_the_bytes_of_entries_are_the_same_in_every_release() -> None:
    """Replicas of two releases apply the same commands: their chains must not part. What is told of a topic, a
    principal, a node or a grant may change from a feature level on, and then this head changes, too.
    """
    recorded = Recorded()
    topic_id = recorded.topic()
    token = PrincipalToken("0011223344556677." + "0" * 32 + "." + "0" * 64)
    recorded.do(msgspec.structs.replace(PUT, tokens=[token]))
    a, b = recorded.session("a"), recorded.session("b")
    recorded.do(acquire(a))
    recorded.do(acquire(b, "ExclusiveWithFencing", [1]))
    recorded.do(FenceInstalled(now_ms=0, group_id=group_id(topic_id, 1), order=3, log_end=17, previous=1))
    recorded.do(Own(now_ms=0, by=ROOT, session=a, group="g", claims=[Claim("t/0")]))
    recorded.do(CloseSession(now_ms=0, by=ROOT, session=a))
    noted = recorded.do(NoteIntent(now_ms=0, by=ROOT, act="records.trim", topic="t", partition=1, wanted={"before": 7}))
    recorded.do(NoteOutcome(now_ms=0, intent=noted.number, outcome="done", result={"log_start": 7}))
    for kind in (ChangeTopic, FenceTopic, AddNode, Reassign, RemoveNode, RaiseFeatureLevel, DeleteTopic):
        recorded.do(ADMINISTERED[kind])
    head = "caa52a6c48f8450d53482a7827cda9af41ad2356edfd12878e4671f31bb6871f"
    assert recorded.machine.ledger.next == 20
    assert recorded.machine.ledger.head == head


def test_entries_have_quota_bytes_only_of_topics_with_a_quota(recorded: Recorded) -> None:
    recorded.topic()
    [changed] = recorded.told(msgspec.structs.replace(ADMINISTERED[ChangeTopic], config={"quota_bytes": 7}))
    assert changed.before is not None
    assert changed.after is not None
    assert "quota_bytes" not in changed.before["config"]
    assert changed.after["config"]["quota_bytes"] == 7


def test_the_entries_of_a_takeover_have_the_ended_grant_the_caller_and_the_offset_of_the_new_one(
    recorded: Recorded,
) -> None:
    topic_id = recorded.topic()
    a, b = recorded.session("a"), recorded.session("b")
    [made] = recorded.told(acquire(a))
    assert (made.act, made.partitions, made.before) == ("grant", "0-1", {"epoch": 0})
    assert made.after is not None
    assert (made.after["epoch"], made.after["order"], made.after["session"]) == (1, 1, session_handle("a"))
    ended, taken = recorded.told(acquire(b, "ExclusiveWithFencing", [1]))
    assert (ended.act, ended.principal, ended.after) == ("grant.end", "root", {"order": 2, "reason": "evicted"})
    assert ended.before is not None
    assert ended.before["grant"] == made.after["grant"]
    assert taken.after is not None
    assert (taken.act, taken.partitions, taken.after["operation"]) == ("grant", "1", "eviction")
    place = {"order": taken.after["order"], "log_end": 17, "previous": 1}
    report = FenceInstalled(now_ms=0, group_id=group_id(topic_id, 1), **place)
    [installed] = recorded.told(report, report)
    assert (installed.act, installed.principal, installed.topic, installed.partitions) == (
        "slot.installed",
        None,
        "t",
        "1",
    ), "a repeated report is no news"
    assert installed.after == place


def test_an_expiry_has_no_principal_and_a_promotion_has_that_of_the_waiter(recorded: Recorded) -> None:
    recorded.topic()
    a, b = recorded.session("a"), recorded.session("b")
    recorded.do(acquire(a))
    waiter = msgspec.structs.replace(ROOT, request="r-2")
    recorded.do(msgspec.structs.replace(acquire(b, "WaitForExclusive"), by=waiter))
    recorded.do(RenewSessions(now_ms=9_000, deadlines_ms=[("b", 60_000)]))
    ended, promoted = recorded.told(Tick(now_ms=20_000))
    assert (ended.act, ended.principal, ended.after) == ("grant.end", None, {"order": 2, "reason": "expired"})
    assert promoted.after is not None
    assert (promoted.act, promoted.request, promoted.after["operation"]) == ("grant", "r-2", "promotion")


def test_entries_of_a_command_without_a_wall_clock_have_the_last_wall_clock(recorded: Recorded) -> None:
    """Nodes register, and enrol producers, without telling the time; sessions end in any command."""
    recorded.topic()
    recorded.do(acquire(recorded.session("a")))
    before = recorded.machine.ledger.next
    recorded.do(msgspec.structs.replace(node("n4"), now_ms=50_000), is_stamped=False)
    ended, registered = (entry for entry in recorded.entries if entry.number >= before)
    assert (ended.act, registered.act) == ("grant.end", "node.register")
    assert ended.at_ms == registered.at_ms == 1_000 + recorded.index - 1


def test_a_refused_acquire_and_a_command_without_effect_make_no_entry(recorded: Recorded) -> None:
    recorded.topic()
    a, b = recorded.session("a"), recorded.session("b")
    recorded.do(acquire(a))
    assert recorded.told(acquire(b)) == []
    assert recorded.told(acquire(a)) == [], "a retry"
    assert recorded.told(Release(now_ms=0, by=ROOT, session=b, grant_id="g-1-1")) == []
    assert recorded.told(CloseSession(now_ms=0, by=ROOT, session=b)) == []
    assert recorded.told(Disown(now_ms=0, by=ROOT, session=a, group="g", resources=["x"])) == []
    assert recorded.told(node("n1")) == []


def test_the_entry_of_own_has_the_owners_before_and_the_severed_session(recorded: Recorded) -> None:
    recorded.topic()
    a, b = recorded.session("a"), recorded.session("b")
    recorded.do(acquire(a))
    own = Own(now_ms=0, by=ROOT, session=a, group="g", claims=[Claim("t/0"), Claim("x")])
    [owned] = recorded.told(own)
    assert owned.before == {"owners": {"t/0": None, "x": None}}
    claim = Own(now_ms=0, by=ROOT, session=b, group="g", claims=[Claim("t/0", 0)])
    ended, severed = recorded.told(claim)
    assert (ended.act, ended.after) == ("grant.end", {"order": 2, "reason": "severed"})
    assert severed.before == {"owners": {"t/0": session_handle("a")}}
    assert severed.after is not None
    assert (severed.after["severed"], severed.after["freed"]) == ([session_handle("a")], ["g/x"])
    [gone] = recorded.told(CloseSession(now_ms=0, by=ROOT, session=b))
    assert (gone.act, gone.after) == ("session.end", {"freed": ["g/t/0"], "reason": "closed"})


def test_many_resources_are_recorded_in_several_entries(recorded: Recorded) -> None:
    a = recorded.session("a")
    claims = [Claim(f"r{number:04}") for number in range(2 * acts.RESOURCES_TOLD_MAX + 1)]
    entries = recorded.told(Own(now_ms=0, by=ROOT, session=a, group="g", claims=claims))
    assert [len((entry.after or {})["owned"]) for entry in entries] == [100, 100, 1]
    entries = recorded.told(CloseSession(now_ms=0, by=ROOT, session=a))
    assert [len((entry.after or {})["freed"]) for entry in entries] == [100, 100, 1]


def test_an_intent_gets_exactly_one_outcome_and_unknown_when_none_comes(recorded: Recorded) -> None:
    recorded.topic()
    trim = NoteIntent(now_ms=0, by=ROOT, act="records.trim", topic="t", partition=1, wanted={"before": 7})
    noted = recorded.do(trim)
    assert isinstance(noted, Noted)
    result = {"log_start": 7, "log_end": 9}
    [done] = recorded.told(NoteOutcome(now_ms=0, intent=noted.number, outcome="done", result=result))
    assert (done.act, done.outcome, done.intent, done.after, done.principal) == (
        "records.trim",
        "done",
        noted.number,
        result,
        "root",
    )
    assert recorded.told(NoteOutcome(now_ms=0, intent=noted.number, outcome="refused")) == [], "there is one already"
    lost = recorded.do(trim)
    assert recorded.machine.next_deadline_ms() == ledger.INTENT_TTL_MS, "so that a tick comes for it"
    assert recorded.told(Tick(now_ms=ledger.INTENT_TTL_MS - 1)) == []
    [unknown] = recorded.told(Tick(now_ms=ledger.INTENT_TTL_MS))
    assert (unknown.outcome, unknown.intent) == ("unknown", lost.number)
    late = NoteOutcome(now_ms=0, intent=lost.number, outcome="done")
    assert recorded.told(late) == [], "unknown stays unknown"


def test_open_intents_are_bounded(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "INTENTS_MAX", 2)
    intent = NoteIntent(now_ms=0, by=ROOT, act="leader.transfer")
    first = recorded.do(intent)
    recorded.do(intent)
    assert isinstance(recorded.do(intent), LedgerFull)
    recorded.do(NoteOutcome(now_ms=0, intent=first.number, outcome="done"))
    assert isinstance(recorded.do(intent), Noted)


def fill(recorded: Recorded, bound: str, monkeypatch: pytest.MonkeyPatch, reserve: int) -> None:
    """The outbox has room for one entry more, of ``reserve`` acts of administration besides."""
    waiting, entries = recorded.machine.ledger.waiting, recorded.machine.ledger.oldest(1 << 30, 1 << 40)[1]
    if bound == "entries":
        monkeypatch.setattr(ledger, "OUTBOX_ENTRIES_MAX", waiting + 1)
        monkeypatch.setattr(ledger, "RESERVE_ENTRIES", reserve)
    else:
        monkeypatch.setattr(ledger, "OUTBOX_BYTES_MAX", sum(map(len, entries)) + 1)
        monkeypatch.setattr(ledger, "RESERVE_BYTES", 900 * reserve)


@pytest.mark.parametrize("bound", ["entries", "bytes"])
def test_grants_go_on_beside_a_full_outbox_and_left_out_entries_are_counted_in_a_gap_entry(
    furnished: Recorded, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = furnished.session("a"), furnished.session("b")
    fill(furnished, bound, monkeypatch, reserve=0)
    assert acts_of(furnished.told(acquire(a, partitions=[0]))) == ["grant"], "one fits still"
    begins = furnished.index + 1
    for command in (
        acquire(b, "ExclusiveWithFencing", [0]),
        Own(now_ms=0, by=ROOT, session=b, group="g", claims=[Claim("x")]),
        InitProducer(now_ms=0, by=ROOT, name="other"),
        RenewSessions(now_ms=0, deadlines_ms=[(b, 10_000)]),
        ADMINISTERED[FenceTopic],
        ADMINISTERED[FenceProducer],
        CloseSession(now_ms=0, by=ROOT, session=a),
        Tick(now_ms=50_000),
    ):
        assert not isinstance(furnished.do(command), StockadeError), command
        assert furnished.told() == []
    assert not furnished.machine.slots.grants.by_id, "the grant that was taken over has ended with its session"
    furnished.do(LedgerCopied(now_ms=0, number=1))
    waits = [] if furnished.entries[-1].act == "ledger.gap" else furnished.told(LedgerCopied(now_ms=0, number=4))
    gap = (waits or furnished.entries)[-1]
    assert gap.act == "ledger.gap"
    assert gap.principal is None
    assert gap.after == {
        "left_out": 8,  # an end and a grant, an owner, two names, a fence, and an end with its session
        "first_index": begins,
        "last_index": begins + 7,
        "first_ms": 1_000 + begins,
        "last_ms": 1_000 + begins + 7,
    }
    furnished.do(LedgerCopied(now_ms=0, number=furnished.machine.ledger.next - 1))
    assert acts_of(furnished.told(acquire(furnished.session("c")))) == ["grant"], "and it goes on"


@pytest.mark.parametrize("bound", ["entries", "bytes"])
def test_the_part_of_the_room_that_is_used_is_1_when_entries_are_left_out_by_either_bound(
    furnished: Recorded, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, waiting = furnished.session("a"), furnished.machine.ledger
    fill(furnished, bound, monkeypatch, reserve=0)
    assert 0 < waiting.used < 1
    assert acts_of(furnished.told(acquire(a, partitions=[0]))) == ["grant"]
    assert waiting.used >= 1
    assert furnished.told(Own(now_ms=0, by=ROOT, session=a, group="g", claims=[Claim("x")])) == []
    furnished.do(LedgerCopied(now_ms=0, number=waiting.next - 1))
    furnished.do(LedgerCopied(now_ms=0, number=waiting.next - 1))
    assert waiting.used == 0


@pytest.mark.parametrize("bound", ["entries", "bytes"])
def test_acts_of_administration_use_the_reserve_and_are_then_refused_but_never_left_out(
    furnished: Recorded, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnished.do(acquire(furnished.session("a"), partitions=[0]))
    noted = furnished.do(NoteIntent(now_ms=0, by=ROOT, act="records.trim"))
    fill(furnished, bound, monkeypatch, reserve=2)
    put = ADMINISTERED[PutPrincipal]
    acts_told = acts_of(furnished.told(*[put] * 20))
    assert 3 <= len(acts_told) < 20
    others: dict[type[Command], Command] = {NoteIntent: NoteIntent(now_ms=0, by=ROOT, act="records.trim")}
    before = furnished.machine.capture().state
    for kind in sorted(acts.REFUSED_WHEN_FULL, key=lambda kind: kind.__name__):
        refusal = furnished.do((ADMINISTERED | others)[kind])
        assert isinstance(refusal, LedgerFull), kind
        assert (refusal.retriable, refusal.http_status) == (True, 503)
    restored = ControllerMachine()
    restored.restore(None, before, [])
    assert restored.ledger.next == furnished.machine.ledger.next, "a refusal is not recorded"
    [outcome] = furnished.told(NoteOutcome(now_ms=0, intent=noted.number, outcome="done"))
    assert outcome.intent == noted.number, "the outcome of what was recorded has its place"
    furnished.do(LedgerCopied(now_ms=0, number=furnished.machine.ledger.next - 1))
    assert not isinstance(furnished.do(topic("after")), StockadeError)
    assert "ledger.gap" not in acts_of(furnished.entries)


def test_copied_entries_are_dropped_once(furnished: Recorded) -> None:
    machine = furnished.machine
    end = machine.ledger.next
    furnished.do(LedgerCopied(now_ms=0, number=2))
    assert machine.ledger.oldest(1, 1)[0] == 3
    furnished.do(LedgerCopied(now_ms=0, number=1))
    assert machine.ledger.oldest(1, 1)[0] == 3, "a late report"
    assert isinstance(furnished.do(LedgerCopied(now_ms=0, number=end)), InvalidRequest), "the topic is of another time"
    assert machine.ledger.waiting == end - 3
    furnished.do(LedgerCopied(now_ms=0, number=end - 1))
    assert (machine.ledger.oldest(9, 9), machine.ledger.waiting) == ((end, []), 0)
    [entry] = furnished.told(topic("later"))
    assert (entry.number, entry.previous != NO_HASH) == (end, True)


def test_oldest_returns_at_least_one_entry(furnished: Recorded) -> None:
    assert len(furnished.machine.ledger.oldest(3, 1 << 30)[1]) == 3
    assert len(furnished.machine.ledger.oldest(3, 1)[1]) == 1


def test_a_detail_beyond_the_bound_is_recorded_as_its_hash(recorded: Recorded) -> None:
    rights = [f"read topic:{number:0400}" for number in range(200)]
    [entry] = recorded.told(msgspec.structs.replace(PUT, rights=rights))
    assert entry.after is not None
    assert set(entry.after) == {"sha256", "bytes"}
    assert entry.after["bytes"] > ledger.DETAIL_BYTES_MAX


def test_the_ledger_begins_with_an_entry_for_each_live_grant_and_none_from_before() -> None:
    recorded = Recorded(begins=False)
    recorded.topic()
    recorded.do(acquire(recorded.session("a")))
    assert recorded.entries == []
    assert recorded.do(NoteIntent(now_ms=0, by=ROOT, act="records.trim")) == Noted(0)
    begun, held = recorded.told(BeginLedger(now_ms=0), BeginLedger(now_ms=0))
    assert (begun.number, begun.act, begun.previous) == (1, "ledger.begin", NO_HASH)
    assert (held.act, held.partitions, held.principal) == ("grant.held", "0-1", None)


def test_the_entry_of_the_feature_level_is_made_also_when_grant_entries_fill_the_outbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "OUTBOX_ENTRIES_MAX", 2)
    recorded = Recorded(begins=False)
    recorded.topic()
    raised = ADMINISTERED[RaiseFeatureLevel]
    assert isinstance(recorded.do(msgspec.structs.replace(raised, supporting=["n1"])), FeatureUpdateFailed)
    assert recorded.entries == []
    recorded.do(acquire(recorded.session("a")))
    assert acts_of(recorded.told(raised)) == ["ledger.begin", "grant.held", "cluster.feature_level"]
    assert recorded.entries[-1].principal == "root"


def test_the_topic_of_the_ledger_is_the_controllers_own(recorded: Recorded) -> None:
    kept = KeepLedger(now_ms=0, config=TopicConfig(retention_ms=5), nodes=NODES)
    [entry] = recorded.told(kept)
    assert (entry.act, entry.topic, entry.principal) == ("ledger.keep", LEDGER_TOPIC, None)
    a = recorded.session("a")
    for command in (
        topic(LEDGER_TOPIC),
        msgspec.structs.replace(ADMINISTERED[ChangeTopic], name=LEDGER_TOPIC),
        msgspec.structs.replace(ADMINISTERED[DeleteTopic], name=LEDGER_TOPIC),
        msgspec.structs.replace(ADMINISTERED[FenceTopic], topic=LEDGER_TOPIC),
        acquire(a, name=LEDGER_TOPIC),
    ):
        assert isinstance(recorded.do(command), PermissionDenied), command
    [changed] = recorded.told(msgspec.structs.replace(kept, config=TopicConfig(retention_ms=9)))
    assert changed.before is not None
    assert changed.before["config"]["retention_ms"] == 5
    assert recorded.told(msgspec.structs.replace(kept, config=TopicConfig(retention_ms=9))) == []


def test_a_topic_of_that_name_that_is_older_than_the_ledger_is_not_taken_for_it() -> None:
    recorded = Recorded(begins=False)
    recorded.topic(LEDGER_TOPIC)
    recorded.do(BeginLedger(now_ms=0))
    answer = recorded.do(KeepLedger(now_ms=0, config=TopicConfig(), nodes=NODES))
    assert isinstance(answer, TopicAlreadyExists)


def test_a_level_with_a_ledger_is_refused_while_another_topic_has_its_name() -> None:
    recorded = Recorded(begins=False)
    recorded.topic(LEDGER_TOPIC)
    raised = RaiseFeatureLevel(now_ms=0, by=ROOT, level=2, supporting=["n1", "n2", "n3"])
    assert isinstance(recorded.do(raised), FeatureUpdateFailed)
    assert recorded.machine.assignment.feature_level == 1
    recorded.do(DeleteTopic(now_ms=0, by=ROOT, name=LEDGER_TOPIC))
    assert acts_of(recorded.told(raised)) == ["ledger.begin", "cluster.feature_level"]
