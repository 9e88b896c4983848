"""Owned resources (SEMANTICS 6.4). Numbers in names are those of SEMANTICS 11."""

from pathlib import Path

import pytest

from stockade.cluster.controller.commands import (
    FenceRef,
    ForgetResources,
    Freed,
    Own,
    Owned,
    RaiseFeatureLevel,
    ReaderRef,
    Verdict,
    encode_command,
)
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.ownership.reader_fences import ReaderFenceInstalls
from stockade.cluster.controller.ownership.resources import CLAIMS_MAX, GENERATION_MAX, RESOURCE_TTL_MS, Resource, judge
from stockade.cluster.controller.ownership.slots import FenceInstalls
from stockade.cluster.controller.topology.catalog import group_id
from stockade.cluster.features import AWAITED_OWNERS
from stockade.cluster.model import Claim
from stockade.partition import commands
from stockade.partition.errors import (
    GenerationFenced,
    InvalidRequest,
    NotOwner,
    StockadeError,
    ThrottlingQuotaExceeded,
    UnknownSession,
)

from ...driver import TTL_MS, House, house


def owned(driver: House, session: str, resource: str, generation: int | None = None, **more: str) -> tuple[int, int]:
    """Generation and fence_epoch of a claim that is granted."""
    answer = driver.own(session, (resource, generation), **more)  # type: ignore[arg-type]
    assert isinstance(answer, Owned), answer
    assert answer.verdicts[0].granted
    return answer.verdicts[0].generation, answer.verdicts[0].fence_epoch


def owner(driver: House, resource: str, group: str = "g") -> str | None:
    return driver.machine.resources.find(group, resource).owner


@pytest.mark.parametrize("requested", [None, 0, 1, 7])
def test_032_the_first_claim_gets_generation_1(requested: int | None) -> None:
    assert owned(house(), "a", "r", requested) == (1, 1)


@pytest.mark.parametrize("requested", [4, None])
def test_033_a_lower_claim_on_a_live_owner_is_refused(requested: int | None) -> None:
    driver = house()
    owned(driver, "a", "r")
    owned(driver, "a", "r", 5)
    refusal = driver.own("b", ("r", requested))
    assert refusal == GenerationFenced(
        resource="r",
        generation=5,
        fence_epoch=2,
        results=[{"resource": "r", "granted": False, "generation": 5, "fence_epoch": 2, "code": "GENERATION_FENCED"}],
    )
    assert owner(driver, "r") == "a"


def test_034_a_higher_claim_severs_the_owner() -> None:
    driver = house()
    owned(driver, "a", "r")
    owned(driver, "a", "r", 5)
    assert owned(driver, "b", "r", 6) == (6, 3)
    assert owner(driver, "r") == "b"


def test_035_an_equal_claim_severs_too_and_its_victim_cannot_do_the_same() -> None:
    driver = house()
    owned(driver, "a", "r")
    owned(driver, "a", "r", 5)
    assert owned(driver, "b", "r", 5) == (6, 3)
    assert isinstance(driver.own("a", ("r", 5)), GenerationFenced)


def test_036_generation_0_always_wins_and_leaves_the_fence_epoch_growing() -> None:
    driver = house()
    owned(driver, "a", "r")
    owned(driver, "a", "r", 9)
    assert owned(driver, "b", "r", 0) == (1, 3)
    assert owned(driver, "b", "r", 0) == (1, 4), "also of the owner itself"


@pytest.mark.parametrize("sever", ["session", "resource"])
def test_037_the_severed_session_loses_everything_or_this_resource_alone(sever: str) -> None:
    driver = house()
    for resource in ("r", "s", "u"):
        owned(driver, "a", resource)
    grant = driver.granted("a", [1])
    owned(driver, "b", "r", 1, sever=sever)
    left = [owner(driver, resource) for resource in ("r", "s", "u")]
    if sever == "session":
        assert (left, driver.holders()) == (["b", None, None], [None, None])
        assert driver.grant(grant.grant_id) is None
    else:
        assert (left, driver.holders()) == (["b", "a", "a"], [None, "a"])
    assert driver.machine.sessions.find("a").state().session == "a", "the session itself lives"


