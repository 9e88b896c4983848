"""Who could write at an offset, by the ledger, compared with what real machines of controller and partition let in."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from stockade.cli.audit.writers import CouldWrite, who_could_write
from stockade.cluster.controller import ledger
from stockade.cluster.controller.commands import CreateTopic, GrantState, TopicChanged, TopicCreated
from stockade.cluster.controller.ledger import BeginLedger, LedgerCopied
from stockade.cluster.controller.topology.catalog import group_id
from stockade.partition.api.ledger import LedgerEntry
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import Append, Appended, Configure, Token, encode_command
from stockade.partition.config import PartitionConfig
from stockade.partition.records.batch import batch_of_value

from ...cluster.driver import NODES, House

BATCH = batch_of_value(b"x", now_ms=1, batch_bytes_max=1 << 20)


class Scene:
    """A topic of one partition with its ledger. ``wrote`` has the grant that stored each offset (None: no token).
    ``changes`` of the topic have been decided, and the partition has not come to them.
    """

    def __init__(self, *, require_fence: bool = False, begins: bool = True) -> None:
        self.house = House()
        if begins:
            self.begin()
        config = TopicConfig(require_fence=require_fence)
        made = self.house.do(
            CreateTopic(now_ms=0, name="t", partitions=1, replication_factor=1, config=config, nodes=NODES)
        )
        assert isinstance(made, TopicCreated)
        self.topic_id = made.topic_id
        self.group = group_id(made.topic_id, 0)
        wanted = PartitionConfig(made.topic_id, require_fence)
        self.house.partition(self.group).apply(0, 1, encode_command(Configure(1, wanted)))
        self.tokens: dict[str, Token] = {}
        self.wrote: list[str | None] = []
        self.changes: list[Configure] = []

    def begin(self) -> None:
        self.house.do(BeginLedger(now_ms=0))

    def change(self, **config: Any) -> None:
        """Decide it; ``configure`` makes the partition act by it."""
        changed = self.house.change("t", None, **config)
        assert isinstance(changed, TopicChanged)
        topic = self.house.machine.catalog.find("t", None).config
        wanted = PartitionConfig(self.topic_id, topic.require_fence, writer_group=topic.writer_group)
        self.changes.append(Configure(changed.config_order, wanted))

    def configure(self) -> None:
        """The partition comes to the oldest change that it has not come to."""
        self.house.partition(self.group).apply(0, 1, encode_command(self.changes.pop(0)))

    def open(self, *sessions: str) -> None:
        for session in sessions:
            self.house.open(session)

    def acquire(self, session: str, mode: str = "Exclusive") -> str | None:
        """The grant, if it was given."""
        answer = self.house.acquire(session, mode=mode)
        if not isinstance(answer, GrantState):
            return None
        self.tokens[answer.grant_id] = Token(answer.grant_id, answer.epochs[0], session)
        return answer.grant_id

    def write(self, grant: str | None) -> bool:
        """Whether the partition let it in."""
        token = None if grant is None else self.tokens[grant]
        append = Append(BATCH.message, 1, BATCH.crc, 1, 1, token=token)
        stored = isinstance(self.house.partition(self.group).apply(0, 1, encode_command(append)), Appended)
        if stored:
            self.wrote.append(grant)
        return stored

    @property
    def entries(self) -> list[LedgerEntry]:
        _, waiting = self.house.machine.ledger.oldest(1 << 30, 1 << 40)
        return [msgspec.json.decode(entry, type=LedgerEntry) for entry in waiting]

    def ask(self, offset: int, entries: Sequence[LedgerEntry] | None = None) -> CouldWrite:
        told = self.entries if entries is None else entries
        mine = [entry for entry in told if entry.topic == "t"]
        gaps = [entry for entry in told if entry.act == "ledger.gap"]
        return who_could_write(mine, "t", self.topic_id, 0, offset, first=told[0].number, gaps=gaps)


def names(answer: CouldWrite) -> list[str]:
    return [each.grant for each in answer.writers]


def test_a_takeover_while_a_zombie_writes_on_is_answered_to_the_offset() -> None:
    scene = Scene()
    scene.open("a", "b")
    a = scene.acquire("a")
    scene.house.settle()
    assert a is not None
    for _ in range(3):
        assert scene.write(a)
    b = scene.acquire("b", "ExclusiveWithFencing")
    assert b is not None
    assert scene.write(a), "the decision has not come to the partition yet: the old holder writes on"
    assert not scene.write(b)
    scene.house.settle()
    assert not scene.write(a), "a zombie now"
    assert scene.write(b)
    assert not scene.write(a)
    for offset in range(4):
        answer = scene.ask(offset)
        assert (answer.who, names(answer), answer.from_offset, answer.until_offset) == ("grants", [a], 0, 4)
        assert (answer.writers[0].reason, answer.writers[0].end_entry is not None) == ("evicted", True)
        assert answer.writers[0].client_id == "c-a"
    answer = scene.ask(4)
    assert (answer.who, names(answer), answer.from_offset, answer.until_offset) == ("grants", [b], 4, None)
    assert answer.writers[0].until_ms is None
    numbers = {entry.number: entry.act for entry in scene.entries}
    assert {numbers[number] for number in scene.ask(0).proof} == {"grant", "grant.end", "slot.installed"}


def test_a_slot_that_is_free_lets_every_caller_in_unless_the_topic_requires_a_fence() -> None:
    for require_fence, who in ((False, "any"), (True, "none")):
        scene = Scene(require_fence=require_fence)
        scene.open("a")
        assert scene.write(None) is not require_fence
        assert scene.ask(0).who == who, "before any grant"
        a = scene.acquire("a")
        scene.house.settle()
        assert scene.write(a)
        scene.house.release("a", str(a))
        scene.house.settle()
        after = scene.ask(len(scene.wrote))
        assert (after.who, after.from_offset) == (who, len(scene.wrote))
        assert "the slot was free" in after.why


def test_a_shared_slot_keeps_no_caller_out_and_its_holders_are_named() -> None:
    scene = Scene()
    scene.open("a", "b")
    both = [scene.acquire("a", "Shared"), scene.acquire("b", "Shared")]
    scene.house.settle()
    assert scene.write(None)
    answer = scene.ask(0)
    assert (answer.who, names(answer)) == ("any", both)


def test_an_answer_says_that_a_grant_is_older_than_the_ledger() -> None:
    scene = Scene(begins=False)
    scene.open("a", "b")
    a = scene.acquire("a")
    scene.house.settle()
    scene.begin()
    scene.write(a)
    b = scene.acquire("b", "ExclusiveWithFencing")
    scene.house.settle()
    held = scene.ask(0)
    assert (held.who, names(held), held.from_offset, held.until_offset) == ("unknown", [], None, 1)
    assert [each.grant for each in held.possible] == [a]
    assert "older than the ledger" in held.why
    assert (scene.ask(1).who, names(scene.ask(1))) == ("grants", [b]), "from the first report on it is exact"
    other = Scene(begins=False)
    other.begin()
    other.open("a")
    other.acquire("a")
    other.house.settle()
    assert other.ask(0).who == "grants"
    kept = [entry for entry in scene.entries if entry.act == "slot.installed"]
    assert scene.ask(1, kept).who == "unknown", "the grant's entry has passed its retention"


@pytest.mark.parametrize("require_fence", [False, True])
def test_a_slot_that_may_have_been_free_let_any_caller_in_only_if_no_token_was_required(*, require_fence: bool) -> None:
    scene = Scene(require_fence=require_fence)
    scene.open("a", "b")
    a = scene.acquire("a")
    scene.house.settle()
    assert scene.write(a)
    scene.house.release("a", str(a))
    assert scene.house.tell(next(iter(scene.house.machine.work()))), "a report that is lost"
    assert scene.write(None) is not require_fence
    assert scene.acquire("b")
    scene.house.settle()
    answer = scene.ask(0)
    assert (answer.who, names(answer)) == ("grants", [a])
    assert answer.possibly_any is not require_fence


@pytest.mark.parametrize("require_fence", [False, True])
def test_the_holder_at_the_ledgers_beginning_is_not_named_for_offsets_that_others_wrote(*, require_fence: bool) -> None:
    scene = Scene(begins=False, require_fence=require_fence)
    scene.open("a", "b")
    scene.write(None)
    a = scene.acquire("a")
    scene.house.settle()
    assert scene.write(a)
    b = scene.acquire("b", "ExclusiveWithFencing")
    scene.house.settle()
    scene.begin()
    assert scene.write(b)
    assert scene.ask(0).possibly_any, "what the topic required then is not in the ledger yet"
    scene.change(retention_ms=99)
    for offset in range(len(scene.wrote)):
        answer = scene.ask(offset)
        assert (answer.who, [each.grant for each in answer.possible]) == ("unknown", [b])
        assert answer.possibly_any is not require_fence
        assert "since an offset that is not known" in answer.why


def test_a_takeover_under_way_when_the_ledger_began_names_no_writer_for_offsets_before_its_fence() -> None:
    scene = Scene(begins=False, require_fence=True)
    scene.open("a", "b")
    a = scene.acquire("a")
    scene.house.settle()
    b = scene.acquire("b", "ExclusiveWithFencing")
    scene.begin()
    assert scene.write(a), "the fence has not come to the partition"
    scene.house.settle()
    assert scene.write(b)
    before, after = scene.ask(0), scene.ask(1)
    assert (before.who, before.possible) == ("unknown", []), "it is known that the new holder could not"
    assert (after.who, names(after)) == ("grants", [b])


def test_after_a_lost_report_of_its_end_the_holder_at_the_ledgers_beginning_is_only_possible() -> None:
    scene = Scene(begins=False)
    scene.open("a")
    a = scene.acquire("a")
    scene.house.settle()
    scene.begin()
    scene.house.release("a", str(a))
    for lost in scene.house.machine.work():
        scene.house.tell(lost)
    assert scene.write(None)
    answer = scene.ask(0)
    assert (answer.who, names(answer), [each.grant for each in answer.possible]) == ("unknown", [], [a])
    assert answer.possibly_any


def test_a_report_from_before_the_ledgers_beginning_that_comes_late_proves_no_free_slot() -> None:
    scene = Scene(begins=False, require_fence=True)
    scene.open("a", "b")
    a = scene.acquire("a")
    late = next(iter(scene.house.machine.work()))
    report = scene.house.tell(late)
    assert report is not None
    assert scene.write(a)
    b = scene.acquire("b", "ExclusiveWithFencing")
    scene.begin()
    scene.house.do(report)
    answer = scene.ask(0)
    assert (answer.who, [each.grant for each in answer.possible]) == ("unknown", [b])


def test_sharers_that_left_before_the_ledger_began_may_have_written_too() -> None:
    scene = Scene(begins=False, require_fence=True)
    scene.open("a", "b")
    a, b = scene.acquire("a", "Shared"), scene.acquire("b", "Shared")
    late = next(iter(scene.house.machine.work()))
    report = scene.house.tell(late)
    assert report is not None
    assert scene.write(a)
    scene.house.release("a", str(a))
    scene.begin()
    scene.change(retention_ms=99)
    scene.house.do(report)
    answer = scene.ask(0)
    assert (answer.who, names(answer), [each.grant for each in answer.possible]) == ("unknown", [], [b])


def test_an_offset_from_before_the_topic_required_a_fence_had_every_caller() -> None:
    scene = Scene()
    assert scene.write(None)
    scene.change(require_fence=True)
    scene.change(retention_ms=99)
    answer = scene.ask(0)
    assert answer.who == "any"
    assert "at which offset that changed, the ledger does not tell" in answer.why
    change = next(entry.number for entry in scene.entries if entry.act == "topic.change")
    assert change in answer.proof


@pytest.mark.parametrize("mode", ["Exclusive", "Shared"])
def test_a_slot_whose_topic_ceased_to_require_a_fence_had_every_caller(mode: str) -> None:
    """After the place that counts: a free slot there, and one that others share."""
    scene = Scene(require_fence=True)
    scene.open("a")
    a = scene.acquire("a", mode)
    if mode == "Exclusive":
        scene.house.settle()
        scene.house.release("a", str(a))
    scene.house.settle()
    assert scene.ask(0).who == ("none" if mode == "Exclusive" else "grants")
    scene.change(require_fence=False)
    assert not scene.write(None)
    scene.configure()
    assert scene.write(None)
    answer = scene.ask(0)
    assert answer.who == "any"
    assert "while the topic required no fencing token" in answer.why


def test_a_change_decided_before_a_fence_and_applied_after_it_is_not_taken_for_done() -> None:
    """Also when further changes hide it, and the fence was reported later."""
    scene = Scene()
    scene.open("a")
    a = scene.acquire("a")
    scene.house.settle()
    scene.house.release("a", str(a))
    report = scene.house.tell(next(iter(scene.house.machine.work())))
    scene.change(require_fence=True)
    scene.change(retention_ms=99)
    scene.change(retention_ms=98)
    assert report is not None
    scene.house.do(report)
    assert scene.write(None)
    assert scene.ask(0).who == "any"


def test_a_change_that_was_decided_after_the_end_of_the_offsets_was_reported_is_none_of_theirs() -> None:
    scene = Scene(require_fence=True)
    scene.open("a")
    a = scene.acquire("a", "Shared")
    scene.house.settle()
    assert scene.write(a)
    scene.house.release("a", str(a))
    scene.house.settle()
    scene.change(require_fence=False)
    assert (scene.ask(0).who, names(scene.ask(0))) == ("grants", [a])
    assert scene.ask(1).who == "any"


def test_a_configuration_that_the_ledger_does_not_tell_is_said_to_be_unknown() -> None:
    scene = Scene(begins=False, require_fence=True)
    scene.open("a")
    scene.begin()
    a = scene.acquire("a")
    scene.house.settle()
    scene.house.release("a", str(a))
    scene.house.settle()
    answer = scene.ask(0)
    assert answer.who == "any"
    assert "which the ledger does not tell" in answer.why


def test_a_group_that_owned_the_partition_is_told_only_while_no_change_made_it_another() -> None:
    scene = Scene(require_fence=True)
    scene.change(writer_group="g")
    assert scene.ask(0).writer_group is None
    kept = [entry for entry in scene.entries if entry.act != "topic.create"]
    same = [msgspec.structs.replace(entry, before=entry.after) if entry.before else entry for entry in kept]
    assert scene.ask(0, same).writer_group == "g"


def test_an_install_without_an_offset_is_no_answer() -> None:
    scene = Scene()
    scene.open("a")
    scene.acquire("a")
    scene.house.settle()
    lost = [
        msgspec.structs.replace(entry, after={"order": 1, "log_end": None}) if entry.act == "slot.installed" else entry
        for entry in scene.entries
    ]
    assert scene.ask(0, lost).who == "unknown"


@pytest.mark.parametrize("seed", range(60))
def test_the_writer_of_a_record_is_always_among_its_possible_writers(seed: int) -> None:
    """Takeovers, releases and expiries at any moment; installs late, lost in part, or repeated; and zombies."""
    chance = random.Random(seed)
    scene = Scene(require_fence=bool(seed % 2))
    house = scene.house
    sessions = [f"s{number}" for number in range(4)]
    scene.open(*sessions)
    late: list[Any] = []
    for _ in range(120):
        match chance.randrange(8):
            case 0 | 1:
                scene.acquire(chance.choice(sessions), chance.choice(["Exclusive", "ExclusiveWithFencing", "Shared"]))
            case 2:
                live = list(house.machine.slots.grants.by_id.values())
                if live:
                    ended = chance.choice(live)
                    house.release(ended.session, ended.grant_id)
            case 3 | 4:
                late += list(house.machine.work())[:1]
            case 5:
                if late and (report := house.tell(late.pop(chance.randrange(len(late))))) and chance.random() < 0.7:
                    house.do(report)
            case _:
                scene.write(chance.choice([None, *scene.tokens]))
    house.settle()
    for offset, grant in enumerate(scene.wrote):
        answer = scene.ask(offset)
        assert answer.who != "unknown"
        could = names(answer) + [each.grant for each in answer.possible]
        assert answer.who == "any" or answer.possibly_any or grant in could, (offset, grant, answer)


@pytest.mark.parametrize("seed", range(60))
def test_the_writer_is_among_the_possible_ones_also_where_the_rules_change_and_the_ledger_begins_late(
    seed: int,
) -> None:
    """The topic requires a fence now and then, which the partition hears late; half of the ledgers begin in between."""
    chance = random.Random(seed)
    begins = 0 if seed % 2 else chance.randrange(60)
    scene = Scene(require_fence=chance.random() < 0.5, begins=not begins)
    house = scene.house
    sessions = [f"s{number}" for number in range(3)]
    scene.open(*sessions)
    late: list[Any] = []
    for step in range(120):
        if step == begins:
            scene.begin()
        match chance.randrange(10):
            case 0:
                scene.acquire(chance.choice(sessions), chance.choice(["Exclusive", "ExclusiveWithFencing", "Shared"]))
            case 1 | 2:
                for live in list(house.machine.slots.grants.by_id.values())[:1]:
                    house.release(live.session, live.grant_id)
            case 3:
                late += list(house.machine.work())[:1]
            case 4:
                if late and (report := house.tell(late.pop(chance.randrange(len(late))))) and chance.random() < 0.7:
                    house.do(report)
            case 5 if chance.random() < 0.3:
                scene.change(require_fence=chance.random() < 0.6, retention_ms=step + 1)
            case 6 if scene.changes:
                scene.configure()
            case _:
                scene.write(chance.choice([None, *scene.tokens]))
    for offset, grant in enumerate(scene.wrote):
        answer = scene.ask(offset)
        could = names(answer) + [each.grant for each in answer.possible]
        is_told = answer.who == "any" or answer.possibly_any or grant in could
        assert is_told or (begins and answer.who == "unknown"), (offset, grant, answer)


@pytest.mark.parametrize("seed", range(60))
def test_an_answer_from_a_ledger_with_gaps_is_right_or_unknown(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic takes nothing now and then, and the outbox has little room: some grants, ends and installs are lost."""
    chance = random.Random(seed)
    scene = Scene(require_fence=True)
    monkeypatch.setattr(ledger, "OUTBOX_ENTRIES_MAX", 3)
    kept = scene.entries
    sessions = [f"s{number}" for number in range(3)]
    scene.open(*sessions)

    def copy() -> None:
        kept.extend(entry for entry in scene.entries if entry.number > kept[-1].number)
        scene.house.do(LedgerCopied(now_ms=0, number=kept[-1].number))

    for step in range(150):
        match chance.randrange(5):
            case 0:
                scene.acquire(chance.choice(sessions), chance.choice(["Exclusive", "ExclusiveWithFencing", "Shared"]))
            case 1:
                scene.house.settle()
            case 2:
                for live in list(scene.house.machine.slots.grants.by_id.values()):
                    scene.house.release(live.session, live.grant_id)
            case _:
                for token in scene.tokens:
                    scene.write(token)
        if step % 60 < 30:
            copy()
    scene.house.settle()
    copy()
    copy()
    assert any(entry.act == "ledger.gap" for entry in kept)
    for offset, writer in enumerate(scene.wrote):
        answer = scene.ask(offset, kept)
        could = names(answer) + [each.grant for each in answer.possible]
        assert answer.who == "unknown" or answer.possibly_any or writer in could, (offset, writer, answer)
        assert (
            answer.who == "unknown" or answer.possible or len(names(answer)) == 1 or answer.writers[0].mode == "Shared"
        )


