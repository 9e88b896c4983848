"""Which objects a partition lists, and which files of its folder are of no use for ever."""

import random

import msgspec
import pytest

from stockade.partition.commands import (
    AddTierObject,
    BeginTier,
    Retain,
    Tiered,
    TierObject,
    encode_command,
    encode_result,
)
from stockade.partition.log.image import ImageDamaged
from stockade.partition.state import snapshot
from stockade.partition.state.machine import PartitionMachine
from stockade.partition.state.tier import Tier, TierSnapshot, dead, faults, name_of, parsed

from ..driver import Driver

FOLDER = "812-t/0-abc"
SEEDS, STEPS = 150, 120


def item(first: int, end: int, term: int = 1, nonce: str = "n") -> TierObject:
    return TierObject(first, end, term, nonce, 10, b"s" * 32, 100, 1000 + end, 2000 + end)


def tier_of(*objects: TierObject, log_end: int = 1000) -> Tier:
    tier = Tier()
    tier.begin(BeginTier(FOLDER))
    for each in objects:
        assert tier.add(AddTierObject(FOLDER, each), each.term, 0, log_end).is_taken
    return tier


@pytest.mark.parametrize(
    ("first", "end", "term", "log_start", "log_end", "is_taken"),
    [
        (10, 20, 1, 0, 30, True),
        (11, 20, 1, 0, 30, False),  # a gap
        (9, 20, 1, 0, 30, False),  # an overlap
        (10, 31, 1, 0, 30, False),  # beyond the log
        (10, 10, 1, 0, 30, False),  # nothing
        (10, 20, 2, 0, 30, False),  # uploaded in another term than that of the entry
        (10, 20, 1, 20, 30, False),  # trimmed already
        (18, 25, 1, 20, 30, True),  # the log was trimmed beyond the last object
        (21, 25, 1, 20, 30, False),  # and then a gap
        (9, 25, 1, 20, 30, False),
    ],
)
def test_an_object_is_listed_only_where_the_last_one_ended(
    first: int, end: int, term: int, log_start: int, log_end: int, is_taken: bool
) -> None:
    tier = tier_of(item(0, 10))
    tier.trim(log_start)
    before = list(tier.objects)
    answer = tier.add(AddTierObject(FOLDER, item(first, end, 1)), term, log_start, log_end)
    assert answer == Tiered(end if is_taken else 10, FOLDER, is_taken)
    assert tier.objects == ([*before, item(first, end)] if is_taken else before)
    assert faults(tier, log_start) == []


def test_in_the_log_the_folder_is_named_home_as_it_always_was() -> None:
    assert msgspec.msgpack.decode(encode_command(BeginTier("a"))) == {"type": "begin_tier", "home": "a"}
    added = msgspec.msgpack.decode(encode_command(AddTierObject("a", item(0, 10))))
    assert (added["type"], added["home"]) == ("add_tier_object", "a")
    assert msgspec.msgpack.decode(encode_result(Tiered(1, "a", True)))["home"] == "a"


def test_a_folder_is_chosen_once_and_no_other_is_used() -> None:
    tier = Tier()
    assert not tier.add(AddTierObject("", item(0, 10)), 1, 0, 100).is_taken
    assert tier.begin(BeginTier("a")) == Tiered(0, "a", True)
    assert tier.begin(BeginTier("b")) == Tiered(0, "a", False)
    assert not tier.add(AddTierObject("b", item(0, 10)), 1, 0, 100).is_taken


def test_a_full_list_takes_no_more_until_the_retention_makes_room() -> None:
    tier = Tier(objects_max=2)
    tier.begin(BeginTier(FOLDER))
    for first in (0, 10, 20):
        taken = tier.add(AddTierObject(FOLDER, item(first, first + 10)), 1, 0, 100).is_taken
        assert taken == (first < 20)
    assert tier.is_full
    tier.trim(10)
    assert tier.add(AddTierObject(FOLDER, item(20, 30)), 1, 10, 100).is_taken


