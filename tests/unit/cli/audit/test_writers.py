"""Who could write at an offset, by the ledger, compared with what real machines of controller and partition let in."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from stockade.cli.audit.writers import CouldWrite, who_could_write
from stockade.cluster.controller import ledger
from stockade.cluster.controller.commands import CreateTopic, GrantState, TopicCreated
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
    """A topic of one partition with its ledger. ``wrote`` has the grant that stored each offset (None: no token)."""

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

    def begin(self) -> None:
        self.house.do(BeginLedger(now_ms=0))

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


def test_what_is_older_than_the_ledger_is_said_to_be() -> None:
    scene = Scene(begins=False)
    scene.open("a", "b")
    a = scene.acquire("a")
    scene.house.settle()
    scene.begin()
    held = scene.ask(0)
    assert (held.who, names(held), held.from_offset) == ("grants", [a], None)
    scene.write(a)
    b = scene.acquire("b", "ExclusiveWithFencing")
    scene.house.settle()
    assert names(scene.ask(0)) == [a]
    assert names(scene.ask(1)) == [b]
    other = Scene(begins=False)
    other.begin()
    other.open("a")
    other.acquire("a")
    other.house.settle()
    assert other.ask(0).who == "grants"
    kept = [entry for entry in scene.entries if entry.act == "slot.installed"]
    assert scene.ask(1, kept).who == "unknown", "the grant's entry has passed its retention"


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
def test_who_wrote_is_always_among_those_who_could(seed: int) -> None:
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
def test_where_entries_were_left_out_an_answer_is_right_or_unknown(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_first_takeover_after_a_gap_ends_what_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
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