def test_the_first_takeover_after_a_gap_ends_the_unknown_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.open("a", "b", "c")
    writes: list[str] = []

    def take(session: str) -> None:
        grant = scene.acquire(session, "ExclusiveWithFencing")
        assert grant is not None
        scene.house.settle()
        assert scene.write(grant)
        writes.append(grant)

    take("a")
    kept = scene.entries
    with monkeypatch.context() as full:
        full.setattr(ledger, "OUTBOX_ENTRIES_MAX", 1)
        take("b")
        take("a")
    scene.house.do(LedgerCopied(now_ms=0, number=kept[-1].number))
    take("c")
    kept += scene.entries
    answers = [scene.ask(offset, kept) for offset in range(4)]
    assert [answer.who for answer in answers] == ["unknown", "unknown", "unknown", "grants"]
    assert names(answers[3]) == writes[3:]
    assert "left out 6 entries" in answers[0].why
    gap = next(entry for entry in kept if entry.act == "ledger.gap")
    assert gap.number in answers[0].proof


@pytest.mark.parametrize("seed", range(20))
def test_while_no_report_is_lost_the_answer_is_exact(seed: int) -> None:
    chance = random.Random(seed)
    scene = Scene(require_fence=True)
    sessions = [f"s{number}" for number in range(3)]
    scene.open(*sessions)
    for _ in range(60):
        match chance.randrange(4):
            case 0:
                scene.acquire(chance.choice(sessions), "ExclusiveWithFencing")
            case 1:
                scene.house.settle()
            case _:
                for grant in scene.tokens:
                    scene.write(grant)
    scene.house.settle()
    assert scene.wrote
    for offset, writer in enumerate(scene.wrote):
        answer = scene.ask(offset)
        assert (answer.who, names(answer), answer.possible) == ("grants", [writer], [])
        assert answer.from_offset is not None
        assert answer.from_offset <= offset < (answer.until_offset or len(scene.wrote))
