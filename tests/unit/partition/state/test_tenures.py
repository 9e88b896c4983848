"""What a partition remembers of who held its slot, and what it tells those who lost it."""

import pytest

from stockade.partition.commands import (
    Append,
    AppendStage,
    ClearFence,
    InstallFence,
    InstallSeats,
    SharedHolder,
    SlotState,
    Stamp,
    Token,
    Trim,
)
from stockade.partition.errors import ProducerFenced
from stockade.partition.state import fence, snapshot
from stockade.partition.state.fence import Tenure

from ..driver import Driver, grant, stored


def install(driver: Driver, number: int, now_ms: int, operation: str = "acquire", ends: str = "superseded") -> Token:
    driver.apply(
        InstallFence(
            grant(number),
            number,
            f"s{number}",
            "loader",
            "Exclusive",
            number,
            client_id=f"c{number}",
            now_ms=now_ms,
            operation=operation,
            ends=ends,
        )
    )
    return Token(grant(number), number, f"s{number}")


def tenure(
    number: int,
    since: int,
    until: int | None,
    end: str | None,
    refused: int = 0,
    by: str = "acquire",
    offsets: tuple[int, int | None] = (0, None),
) -> Tenure:
    fields = (grant(number), "Exclusive", number, "loader", f"c{number}", by, since, until, end, refused, 0)
    return Tenure(*fields, *offsets)


def test_tenures_have_the_holder_the_times_and_the_reason_of_the_end() -> None:
    driver = Driver(replicas=3)
    install(driver, 1, 100)
    driver.apply(ClearFence(grant(1), 1, 1, now_ms=200, ends="released"))
    install(driver, 2, 300)
    install(driver, 3, 400, operation="eviction", ends="evicted")
    assert driver.machine.tenures() == [
        tenure(3, 400, None, None, by="eviction"),
        tenure(2, 300, 400, "evicted", offsets=(0, 0)),
        tenure(1, 100, 200, "released", offsets=(0, 0)),
    ]


def test_producer_fenced_names_the_present_holder_and_the_end_of_the_writers_own_tenure() -> None:
    driver = Driver(replicas=3)
    old = install(driver, 1, 100)
    install(driver, 2, 300, operation="eviction", ends="evicted")
    refusal = driver.append(token=old)
    assert isinstance(refusal, ProducerFenced)
    assert refusal.fields["holder"] == {
        "grant": grant(2),
        "mode": "Exclusive",
        "producer_name": "loader",
        "client_id": "c2",
        "since_ms": 300,
        "since_unix_ms": None,
        "expires_in_ms": None,
        "operation": "eviction",
    }
    assert refusal.fields["ended"] == {"at_ms": 300, "end": "evicted"}


def test_producer_fenced_names_no_holder_of_a_free_slot_and_no_end_of_an_unknown_grant() -> None:
    driver = Driver()
    install(driver, 1, 100)
    driver.apply(ClearFence(grant(1), 1, 1, 200, "expired"))
    refusal = driver.append(token=Token(grant(9), 1, "s9"))
    assert isinstance(refusal, ProducerFenced)
    assert (refusal.fields["holder"], refusal.fields["ended"]) == (None, None)


def test_no_answer_shows_a_session() -> None:
    """A session id is a secret: who knows it may write."""
    driver = Driver()
    old = install(driver, 1, 100)
    install(driver, 2, 300)
    assert "s2" not in repr(driver.append(token=old))
    assert all("s1" not in repr(each) and "s2" not in repr(each) for each in driver.machine.tenures())


def test_refused_writes_are_counted_in_the_tenure_of_their_token() -> None:
    driver = Driver(replicas=3)
    old = install(driver, 1, 100)
    stored(driver.append(token=old))
    install(driver, 2, 300)
    for _ in range(3):
        driver.append(token=old)
    driver.append(token=Token(grant(2), 2, "stranger"))
    driver.append(token=Token(grant(7), 1, "never seen"))
    assert driver.machine.tenures() == [
        tenure(2, 300, None, None, offsets=(1, None)),
        tenure(1, 100, 300, "superseded", refused=3, offsets=(0, 1)),
    ]


@pytest.mark.parametrize("stamp", [None, Stamp(1, 0, 0)])
@pytest.mark.parametrize("number", [1, 2])
def test_asking_whether_a_batch_may_be_stored_changes_nothing(number: int, stamp: Stamp | None) -> None:
    """The leader asks for it alone, so a change would be a difference between the replicas."""
    driver = Driver(replicas=3)
    tokens = [install(driver, 1, 100), install(driver, 2, 300)]
    before = snapshot.encode(driver.machine)
    command = Append(b"x", 1, 0, 400, 400, stamp=stamp, token=tokens[number - 1])
    assert driver.machine.may_store(command) is (number == 2)
    assert snapshot.encode(driver.machine) == before


