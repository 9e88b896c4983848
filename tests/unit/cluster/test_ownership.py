"""Grants: who gets them, who loses them, and which token still writes (SEMANTICS 5.2, 5.3, 6.1, 11).

Numbers in names are those of SEMANTICS 11.
"""

import random
from typing import get_args

import pytest

from stockade.cluster.catalog import group_id
from stockade.cluster.commands import Freed, GrantState
from stockade.cluster.model import Mode
from stockade.cluster.ownership import ENDED_PER_SESSION_MAX, MODES_AVAILABLE
from stockade.partition.errors import (
    InconsistentTopicId,
    InvalidFencingToken,
    InvalidRequest,
    NotFound,
    ProducerBusy,
    ProducerFenced,
    SessionExpired,
    StockadeError,
    UnknownSession,
    UnknownTopicOrPartition,
)

from .driver import TTL_MS, Driver, House


def house(partitions: int = 2, sessions: str = "abc") -> House:
    made = House()
    made.topic(partitions=partitions)
    for session in sessions:
        made.open(session)
    return made


def busy(epoch: int, mode: str = "Exclusive") -> ProducerBusy:
    return ProducerBusy(reason="exclusive_present", holder_mode=mode, current_epoch=epoch, queue_len=0)


def test_a_grant_says_what_was_granted() -> None:
    driver = house(partitions=3)
    topic = driver.machine.topics()[0]
    assert driver.acquire("a", [2, 0]) == GrantState(
        grant_id=f"g-{topic.topic_id}-{driver.index}",
        ticket_id=f"t-{topic.topic_id}-{driver.index}",
        grant_index=driver.index,
        session="a",
        topic="t",
        topic_id=topic.topic_id,
        partitions=[0, 2],
        all_partitions=False,
        mode="Exclusive",
        producer_name="p",
        epoch=1,
        pending=[0, 2],
    )
    assert driver.epochs() == [1, 0, 1]


def test_all_partitions_are_recorded_as_such() -> None:
    driver = house(partitions=3)
    grant = driver.granted("a", None)
    assert (grant.partitions, grant.all_partitions) == ([0, 1, 2], True)


def test_1_a_second_exclusive_is_refused_and_the_first_still_writes() -> None:
    driver = house()
    grant = driver.granted("a")
    driver.settle()
    assert driver.acquire("b") == busy(epoch=1)
    assert driver.may_write(grant, 0)
    assert not driver.may_write(None, 0)


def test_3_after_the_holder_closed_the_next_one_is_granted_the_next_epoch() -> None:
    driver = house()
    grant = driver.granted("a")
    driver.settle()
    driver.close("a")
    driver.settle()
    assert driver.granted("b").epoch == grant.epoch + 1


def test_4_fencing_throws_the_holder_out_and_its_next_append_is_refused() -> None:
    driver = house()
    victim = driver.granted("a")
    driver.settle()
    winner = driver.granted("b", mode="ExclusiveWithFencing")
    driver.settle()
    assert driver.append(victim, 0) == ProducerFenced(current_epoch=2, reason="superseded")
    assert driver.may_write(winner, 0)


def test_7_a_fenced_producer_is_refused_every_time_and_never_disturbs_the_new_one() -> None:
    driver = house()
    victim = driver.granted("a")
    driver.settle()
    winner = driver.granted("b", mode="ExclusiveWithFencing")
    driver.settle()
    for _ in range(5):
        assert driver.may_write(winner, 0)
        assert isinstance(driver.append(victim, 0), ProducerFenced)
    assert driver.partition(group_id(victim.topic_id, 0)).log_end == 5


def test_9_a_holder_that_comes_back_resumes_its_epoch() -> None:
    driver = house(partitions=3)
    for mode in MODES_AVAILABLE:
        for partitions in ([0], [0, 1, 2]):
            first = driver.granted("a", partitions, mode)
            driver.settle()
            driver.release("a", first.grant_id)
            again = driver.granted("b", partitions, mode, resume=first.epoch)
            driver.settle()
            assert again.epoch == first.epoch
            assert driver.may_write(again, 0)
            assert driver.append(first, 0) == ProducerFenced(current_epoch=first.epoch, reason="other_session")
            driver.release("b", again.grant_id)