def test_037_a_takeover_is_answered_when_the_severed_sessions_slots_are_cleared_and_its_reads_refused() -> None:
    driver = house()
    groups = driver.machine.catalog.topics()[0].groups()
    grant = driver.granted("a", [1])
    owned(driver, "a", "r")
    owned(driver, "a", "t/0", group="other")
    driver.settle()
    answer = driver.own("b", ("r", 1))
    assert isinstance(answer, Owned)
    assert [ref.group_id for ref in answer.fences] == [groups[1]]
    assert answer.pending == [ReaderRef(groups[0], "other", 1)]
    assert not driver.machine.is_over(answer.fences[0])
    slot = driver.partition(groups[1]).slot
    assert slot is not None and slot.grant_id == grant.grant_id
    driver.settle()
    assert driver.machine.is_over(answer.fences[0])
    assert driver.partition(groups[1]).slot is None
    assert driver.machine.reader_fences.is_installed(answer.pending[0])
    assert driver.partition(groups[0]).readers.judge("other", 1) == NotOwner(fence_epoch=1, group="other")


def test_042_a_close_is_answered_when_the_sessions_fence_epochs_are_refused() -> None:
    driver = house()
    group = driver.machine.catalog.topics()[0].groups()[0]
    owned(driver, "a", "t/0")
    driver.settle()
    freed = driver.close("a")
    assert freed == Freed([], [ReaderRef(group, "g", 1)])
    driver.settle()
    assert driver.partition(group).readers.judge("g", 1) == NotOwner(fence_epoch=1, group="g")


def test_a_repeated_takeover_waits_for_the_pending_installs_of_the_first_through_a_failover() -> None:
    driver = house()
    groups = driver.machine.catalog.topics()[0].groups()
    driver.granted("a", [1])
    owned(driver, "a", "r")
    owned(driver, "a", "t/0", group="other")
    driver.settle()
    first = driver.own("b", ("r", 1))
    assert isinstance(first, Owned)
    assert first.fences
    assert first.pending == [ReaderRef(groups[0], "other", 1)]
    driver.fail_over()
    again = driver.own("b", ("r", 1))
    assert isinstance(again, Owned)
    assert (again.fences, again.pending) == (first.fences, first.pending)
    assert driver.close("a") == Freed(first.fences, first.pending), "nor may the victim be told that it is out"
    driver.settle()
    done = driver.own("b", ("r", 1))
    assert isinstance(done, Owned)
    assert (done.fences, done.pending) == ([], [])
    assert driver.close("a") == Freed([], [])


def test_a_repeated_close_waits_for_the_pending_installs_of_the_first_through_a_failover() -> None:
    driver = house()
    groups = driver.machine.catalog.topics()[0].groups()
    driver.granted("a", [1])
    owned(driver, "a", "t/0")
    driver.settle()
    first = driver.close("a")
    assert isinstance(first, Freed)
    assert [ref.group_id for ref in first.fences] == [groups[1]]
    assert first.readers == [ReaderRef(groups[0], "g", 1)]
    driver.fail_over()
    assert driver.close("a") == first
    driver.settle()
    assert driver.close("a") == Freed([], [])


@pytest.mark.parametrize("end", ["disown", "taken alone"])
def test_a_close_waits_for_a_partition_that_the_session_owned_before(end: str) -> None:
    """It was answered at once: a late write of the session was stored on a partition that requires an owner."""
    driver = house()
    driver.do(RaiseFeatureLevel(now_ms=0, level=AWAITED_OWNERS, supporting=["n1", "n2", "n3"]))
    groups = driver.machine.catalog.topics()[0].groups()
    owned(driver, "a", "t/0")
    if end == "disown":
        driver.disown("a", "t/0")
    else:
        owned(driver, "b", "t/0", 1, sever="resource")
    first = driver.close("a")
    assert isinstance(first, Freed)
    assert [ref.group_id for ref in first.readers] == [groups[0]]
    driver.fail_over()
    assert driver.close("a") == first
    driver.settle()
    assert driver.close("a") == Freed([], [])


