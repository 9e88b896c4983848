"""Who gets a grant, who loses it, and which token still writes (SEMANTICS 5.2, 6.1).

Numbers in names are those of SEMANTICS 11.
"""

import pytest

from stockade.cluster.controller.commands import Acquire, GrantState, Release
from stockade.cluster.controller.topology.catalog import group_id
from stockade.partition.api.topics import Mode
from stockade.partition.errors import (
    InconsistentTopicId,
    InvalidFencingToken,
    InvalidRequest,
    ProducerBusy,
    ProducerFenced,
    SessionExpired,
    StockadeError,
    UnknownSession,
    UnknownTopicOrPartition,
)

from ...driver import EXCLUSIVE_MODES, MODES, TTL_MS, busy, house


def test_a_grant_state_has_the_set_the_epochs_and_the_session() -> None:
    driver = house(partitions=3)
    topic = driver.machine.catalog.topics()[0]
    assert driver.acquire("a", [2, 0]) == GrantState(
        grant_id=f"g-{topic.topic_id}-{driver.index}",
        ticket_id=f"t-{topic.topic_id}-{driver.index}",
        grant_index=1,
        session="a",
        topic="t",
        topic_id=topic.topic_id,
        partitions=[0, 2],
        all_partitions=False,
        mode="Exclusive",
        producer_name="p",
        epoch=1,
        epochs=[1, 1],
        pending=[0, 2],
    )
    assert driver.epochs() == [1, 0, 1]


def test_001_a_second_exclusive_is_refused_and_the_first_still_writes() -> None:
    driver = house()
    grant = driver.granted("a")
    driver.settle()
    assert driver.acquire("b") == busy(epoch=1)
    assert driver.may_write(grant, 0)
    assert not driver.may_write(None, 0)


def test_a_busy_refusal_names_the_holder_since_when_and_until_when_at_most() -> None:
    driver = house()
    driver.tick(500)
    grant = driver.do(
        Acquire(
            now_ms=500,
            wall_ms=1_700_000,
            session="a",
            topic="t",
            partitions=[0],
            mode="Exclusive",
            producer_name="alpha",
            topic_id=None,
        )
    )
    assert isinstance(grant, GrantState)
    driver.fail_over()
    busy = driver.acquire("b", [0, 1])
    assert isinstance(busy, ProducerBusy)
    assert busy.fields["holder"] == {
        "grant": grant.grant_id,
        "mode": "Exclusive",
        "producer_name": "alpha",
        "client_id": "c-a",
        "since_ms": 500,
        "since_unix_ms": 1_700_000,
        "expires_in_ms": TTL_MS,
        "operation": "acquire",
    }
    assert busy.detail == "producer alpha of client c-a holds the slot (Exclusive)"
    driver.settle()
    assert driver.partitions[group_id(grant.topic_id, 0)].fence.holder is not None


def test_a_promoted_grant_says_since_when_it_holds() -> None:
    driver = house()
    grant = driver.granted("a")
    ticket = driver.waiting("b")
    driver.do(Release(now_ms=0, wall_ms=9_000, session="a", grant_id=grant.grant_id))
    promoted = driver.machine.ticket(ticket.ticket_id, "b")
    assert isinstance(promoted, GrantState)
    assert driver.machine.slots.grants.by_id[promoted.grant_id].wall_ms == 9_000


def test_003_after_the_holder_closed_the_next_one_is_granted_the_next_epoch() -> None:
    driver = house()
    grant = driver.granted("a")
    driver.settle()
    driver.close("a")
    driver.settle()
    assert (grant.epoch, driver.granted("b").epoch) == (1, 2)


def test_004_fencing_throws_the_holder_out_and_its_next_append_is_refused() -> None:
    driver = house()
    victim = driver.granted("a")
    driver.settle()
    winner = driver.granted("b", mode="ExclusiveWithFencing")
    driver.settle()
    assert driver.append(victim, 0) == ProducerFenced(current_epoch=2, reason="superseded")
    assert driver.may_write(winner, 0)