def test_a_checkpoint_keeps_the_list_and_one_of_before_has_none() -> None:
    driver = Driver()
    for _ in range(40):
        driver.append()
    driver.apply(BeginTier(FOLDER))
    driver.apply(AddTierObject(FOLDER, item(0, 10)))
    driver.apply(AddTierObject(FOLDER, item(10, 30)))
    driver.apply(Retain(12, 0))
    state = snapshot.decode(snapshot.encode(driver.machine))
    again = PartitionMachine(driver.config, driver.machine.log)
    snapshot.put_back(again, state)
    assert (again.tier.folder, again.tier.end, again.tier.objects) == (FOLDER, 30, [item(10, 30)])
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(state))
    del old["tier"]
    snapshot.put_back(again, msgspec.convert(old, snapshot.State, strict=False))
    assert (again.tier.folder, again.tier.end, again.tier.objects) == ("", 0, [])


def test_a_list_with_a_hole_is_a_damaged_checkpoint() -> None:
    driver = Driver()
    driver.append()
    driver.machine.tier.folder = FOLDER
    driver.machine.tier.objects = [item(0, 10), item(11, 20)]
    driver.machine.tier.end = 20
    with pytest.raises(ImageDamaged, match="end at 10 and go on at 11"):
        snapshot.put_back(driver.machine, snapshot.decode(snapshot.encode(driver.machine)))


def test_a_name_says_offsets_and_term_and_other_files_are_left_alone() -> None:
    name = name_of(item(7, 1 << 40, 0xAB))
    what = parsed(name)
    assert what is not None
    assert (what.first, what.end, what.term) == (7, 1 << 40, 0xAB)
    assert parsed(name + ".new") == what, "it is being written, or its writer died"
    for other in ("readme.txt", "1-2-3.arrow.zst", "a-b-c-d.arrow.zst", name + ".new.new", name + ".old"):
        assert parsed(other) is None
    assert dead(["readme.txt"], tier_of().snapshot(0, 9)) == []


@pytest.mark.parametrize(
    ("orphan", "is_dead"),
    [
        (item(20, 30, 4), True),  # of a former term
        (item(20, 30, 5), False),  # of this term: its upload may be under way
        (item(20, 30, 6), False),  # of a later term, whose leader this node does not know yet
        (item(10, 30, 6), True),  # it overlaps what is listed
        (item(0, 5, 6), True),  # and lies below the log's start
    ],
)
def test_a_sweep_removes_only_objects_that_can_never_be_listed(orphan: TierObject, is_dead: bool) -> None:
    tier = tier_of(item(0, 10), item(10, 20, 2))
    tier.trim(5)
    names = [name_of(each) for each in (*tier.objects, orphan)]
    assert dead(names, tier.snapshot(5, 5)) == ([name_of(orphan)] if is_dead else [])
    names[-1] += ".new"
    assert dead(names, tier.snapshot(5, 5)) == (names[-1:] if is_dead else []), "what is being written goes with it"


def test_a_sweep_removes_the_scratch_file_of_a_listed_object_and_keeps_the_object() -> None:
    tier = tier_of(item(0, 10))
    whole = name_of(tier.objects[0])
    assert dead([whole, whole + ".new"], tier.snapshot(0, 1)) == [whole + ".new"]


class Leader:
    """A node that leads, or still believes that it does. ``known``: how much of the log it has applied."""

    def __init__(self, term: int) -> None:
        self.term = term
        self.known = 0
        self.uploaded: list[TierObject] = []
        self.swept_by: TierSnapshot | None = None
        self.listing: list[str] = []