@pytest.mark.parametrize("end", ["disown", "taken alone"])
def test_what_a_close_waits_for_is_noted_once_for_all_partitions_of_a_command(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was noted for each of them, beside all before: a command with 4,000 partitions stopped the controller 10 s."""
    looks = 0
    is_installed = ReaderFenceInstalls.is_installed

    def counted(self: ReaderFenceInstalls, ref: ReaderRef) -> bool:
        nonlocal looks
        looks += 1
        return is_installed(self, ref)

    monkeypatch.setattr(ReaderFenceInstalls, "is_installed", counted)
    driver, count = house(), 100
    driver.do(RaiseFeatureLevel(now_ms=0, level=AWAITED_OWNERS, supporting=["n1", "n2", "n3"]))
    driver.topic("wide", count)
    names = [f"wide/{partition}" for partition in range(count)]
    driver.own("a", *names)
    looks = 0
    if end == "disown":
        driver.disown("a", *names)
    else:
        driver.own("b", *((name, 1) for name in names), sever="resource")
    assert looks <= 5 * count * len(driver.machines)
    first = driver.close("a")
    assert isinstance(first, Freed)
    assert len(first.readers) == count


def test_what_many_severed_sessions_wait_for_is_noted_once_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was noted for each of them: a claim of 4,000 resources of as many sessions stopped the controller 1 s."""
    hashed = looked = 0

    class Counted(ReaderRef, frozen=True):
        def __hash__(self) -> int:
            nonlocal hashed
            hashed += 1
            return hash(self.group_id)

    def full(fences: FenceInstalls, concerns: object) -> list[FenceRef]:
        nonlocal looked
        looked += 1
        return []

    monkeypatch.setattr("stockade.cluster.controller.ownership.reader_fences.ReaderRef", Counted)
    monkeypatch.setattr(FenceInstalls, "full", full)
    sessions = [f"s{number}" for number in range(100)]
    driver = house(2, sessions="")
    driver.do(RaiseFeatureLevel(now_ms=0, level=AWAITED_OWNERS, supporting=["n1", "n2", "n3"]))
    driver.topic("wide", len(sessions))
    for number, session in enumerate(sessions):
        driver.open(session)
        owned(driver, session, f"wide/{number}")
        driver.acquire(session, [number], topic="wide")
    driver.settle()
    driver.open("b")
    hashed = looked = 0
    command = Own(
        now_ms=0, session="b", group="g", claims=[Claim(f"wide/{number}", 1) for number in range(len(sessions))]
    )
    answer = driver.machine.apply(driver.index + 1, driver.term, encode_command(command))
    assert isinstance(answer, Owned)
    assert len(answer.pending) == len(answer.fences) == len(sessions)
    assert hashed <= 10 * len(sessions)
    assert looked == 1


def test_pending_installs_are_bounded_and_the_oldest_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.cluster.controller.ownership.pending_installs.REFS_MAX", 3)
    driver = house()
    for session in "ab":
        for group in (f"{session}1", f"{session}2"):
            owned(driver, session, "t/0", group=group)
    driver.settle()
    of_a = driver.close("a")
    assert isinstance(of_a, Freed)
    assert len(of_a.readers) == 2
    assert driver.close("a") == of_a
    of_b = driver.close("b")
    assert isinstance(of_b, Freed)
    assert len(of_b.readers) == 2
    assert driver.close("b") == of_b, "four things are too many: those of the older session went"
    assert driver.close("a") == Freed([], [])


def test_037_the_severed_session_loses_its_ticket_too() -> None:
    driver = house()
    driver.granted("c", [0])
    driver.waiting("a", [0])
    owned(driver, "a", "r")
    owned(driver, "b", "r", 1)
    assert driver.machine.slots.queue.by_session.get("a") is None


def test_a_restored_replica_frees_resources_in_the_order_of_the_others() -> None:
    driver = house()
    for resource in ("t/1", "t/0"):
        owned(driver, "b", resource)
        driver.disown("b", resource)
    for resource in ("t/0", "t/1"):
        owned(driver, "a", resource)
    driver.settle()
    restored = ControllerMachine()
    image = driver.machine.capture()
    restored.restore(Path("unused"), image.state, image.files)
    driver.close("a")
    restored.apply(driver.index, *driver.log[-1])
    assert restored.capture().state == driver.machine.capture().state


def test_038_groups_know_nothing_of_each_other() -> None:
    driver = house()
    owned(driver, "a", "x", group="g")
    owned(driver, "b", "x", group="h")
    assert (owner(driver, "x", "g"), owner(driver, "x", "h")) == ("a", "b")


@pytest.mark.parametrize("resource", ["not/a/partition", "t/00", "t/9", "no/0", "/0", "t/", "t/-1", "Ä", " "])
def test_039_any_text_is_a_resource(resource: str) -> None:
    driver = house()
    assert owned(driver, "a", resource) == (1, 1)
    assert owned(driver, "b", resource, 1) == (2, 2)
    assert list(driver.machine.work()) == [], "no partition has to be told"


def test_040_an_atomic_claim_changes_nothing_when_one_resource_is_refused() -> None:
    driver = house()
    owned(driver, "a", "s")
    owned(driver, "a", "s", 3)
    refusal = driver.own("b", "r", ("s", 2))
    assert isinstance(refusal, GenerationFenced)
    assert [result["granted"] for result in refusal.fields["results"]] == [False, False]
    assert (owner(driver, "r"), owner(driver, "s")) == (None, "a")
    answer = driver.own("b", "r", ("s", 2), atomic=False)
    assert isinstance(answer, Owned)
    assert answer.verdicts == [Verdict("r", True, 1, 1), Verdict("s", False, 3, 2, "GENERATION_FENCED")]


def test_041_the_older_owner_is_refused_before_the_claim_of_the_new_one_is_answered() -> None:
    driver = house()
    group = group_id(driver.machine.catalog.topics()[0].topic_id, 0)
    first = owned(driver, "a", "t/0")
    driver.settle()
    readers = driver.partition(group).readers
    assert readers.judge("g", first[1]) is None
    answer = driver.own("b", ("t/0", 1))
    assert isinstance(answer, Owned)
    assert answer.pending == [ReaderRef(group, "g", 2)]
    assert not driver.machine.reader_fences.is_installed(answer.pending[0])
    driver.settle()
    assert driver.machine.reader_fences.is_installed(answer.pending[0])
    assert readers.judge("g", first[1]) == NotOwner(fence_epoch=2, group="g")
    assert readers.judge("g", 2) is None


def test_042_after_an_expiry_and_a_reclaim_the_fence_epoch_has_grown_and_the_old_owner_is_refused() -> None:
    driver = house(sessions="b")
    driver.open("a", ttl_ms=2_000)
    group = group_id(driver.machine.catalog.topics()[0].topic_id, 0)
    old = owned(driver, "a", "t/0")
    driver.settle()
    driver.tick(2_000)
    driver.settle()
    readers = driver.partition(group).readers
    assert isinstance(readers.judge("g", old[1]), NotOwner), "refused as soon as the partition knows of the expiry"
    new = owned(driver, "b", "t/0")
    driver.settle()
    assert new > old
    assert isinstance(readers.judge("g", old[1]), NotOwner)
    answer = driver.partition(group).apply(0, 1, commands.encode_command(commands.CommitPosition("g", 0, None, old[1])))
    assert isinstance(answer, NotOwner)


def test_a_resource_without_an_owner_keeps_its_generation() -> None:
    driver = house()
    owned(driver, "a", "r")
    assert driver.disown("a", "r") == Owned([Verdict("r", False, 1, 1)], [])
    assert owned(driver, "b", "r") == (2, 2)
    driver.close("b")
    assert owned(driver, "a", "r", 9) == (9, 3)


@pytest.mark.parametrize(
    ("row", "requested", "expected"),
    [
        (None, 5, (1, 1)),
        (Resource("s", 4, 7), None, (4, 7)),
        (Resource("s", 4, 7), 4, (4, 7)),
        (Resource("s", 4, 7), 5, (5, 8)),
        (Resource("s", 4, 7), 0, (1, 8)),
        (Resource(None, 4, 7), None, (5, 8)),
        (Resource(None, 4, 7), 3, (5, 8)),
        (Resource(None, 4, 7), 9, (9, 8)),
        (Resource("o", 4, 7), None, None),
        (Resource("o", 4, 7), 3, None),
        (Resource("o", 4, 7), 4, (5, 8)),
        (Resource("o", 4, 7), 6, (6, 8)),
        (Resource("o", 4, 7), 0, (1, 8)),
        (Resource("o", 4, 7), GENERATION_MAX, (GENERATION_MAX, 8)),
        (Resource("o", GENERATION_MAX, 7), GENERATION_MAX, None),
        (Resource("o", GENERATION_MAX, 7), 0, (1, 8)),
        (Resource("s", GENERATION_MAX, 7), GENERATION_MAX, (GENERATION_MAX, 7)),
        (Resource(None, GENERATION_MAX, 7), None, (GENERATION_MAX, 8)),
        (Resource(None, GENERATION_MAX, 7), GENERATION_MAX, (GENERATION_MAX, 8)),
    ],
)
def test_every_row_of_the_table(row: Resource | None, requested: int | None, expected: tuple[int, int] | None) -> None:
    judged = judge(row, "s", requested)
    assert (judged and (judged.generation, judged.fence_epoch)) == expected


def test_no_claim_leads_beyond_the_highest_generation_which_has_to_fit_into_a_checkpoint() -> None:
    driver = house()
    owned(driver, "a", "r")
    assert owned(driver, "a", "r", GENERATION_MAX) == (GENERATION_MAX, 2)
    assert isinstance(driver.own("b", ("r", GENERATION_MAX)), GenerationFenced)
    driver.close("a")
    assert owned(driver, "b", "r") == (GENERATION_MAX, 3)
    driver.fail_over()
    assert owner(driver, "r") == "b"
    assert owned(driver, "c", "r", 0) == (1, 4)


def test_a_disown_of_another_sessions_resource_changes_nothing() -> None:
    driver = house()
    owned(driver, "a", "r")
    owned(driver, "b", "s")
    refused = driver.disown("b", "s", "r")
    assert refused == NotOwner(fence_epoch=1, resource="r", group="g")
    assert isinstance(refused, NotOwner)
    assert refused.detail == "another session owns r in group g", "a disown has no fence_epoch that could be wrong"
    assert owner(driver, "s") == "b"
    answer = driver.disown("b", "s", "never")
    assert answer == Owned([Verdict("s", False, 1, 1), Verdict("never", False, 0, 0)], [])


@pytest.mark.parametrize(
    ("claims", "group", "session", "refusal"),
    [
        ([], "g", "a", InvalidRequest),
        (["r", "r"], "g", "a", InvalidRequest),
        ([""], "g", "a", InvalidRequest),
        (["é" * 513], "g", "a", InvalidRequest),
        (["r"], "g/h", "a", InvalidRequest),
        (["r"], "", "a", InvalidRequest),
        ([f"r{number}" for number in range(CLAIMS_MAX + 1)], "g", "a", InvalidRequest),
        (["r"], "g", "nobody", UnknownSession),
    ],
    ids=["none", "twice", "empty", "long", "group", "no group", "many", "session"],
)
def test_a_malformed_claim_is_refused(
    claims: list[str], group: str, session: str, refusal: type[StockadeError]
) -> None:
    assert isinstance(house().own(session, *claims, group=group), refusal)


def test_resources_are_bounded_and_known_ones_may_still_be_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.cluster.controller.ownership.resources.RESOURCES_MAX", 1)
    driver = house()
    owned(driver, "a", "r")
    assert driver.own("a", "s") == ThrottlingQuotaExceeded(retry_after_ms=1_000)
    assert owned(driver, "b", "r", 1) == (2, 2)


def forget(driver: House, *keys: tuple[str, str]) -> None:
    driver.do(ForgetResources(now_ms=driver.now_ms, keys=list(keys)))


def test_an_idle_resource_is_forgotten_and_its_fence_epochs_are_never_reused() -> None:
    driver = house(sessions="ab")
    for generation in (None, 2, 3):
        owned(driver, "a", "r", generation)
    owned(driver, "a", "kept")
    driver.tick(TTL_MS - 1)
    driver.disown("a", "r")
    keys = [("g", "r"), ("g", "kept"), ("g", "never"), ("h", "r")]
    left = driver.now_ms + RESOURCE_TTL_MS
    while driver.now_ms < left - 1:  # "a" lives on
        driver.tick(min(driver.now_ms + RESOURCE_TTL_MS // 4, left - 1), term=driver.term + 1)
    forget(driver, *keys)
    assert driver.machine.resources.find("g", "r").fence_epoch == 3, "a moment too early"
    driver.tick(left)
    forget(driver, *keys)
    driver.fail_over()
    forget(driver, *keys)
    assert list(driver.machine.resources.rows["g"]) == ["kept"]
    assert owned(driver, "b", "r") == (1, 4)
    assert owned(driver, "b", "r", group="h") == (1, 4), "groups share what is too low"
    assert owned(driver, "a", "kept") == (1, 1)


def at_level_2(driver: House) -> House:
    driver.do(RaiseFeatureLevel(now_ms=driver.now_ms, level=2, supporting=["n1", "n2", "n3"]))
    return driver


def test_a_resource_is_kept_as_long_as_a_partition_has_its_name() -> None:
    driver = at_level_2(house())
    for resource in ("t/0", "t/9", "gone/7"):
        owned(driver, "a", resource)
    driver.close("a")
    driver.tick(2 * RESOURCE_TTL_MS)
    forget(driver, ("g", "t/0"), ("g", "t/9"), ("g", "gone/7"))
    assert list(driver.machine.resources.rows["g"]) == ["t/0"]
    assert driver.machine.resources.of_topic("gone") == []


def test_a_resource_of_a_deleted_topic_is_forgotten_and_its_fence_epochs_are_never_reused() -> None:
    driver = at_level_2(house(sessions="a"))
    for generation in (None, 2, 3):
        owned(driver, "a", "t/0", generation)
    driver.close("a")
    driver.tick(RESOURCE_TTL_MS)
    driver.settle()
    forget(driver, ("g", "t/0"))
    assert "g" in driver.machine.resources.rows
    driver.delete()
    forget(driver, ("g", "t/0"))
    assert "g" not in driver.machine.resources.rows
    group = group_id(driver.topic(), 0)
    driver.settle()
    readers = driver.partition(group).readers
    assert isinstance(readers.judge("g", 3), NotOwner)
    driver.open("b")
    assert owned(driver, "b", "t/0") == (1, 4)
    driver.settle()
    assert isinstance(readers.judge("g", 3), NotOwner)
    assert readers.judge("g", 4) is None


def test_level_1_forgets_no_resource_that_is_named_like_a_partition_as_older_software_does() -> None:
    driver = house()
    owned(driver, "a", "gone/7")
    driver.close("a")
    driver.tick(2 * RESOURCE_TTL_MS)
    forget(driver, ("g", "gone/7"))
    assert list(driver.machine.resources.rows["g"]) == ["gone/7"]


def test_forgetting_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.cluster.controller.ownership.resources.RESOURCES_MAX", 1)
    driver = house(sessions="a")
    owned(driver, "a", "r")
    driver.disown("a", "r")
    driver.tick(RESOURCE_TTL_MS)
    driver.open("b")
    assert isinstance(driver.own("b", "s"), ThrottlingQuotaExceeded)
    forget(driver, ("g", "r"))
    assert owned(driver, "b", "s", group="h") == (1, 2)
    assert "g" not in driver.machine.resources.rows


def test_a_partition_of_a_recreated_topic_gets_the_reader_fence_of_its_owner() -> None:
    driver = house()
    owned(driver, "a", "t/0")
    driver.disown("a", "t/0")
    owned(driver, "b", "t/2")
    driver.settle()
    driver.delete()
    topic_id = driver.topic(partitions=2)
    driver.settle()
    readers = driver.partition(group_id(topic_id, 0)).readers
    assert isinstance(readers.judge("g", 1), NotOwner), "also that it has no owner, so that no old position is taken"
    driver.change(partitions=3)
    driver.settle()
    assert driver.partition(group_id(topic_id, 2)).readers.judge("g", 1) is None
