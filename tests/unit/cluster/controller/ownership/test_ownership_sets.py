"""Sets of partitions: all or none, one winner, and no two grants on one partition (SEMANTICS 7).

Numbers in names are those of SEMANTICS 11.
"""

import random

import pytest

from stockade.partition.errors import InvalidRequest, ProducerFenced, UnknownTopicOrPartition

from ...driver import EXCLUSIVE_MODES, MODES, TTL_MS, Driver, busy, house


def test_all_partitions_are_recorded_as_such() -> None:
    driver = house(partitions=3)
    grant = driver.granted("a", None)
    assert (grant.partitions, grant.all_partitions) == ([0, 1, 2], True)


@pytest.mark.parametrize(
    ("partitions", "name"), [([0], "p"), ([0, 1, 2], "p"), ([0, 1], "q")], ids=["part", "more", "other name"]
)
@pytest.mark.parametrize("mode", EXCLUSIVE_MODES)
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


def test_026_of_two_concurrent_acquires_of_a_set_one_wins_and_the_other_holds_nothing() -> None:
    driver = house()
    for seed in range(1_000):
        order = random.Random(seed).sample("ab", 2)
        winner, loser = order
        grant = driver.granted(winner, [0, 1])
        assert driver.acquire(loser, [0, 1]) == busy(epoch=grant.epoch)
        assert driver.holders() == [winner, winner]
        driver.release(winner, grant.grant_id)


def test_030_a_grant_fenced_on_one_partition_ends_on_all_of_them() -> None:
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


def test_one_fencing_acquire_may_evict_several_holders() -> None:
    driver = house(partitions=5)
    driver.granted("a", [0, 3])
    driver.granted("b", [1, 4])
    driver.granted("c", [2])
    driver.open("d")
    grant = driver.granted("d", [2, 1, 0], "ExclusiveWithFencing")
    assert driver.holders() == ["d", "d", "d", None, None]
    assert (grant.epoch, driver.epochs()) == (2, [2, 2, 2, 1, 1])


def test_031_a_set_with_an_unknown_partition_moves_no_epoch() -> None:
    driver = house()
    driver.granted("b", [0])
    refusal = driver.acquire("a", [2, 0], "ExclusiveWithFencing")
    assert refusal == UnknownTopicOrPartition(topic="t", partition=2)
    assert driver.epochs() == [1, 0]
    assert driver.holders() == ["b", None]


@pytest.mark.parametrize("seed", range(20))
def test_027_grants_never_overlap_and_no_grantable_ticket_waits_for_any_acquires_of_many_sessions(seed: int) -> None:
    """The driver checks I1, I2, I3 and I7 after every command, and that no ticket waits for free partitions."""
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
                rng.choice(MODES),
                topic=topic,
                resume=rng.choice([None, None, rng.randint(0, 9)]),
            )
        elif roll < 0.75:
            grants = list(driver.machine.slots.grants.by_id)
            if grants:
                driver.release(session, rng.choice(grants))
        elif roll < 0.85:
            driver.close(session)
            driver.open(session, ttl_ms=TTL_MS)
        elif roll < 0.95:
            driver.tick(driver.now_ms + rng.randint(0, 400))
        else:
            driver.fail_over()
    ownership = driver.machine.slots
    in_line = [
        ticket for topic in driver.machine.catalog.topics() for ticket in ownership.queue.of_topic(topic.topic_id)
    ]
    served: set[str] = set()
    while ownership.grants.by_id:
        grant = next(iter(ownership.grants.by_id.values()))
        served.add(grant.session)
        driver.release(grant.session, grant.grant_id)
    assert {ticket.session for ticket in in_line if ticket.resume_epoch is None} <= served
    assert not any(ownership.queue.of_topic(topic.topic_id) for topic in driver.machine.catalog.topics())
    for session in sessions:
        driver.close(session)
    assert driver.holders("t") + driver.holders("u") == [None] * 9
    assert len({machine.capture().state for machine in driver.machines}) == 1