class Leaders:
    """Leaders that come and go in the middle of uploads and sweeps, over one log and one store, as a seed says.

    ``log``: entries (term, what), the first ``committed`` of which are final. Every leader acts on what it has applied,
    however long ago; deposed ones go on uploading and sweeping. A new leader keeps as much of the rest as it happens to
    have, and a node that led before may propose what it uploaded then.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log: list[tuple[int, object]] = []
        self.committed = 0
        self.store: set[str] = set()
        self.leaders: list[Leader] = []
        self.elect()
        self.log += [(1, BeginTier(FOLDER)), (1, 9)]
        self.commit()

    @property
    def now(self) -> Leader:
        return self.leaders[-1]

    def some(self) -> Leader:
        """A leader of late, mostly the present one, that may have learned more of what is committed."""
        leader = self.rng.choice([self.now, self.now, *self.leaders[-3:]])
        if self.rng.random() < 0.7:
            leader.known = self.rng.randint(leader.known, self.committed)
        return leader

    def state(self, index: int) -> tuple[Tier, int, int]:
        """What a replica holds that has applied so many entries: tier, log_start, log_end."""
        tier, start, end = Tier(), 0, 0
        for term, what in self.log[:index]:
            match what:
                case int():
                    end += what
                case Retain(before=before):
                    start = max(start, min(before, end))
                    tier.trim(start)
                case BeginTier():
                    tier.begin(what)
                case AddTierObject():
                    tier.add(what, term, start, end)
                case _:
                    raise AssertionError(what)
        return tier, start, end

    def elect(self) -> None:
        del self.log[self.committed + self.rng.randint(0, 3) :]
        self.leaders.append(Leader(len(self.leaders) + 1))
        self.log.append((self.now.term, 0))

    def append(self) -> None:
        self.log.append((self.now.term, self.rng.randint(1, 9)))

    def trim(self) -> None:
        _, start, end = self.state(self.committed)
        self.log.append((self.now.term, Retain(min(end, start + self.rng.randint(1, 12)), 0)))

    def commit(self) -> None:
        """As Raft: entries of former terms are committed with one of the leader's own."""
        index = min(self.committed + self.rng.randint(1, 9), len(self.log))
        if self.log[index - 1][0] == self.now.term:
            self.committed = index

    def upload(self) -> None:
        leader = self.some()
        tier, start, end = self.state(leader.known)
        first = max(tier.end, start)
        if first < end:
            nonce = f"{self.rng.getrandbits(32):x}"
            leader.uploaded.append(item(first, min(first + self.rng.randint(1, 9), end), leader.term, nonce))
            self.store.add(name_of(leader.uploaded[-1]))

    def propose(self) -> None:
        uploaded = self.some().uploaded
        if uploaded:
            self.log.append((self.now.term, AddTierObject(FOLDER, self.rng.choice(uploaded[-2:]))))

    def prove(self) -> None:
        """After a read barrier: an entry of its term is applied."""
        leader = self.some()
        if any(term == leader.term for term, _ in self.log[: leader.known]):
            tier, start, _ = self.state(leader.known)
            leader.swept_by = tier.snapshot(start, leader.term)
            leader.listing = []

    def look(self) -> None:
        """The listing comes later than what it is compared with, and before the removal."""
        leader = self.some()
        if leader.swept_by is not None:
            leader.listing = sorted(self.store)

    def sweep(self) -> None:
        leader = self.some()
        if leader.swept_by is not None:
            self.store.difference_update(dead(leader.listing, leader.swept_by))

    def check(self) -> None:
        for index in (self.committed, len(self.log)):
            tier, start, _ = self.state(index)
            assert {name_of(each) for each in tier.objects} <= self.store, "an object is gone that is listed"
            assert faults(tier, start) == []

    def play(self, steps: int) -> int:
        """Answers how many objects were listed in the end."""
        acts = (self.append, self.commit, self.upload, self.propose, self.prove, self.look, self.sweep)
        for _ in range(steps):
            self.rng.choices((*acts, self.elect, self.trim), (3, 5, 3, 3, 2, 2, 2, 1, 0.3))[0]()
            self.check()
        self.elect()
        self.committed = self.now.known = len(self.log)
        tier, start, _ = self.state(self.committed)
        self.store.difference_update(dead(sorted(self.store), tier.snapshot(start, self.now.term)))
        assert self.store == {name_of(each) for each in tier.objects}, "a leader of a later term leaves an orphan"
        return len(tier.objects)


def test_no_sweep_removes_a_listed_object_and_the_last_one_leaves_no_orphan() -> None:
    listed = 0
    for seed in range(SEEDS):
        try:
            listed += Leaders(seed).play(STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert listed > SEEDS, "the schedules list next to nothing"


def test_the_commands_are_as_large_as_the_bound_of_a_checkpoint_says() -> None:
    size = len(encode_command(AddTierObject(FOLDER, item(1 << 40, 1 << 41, 1 << 20, "f" * 16))))
    assert size < 200
    assert len(msgspec.msgpack.encode(item(1 << 40, 1 << 41, 1 << 20, "f" * 16))) < 130