@pytest.mark.parametrize("mode", MODES_AVAILABLE)
def test_10_a_holder_whose_epoch_was_passed_cannot_come_back(mode: Mode) -> None:
    driver = house()
    first = driver.granted("a", mode=mode)
    driver.close("a")
    second = driver.granted("b", mode=mode)
    driver.close("b")
    assert driver.acquire("c", mode=mode, resume=first.epoch) == ProducerFenced(
        current_epoch=second.epoch, reason="superseded"
    )


def test_17_a_stale_resume_is_refused_before_anybody_is_thrown_out() -> None:
    driver = house()
    for _ in range(7):
        holder = driver.granted("a", mode="ExclusiveWithFencing")
        driver.release("a", holder.grant_id)
    holder = driver.granted("a")
    driver.settle()
    refusal = driver.acquire("b", mode="ExclusiveWithFencing", resume=5)
    assert refusal == ProducerFenced(current_epoch=8, reason="superseded")
    assert driver.holders() == ["a", None]
    assert driver.may_write(holder, 0)


@pytest.mark.parametrize("mode", MODES_AVAILABLE)
@pytest.mark.parametrize("resume", [1, 2**63, 2**64 - 1])
def test_19_an_epoch_that_was_never_issued_is_refused_and_not_stored(mode: str, resume: int) -> None:
    driver = house()
    assert driver.acquire("b", mode=mode, resume=resume) == InvalidFencingToken(current_epoch=0)
    driver.granted("a")
    assert driver.acquire("b", mode=mode, resume=resume + 1 if resume == 1 else resume) == InvalidFencingToken(
        current_epoch=1
    )
    assert driver.epochs() == [1, 0]


def test_resuming_needs_one_epoch_on_the_whole_set() -> None:
    driver = house(partitions=3)
    driver.granted("a", [0, 1])
    driver.close("a")
    assert driver.acquire("b", [0, 2], resume=1) == InvalidFencingToken(current_epoch=0)
    assert driver.acquire("b", [0, 2], resume=0) == ProducerFenced(current_epoch=1, reason="superseded")
    assert driver.granted("b", [0, 1], resume=1).epoch == 1


def test_resuming_over_somebody_else_takes_a_new_epoch_and_may_be_repeated() -> None:
    driver = house()
    driver.granted("a")
    driver.close("a")
    driver.granted("b", resume=1)
    fenced = driver.granted("c", mode="ExclusiveWithFencing", resume=1)
    assert fenced.epoch == 2, "two owners with one epoch would look alike to a store that checks it"
    assert driver.acquire("c", mode="ExclusiveWithFencing", resume=1) == fenced
    assert driver.acquire("c", mode="ExclusiveWithFencing", resume=2) == fenced
    assert driver.acquire("c", mode="ExclusiveWithFencing", resume=0) == ProducerFenced(
        current_epoch=2, reason="superseded"
    )


@pytest.mark.parametrize("late", ["close", "release", "expire"])
def test_22_the_late_end_of_the_evicted_one_leaves_the_new_holder_alone(late: str) -> None:
    driver = house(sessions="b")
    driver.open("a", ttl_ms=2_000)
    victim = driver.granted("a")
    driver.settle()
    winner = driver.granted("b", mode="ExclusiveWithFencing")
    if late == "close":
        driver.close("a")
    elif late == "release":
        driver.release("a", victim.grant_id)
    else:
        driver.tick(2_000)
    driver.settle()
    assert driver.holders() == ["b", None]
    assert driver.may_write(winner, 0)


@pytest.mark.parametrize("mode", MODES_AVAILABLE)
def test_23_a_repeated_acquire_is_the_same_grant(mode: str) -> None:
    driver = house()
    grant = driver.granted("a", [0, 1])
    driver.settle()
    again = driver.acquire("a", [1, 0], mode)
    assert again == driver.machine.grant(grant.grant_id)
    assert driver.epochs() == [1, 1]
    assert driver.acquire("a", None, mode) == again, "all is the same set here"