def test_an_append_of_a_stage_and_a_trim_that_come_too_late_are_counted_too() -> None:
    driver = Driver(replicas=3)
    old = install(driver, 1, 100)
    install(driver, 2, 300)
    for command in (AppendStage("none", 400, token=old), Trim(0, token=old)):
        assert isinstance(driver.apply(command), ProducerFenced)
    assert driver.machine.tenures()[1].refused == 2


def test_an_eviction_without_a_successor_leaves_the_slot_free_at_a_higher_epoch() -> None:
    """As a drill does: a grant that was never given out is cleared."""
    driver = Driver(replicas=3)
    old = install(driver, 1, 100)
    driver.apply(ClearFence("", 2, 5, now_ms=150, ends="fenced"))
    refusal = driver.append(token=old)
    assert refusal == ProducerFenced(current_epoch=2, reason="superseded")
    assert driver.machine.tenures() == [tenure(1, 100, 150, "fenced", refused=1, offsets=(0, 0))]


def test_shared_holders_have_tenures_of_their_own() -> None:
    driver = Driver(replicas=3)
    a, b = (SharedHolder(grant(number), f"s{number}", "loader", f"c{number}", 10 * number) for number in (1, 2))
    driver.apply(InstallSeats(0, 2, [a, b], now_ms=20))
    driver.apply(InstallSeats(0, 3, [b], now_ms=30, ends="closed"))
    assert [(t.grant_id, t.mode, t.since_ms, t.until_ms, t.end) for t in driver.machine.tenures()] == [
        (grant(2), "Shared", 20, None, None),
        (grant(1), "Shared", 10, 30, "closed"),
    ]


def test_the_history_is_bounded() -> None:
    driver = Driver()
    for number in range(1, fence.TENURES_MAX + 10):
        install(driver, number, number)
    known = driver.machine.tenures()
    assert len(known) == fence.TENURES_MAX + 1
    assert (known[0].epoch, known[-1].epoch) == (fence.TENURES_MAX + 9, 9)


def test_the_tenure_of_a_grant_is_found_while_it_holds_the_slot_and_afterwards() -> None:
    driver = Driver(replicas=3)
    install(driver, 1, 100)
    install(driver, 2, 300)
    fence = driver.machine.fence
    assert fence.tenure(grant(2)) == tenure(2, 300, None, None)
    assert fence.tenure(grant(1)) == tenure(1, 100, 300, "superseded", offsets=(0, 0))
    assert fence.tenure(grant(3)) is None


def test_a_fence_install_answers_the_log_end_where_it_took_effect_also_when_repeated() -> None:
    driver = Driver(replicas=3)
    old = install(driver, 1, 100)
    stored(driver.append(token=old))
    later = InstallFence(grant(2), 2, "s2", "loader", "Exclusive", 2, now_ms=300)
    installed = SlotState(done=True, topic_epoch=2, log_end=1, previous=1)
    assert driver.apply(later) == installed
    stored(driver.append(token=Token(grant(2), 2, "s2")))
    assert driver.apply(later) == SlotState(done=True, topic_epoch=2, log_end=1, previous=1), (
        "not where the log ends by now"
    )
    late = InstallFence(grant(1), 1, "s1", "loader", "Exclusive", 1)
    assert driver.apply(late) == SlotState(done=False, topic_epoch=2), "it is not in force: it has no place"
    free = ClearFence(grant(2), 2, 3, now_ms=400)
    assert driver.apply(free) == SlotState(done=True, topic_epoch=2, log_end=2, previous=2)
    stored(driver.append())
    assert driver.apply(free) == SlotState(done=True, topic_epoch=2, log_end=2, previous=2)


def test_each_shared_holder_has_the_offsets_of_its_own_tenure() -> None:
    driver = Driver(replicas=3)
    a, b = (SharedHolder(grant(number), f"s{number}", "loader", f"c{number}", 10 * number) for number in (1, 2))
    driver.apply(InstallSeats(0, 1, [a]))
    stored(driver.append())
    driver.apply(InstallSeats(0, 2, [a, b]))
    stored(driver.append())
    driver.apply(InstallSeats(0, 3, [b]))
    offsets = {each.grant_id: (each.from_offset, each.until_offset) for each in driver.machine.tenures()}
    assert offsets == {grant(1): (0, 2), grant(2): (1, None)}


def test_a_shared_holder_from_before_an_upgrade_has_no_first_offset() -> None:
    """Software of the release before kept none; where a later one came is not where this one began."""
    driver = Driver(replicas=3)
    a, b = (SharedHolder(grant(number), f"s{number}", "loader", f"c{number}", 10 * number) for number in (1, 2))
    driver.apply(InstallSeats(0, 1, [a]))
    for machine in driver.machines:
        machine.fence.taken_at.clear()
    stored(driver.append())
    driver.apply(InstallSeats(0, 2, [a, b]))
    stored(driver.append())
    driver.apply(InstallSeats(0, 3, [b]))
    offsets = {each.grant_id: (each.from_offset, each.until_offset) for each in driver.machine.tenures()}
    assert offsets == {grant(1): (None, 2), grant(2): (1, None)}