def test_007_a_fenced_producer_is_refused_every_time_and_never_disturbs_the_new_one() -> None:
    driver = house()
    victim = driver.granted("a")
    driver.settle()
    winner = driver.granted("b", mode="ExclusiveWithFencing")
    driver.settle()
    for _ in range(5):
        assert driver.may_write(winner, 0)
        assert isinstance(driver.append(victim, 0), ProducerFenced)
    assert driver.partition(group_id(victim.topic_id, 0)).log_end == 5


def test_009_a_holder_that_comes_back_resumes_its_epoch() -> None:
    driver = house(partitions=3)
    for mode in EXCLUSIVE_MODES:
        for partitions in ([0], [0, 1, 2]):
            first = driver.granted("a", partitions, mode)
            driver.settle()
            driver.fail_over()
            assert driver.granted("a", partitions, mode, resume=first.epoch).grant_id == first.grant_id
            assert all(driver.may_write(first, partition) for partition in partitions)
            driver.release("a", first.grant_id)
            driver.fail_over()
            again = driver.granted("b", partitions, mode, resume=first.epoch)
            driver.settle()
            assert again.epoch == first.epoch
            stale = ProducerFenced(current_epoch=first.epoch, reason="other_session")
            assert [driver.append(first, partition) for partition in partitions] == [stale] * len(partitions)
            assert all(driver.may_write(again, partition) for partition in partitions)
            driver.release("b", again.grant_id)


@pytest.mark.parametrize("held", EXCLUSIVE_MODES)
@pytest.mark.parametrize("mode", MODES)
def test_010_a_holder_whose_epoch_was_passed_cannot_come_back(held: Mode, mode: Mode) -> None:
    driver = house()
    first = driver.granted("a", mode=held)
    driver.settle()
    driver.close("a")
    second = driver.granted("b", mode=held)
    driver.close("b")
    driver.settle()
    driver.fail_over()
    passed = ProducerFenced(current_epoch=second.epoch, reason="superseded")
    assert driver.acquire("c", mode=mode, resume=first.epoch) == passed
    assert driver.append(first, 0) == passed


def test_017_a_stale_resume_is_refused_before_any_grant_is_evicted() -> None:
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("resume", [3, 2**63, 2**64 - 1])
def test_019_an_epoch_that_was_never_issued_is_refused_in_any_state_and_not_stored(mode: str, resume: int) -> None:
    driver = house(sessions="abcd")

    def refused(epoch: int) -> None:
        assert driver.acquire("d", mode=mode, resume=resume) == InvalidFencingToken(current_epoch=epoch)
        assert driver.epochs() == [epoch, 0]

    refused(0)  # never used
    driver.granted("a", mode="Shared")
    refused(0)
    driver.granted("b", mode="ExclusiveWithFencing")
    refused(1)
    driver.waiting("c")
    refused(1)
    assert driver.holders() == ["b", None]
    driver.close("b")
    driver.close("c")
    refused(2)  # free again


def test_resuming_needs_one_epoch_on_the_whole_set() -> None:
    driver = house(partitions=3)
    driver.granted("a", [0, 1])
    driver.close("a")
    assert driver.acquire("b", [0, 2], resume=1) == InvalidFencingToken(current_epoch=0)
    assert driver.acquire("b", [0, 2], resume=0) == ProducerFenced(current_epoch=1, reason="superseded")
    assert driver.granted("b", [0, 1], resume=1).epoch == 1


def test_resuming_over_another_grant_takes_a_new_epoch_and_may_be_repeated() -> None:
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


@pytest.mark.parametrize("mode", EXCLUSIVE_MODES)
def test_023_a_repeated_acquire_is_the_same_grant(mode: str) -> None:
    driver = house()
    grant = driver.granted("a", [0, 1])
    driver.settle()
    again = driver.acquire("a", [1, 0], mode)
    assert again == driver.grant(grant.grant_id)
    assert driver.epochs() == [1, 1]
    assert driver.acquire("a", None, mode) == again, "all is the same set here"


@pytest.mark.parametrize(
    ("session", "request_", "refusal"),
    [
        ("nobody", {"mode": "exclusive", "topic": "no"}, InvalidRequest),
        ("nobody", {"mode": "", "topic": "no"}, InvalidRequest),
        ("nobody", {"ttl_ms": 0, "topic": "no"}, InvalidRequest),
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