@pytest.mark.parametrize(
    ("partitions", "name"), [([0], "p"), ([0, 1, 2], "p"), ([0, 1], "q")], ids=["part", "more", "other name"]
)
@pytest.mark.parametrize("mode", MODES_AVAILABLE)
def test_a_set_that_overlaps_an_own_grant_is_refused(partitions: list[int], name: str, mode: str) -> None:
    driver = house(partitions=3)
    driver.granted("a", [0, 1])
    driver.granted("b", [2])
    assert isinstance(driver.acquire("a", partitions, mode, name=name), InvalidRequest)
    assert driver.holders() == ["a", "a", "b"]
    assert driver.epochs() == [1, 1, 1]


def test_a_session_may_hold_several_disjoint_grants() -> None:
    driver = house()
    grants = [driver.granted("a", [0]), driver.granted("a", [1])]
    assert grants[0].grant_id != grants[1].grant_id
    driver.close("a")
    assert driver.holders() == [None, None]


def test_26_of_two_that_ask_for_the_same_set_at_once_one_wins_and_the_other_holds_nothing() -> None:
    driver = house()
    for seed in range(1_000):
        order = random.Random(seed).sample("ab", 2)
        winner, loser = order
        grant = driver.granted(winner, [0, 1])
        assert driver.acquire(loser, [0, 1]) == busy(epoch=grant.epoch)
        assert driver.holders() == [winner, winner]
        driver.release(winner, grant.grant_id)


def test_30_fenced_on_one_partition_the_victim_loses_the_others_too() -> None:
    driver = house()
    victim = driver.granted("a", [0, 1])
    driver.settle()
    winner = driver.granted("b", [1], "ExclusiveWithFencing")
    assert driver.holders() == [None, "b"]
    driver.settle()
    assert driver.append(victim, 0) == ProducerFenced(current_epoch=1, reason="slot_free")
    assert driver.append(victim, 1) == ProducerFenced(current_epoch=2, reason="superseded")
    assert driver.may_write(winner, 1)
    assert driver.may_write(None, 0)


def test_one_fencing_acquire_may_throw_out_several_holders() -> None:
    driver = house(partitions=5)
    driver.granted("a", [0, 3])
    driver.granted("b", [1, 4])
    driver.granted("c", [2])
    driver.open("d")
    grant = driver.granted("d", [2, 1, 0], "ExclusiveWithFencing")
    assert driver.holders() == ["d", "d", "d", None, None]
    assert (grant.epoch, driver.epochs()) == (2, [2, 2, 2, 1, 1])


def test_31_a_set_with_an_unknown_partition_moves_no_epoch() -> None:
    driver = house()
    driver.granted("b", [0])
    refusal = driver.acquire("a", [2, 0], "ExclusiveWithFencing")
    assert refusal == UnknownTopicOrPartition(topic="t", partition=2)
    assert driver.epochs() == [1, 0]
    assert driver.holders() == ["b", None]


def test_118_after_a_release_both_tokens_are_dead_and_both_epochs_kept() -> None:
    driver = house()
    grant = driver.granted("a", [0, 1])
    driver.settle()
    assert driver.may_write(grant, 0)
    assert driver.may_write(grant, 1)
    driver.release("a", grant.grant_id)
    driver.settle()
    for partition in (0, 1):
        assert driver.append(grant, partition) == ProducerFenced(current_epoch=1, reason="slot_free")
        assert driver.partition(group_id(grant.topic_id, partition)).topic_epoch == 1
    assert driver.epochs() == [1, 1]


@pytest.mark.parametrize(
    ("session", "request_", "refusal"),
    [
        ("nobody", {"mode": "exclusive", "topic": "no"}, InvalidRequest),
        ("nobody", {"mode": "", "topic": "no"}, InvalidRequest),
        ("nobody", {"mode": "Shared", "topic": "no"}, InvalidRequest),
        ("nobody", {"mode": "WaitForExclusive", "topic": "no"}, InvalidRequest),
        ("nobody", {"partitions": [], "topic": "no"}, InvalidRequest),
        ("nobody", {"partitions": [0, 0], "topic": "no"}, InvalidRequest),
        ("nobody", {"partitions": [0, -1], "topic": "no"}, InvalidRequest),
        ("nobody", {"name": "", "topic": "no"}, InvalidRequest),
        ("nobody", {"name": "x" * 250, "topic": "no"}, InvalidRequest),
        ("nobody", {"topic": "no"}, UnknownSession),
        ("late", {"topic": "no"}, SessionExpired),
        ("a", {"topic": "no", "topic_id": 77, "resume": 5}, UnknownTopicOrPartition),
        ("a", {"partitions": [9], "topic_id": 77, "resume": 5}, UnknownTopicOrPartition),
        ("a", {"topic_id": 77, "resume": 5}, InconsistentTopicId),
        ("a", {"resume": 5}, InvalidFencingToken),
        ("a", {"resume": 0}, ProducerFenced),
        ("a", {}, ProducerBusy),
    ],
)
def test_the_first_failing_check_decides(
    session: str, request_: dict[str, object], refusal: type[StockadeError]
) -> None:
    """Each request has every fault that a later check would find."""
    driver = house()
    driver.open("late", ttl_ms=1_000)
    driver.tick(1_000)
    driver.granted("b", [0])
    assert type(driver.acquire(session, **{"partitions": [0], **request_})) is refusal  # type: ignore[arg-type]


def test_the_modes_of_this_version_are_known_ones() -> None:
    assert set(MODES_AVAILABLE) < set(get_args(Mode))


def test_releasing_a_grant_of_somebody_else_is_refused_and_an_unknown_one_is_fine() -> None:
    driver = house()
    grant = driver.granted("a")
    assert driver.release("b", grant.grant_id) == ProducerFenced(reason="not_holder", current_epoch=1)
    assert driver.release("nobody", grant.grant_id) == UnknownSession()
    assert driver.holders() == ["a", None]
    assert driver.release("b", "g-1-999") == Freed([])


def test_a_release_is_over_when_every_slot_is_cleared_and_its_repetition_says_so_too() -> None:
    driver = house()
    grant = driver.granted("a", [0, 1])
    driver.settle()
    freed = driver.release("a", grant.grant_id)
    assert isinstance(freed, Freed)
    assert [fence.group_id for fence in freed.fences] == [group_id(grant.topic_id, p) for p in (0, 1)]
    assert driver.release("a", grant.grant_id) == freed
    assert driver.close("a") == freed, "closing waits for what was released before"
    assert not any(driver.machine.is_over(fence) for fence in freed.fences)
    driver.settle()
    assert all(driver.machine.is_over(fence) for fence in freed.fences)
    assert driver.release("b", grant.grant_id) == Freed([])


def test_a_release_is_over_also_when_a_successor_took_the_slot_or_the_topic_went() -> None:
    driver = house()
    grant = driver.granted("a", [0, 1])
    freed = driver.release("a", grant.grant_id)
    assert isinstance(freed, Freed)
    driver.granted("b", [0])
    driver.settle()
    assert [driver.machine.is_over(fence) for fence in freed.fences] == [True, True]
    freed = driver.close("b")
    assert isinstance(freed, Freed)
    driver.delete()
    assert [driver.machine.is_over(fence) for fence in freed.fences] == [True]
    assert list(driver.machine.work()) == []


def test_a_grant_is_in_force_when_its_last_partition_has_it() -> None:
    driver = house()
    grant = driver.granted("a", [0, 1])
    for expected in (False, False):
        assert driver.machine.is_in_force(grant.grant_id) is expected
        work = next(driver.machine.work())
        report = driver.tell(work)
        assert report is not None
        driver.do(report)
        driver.do(report)
    assert driver.machine.is_in_force(grant.grant_id) is True
    driver.release("a", grant.grant_id)
    assert driver.machine.is_in_force(grant.grant_id) is None


def test_a_ticket_answers_its_grant_while_that_lives_and_fenced_after() -> None:
    driver = house()
    grant = driver.granted("a")
    assert driver.machine.ticket(grant.ticket_id, "a") == grant == driver.machine.grant_by_ticket(grant.ticket_id)
    with pytest.raises(ProducerFenced) as refusal:
        driver.machine.ticket(grant.ticket_id, "b")
    assert refusal.value == ProducerFenced(reason="not_holder", current_epoch=1)
    driver.granted("b", mode="ExclusiveWithFencing")
    with pytest.raises(ProducerFenced) as refusal:
        driver.machine.ticket(grant.ticket_id, "a")
    assert refusal.value == ProducerFenced(reason="evicted", current_epoch=2)
    for ticket_id in (grant.ticket_id, "t-1-999", grant.grant_id, "", "x"):
        with pytest.raises(NotFound):
            driver.machine.ticket(ticket_id, "c")
    with pytest.raises(UnknownSession):
        driver.machine.ticket(grant.ticket_id, "nobody")


def test_tickets_of_ended_grants_are_remembered_up_to_a_bound() -> None:
    driver = house()
    tickets = []
    for _ in range(ENDED_PER_SESSION_MAX + 1):
        grant = driver.granted("a")
        tickets.append(grant.ticket_id)
        driver.release("a", grant.grant_id)
    with pytest.raises(NotFound):
        driver.machine.ticket(tickets[0], "a")
    for ticket_id in tickets[1:]:
        with pytest.raises(ProducerFenced) as refusal:
            driver.machine.ticket(ticket_id, "a")
        assert refusal.value.fields["reason"] == "slot_free"


def test_an_expired_session_holds_nothing() -> None:
    driver = house(sessions="b")
    driver.open("a", ttl_ms=2_000)
    driver.granted("a", [0, 1])
    driver.tick(2_000)
    assert driver.holders() == [None, None]
    assert driver.granted("b", [0, 1]).epoch == 2


def test_11_a_deleted_topic_takes_its_grants_along_and_its_successor_starts_anew() -> None:
    driver = house()
    old = driver.granted("a", [0, 1])
    driver.settle()
    driver.delete()
    assert driver.machine.grant(old.grant_id) is None
    new_id = driver.topic()
    assert driver.acquire("a", [0], topic_id=old.topic_id) == InconsistentTopicId(topic_id=new_id)
    assert driver.granted("a", [0, 1]).epoch == 1
    driver.settle()
    assert driver.append(old, 0) == InconsistentTopicId(topic_id=new_id)


@pytest.mark.parametrize("seed", range(20))
def test_27_whatever_many_sessions_ask_for_grants_never_overlap(seed: int) -> None:
    """The driver checks I1, I2 and I3 after every command."""
    rng = random.Random(seed)
    driver = Driver(replicas=2)
    driver.topic("t", partitions=6)
    driver.topic("u", partitions=3)
    sessions = [f"s{number}" for number in range(64)]
    for session in sessions:
        driver.open(session, ttl_ms=rng.choice([1_000, 5_000, 60_000]))
    for _ in range(250):
        session = rng.choice(sessions)
        topic, count = rng.choice([("t", 6), ("u", 3)])
        roll = rng.random()
        if roll < 0.6:
            driver.acquire(
                session,
                rng.sample(range(count), rng.randint(1, count)),
                rng.choice(MODES_AVAILABLE),
                topic=topic,
                resume=rng.choice([None, None, rng.randint(0, 9)]),
            )
        elif roll < 0.75:
            grants = list(driver.machine.ownership.grants)
            if grants:
                driver.release(session, rng.choice(grants))
        elif roll < 0.85:
            driver.close(session)
            driver.open(session, ttl_ms=TTL_MS)
        elif roll < 0.95:
            driver.tick(driver.now_ms + rng.randint(0, 400))
        else:
            driver.term += 1
    for session in sessions:
        driver.close(session)
    assert driver.holders("t") + driver.holders("u") == [None] * 9
    assert len({machine.snapshot() for machine in driver.machines}) == 1
