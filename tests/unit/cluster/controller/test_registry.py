"""InitProducerId row by row (SEMANTICS 5.7, 5.15, 6.5).

Numbers in names are those of SEMANTICS 11.
"""

import random

import pytest
from msgspec.structs import replace

from stockade.cluster.controller import producers
from stockade.cluster.controller.commands import Enrol, Enrolled, InitProducer, ProducerState, RaiseFeatureLevel
from stockade.cluster.controller.ownership.work import ProducerInstall
from stockade.cluster.controller.producers import NONCES_PER_NAME_MAX
from stockade.cluster.controller.topology.catalog import group_id
from stockade.cluster.model import By
from stockade.partition.errors import InvalidRequest, NotFound, ProducerFenced, ThrottlingQuotaExceeded

from ..driver import Driver
from ..producers import EXHAUSTED, PID, at, fence, fenced, producer, row_of


def test_043_without_a_name_every_call_gives_another_id_of_epoch_0() -> None:
    driver = Driver()
    assert [driver.init(None) for _ in range(3)] == [producer(pid, 0, None) for pid in (1000, 1002, 1004)]
    assert driver.init(None, pair=(1000, 0), nonce="n") == producer(1006, 0, None)


def test_044_an_empty_name_is_refused() -> None:
    assert isinstance(Driver().init(""), InvalidRequest)


def test_045_a_new_name_has_epoch_0_and_names_have_odd_ids() -> None:
    driver = Driver()
    assert driver.init("w") == producer(1001, 0)
    assert driver.init("v") == producer(1003, 0, "v")
    assert driver.machine.registry.find("v") == driver.machine.registry.find(1003) == producer(1003, 0, "v")
    assert driver.machine.registry.find("u") is None
    assert driver.machine.registry.find(1000) is None


def test_046_an_unknown_name_with_a_pair_gets_a_fresh_id() -> None:
    assert Driver().init("w", pair=(77, 5)) == producer(PID, 0)


def test_047_without_a_pair_the_epoch_is_bumped_and_the_old_pair_is_fenced() -> None:
    driver = at(10)
    assert driver.init("w") == producer(PID, 11)
    assert driver.init("w", pair=(PID, 10)) == fenced(11)


def test_048_with_the_own_pair_the_epoch_is_bumped_once_however_often_it_is_asked() -> None:
    driver = at(10)
    assert driver.init("w", pair=(PID, 10)) == producer(PID, 11)
    assert driver.init("w", pair=(PID, 10)) == producer(PID, 11)
    assert driver.init("w", pair=(PID, 11)) == producer(PID, 12)
    assert driver.init("w", pair=(PID, 10)) == fenced(12)


def test_049_a_pair_one_epoch_behind_without_a_last_pair_is_fenced() -> None:
    assert at(10).init("w", pair=(PID, 9)) == fenced(10)


@pytest.mark.parametrize("pair", [(PID + 2, 10), (PID - 2, 10), (PID, 11), (PID, 32767)])
def test_050_a_pair_of_another_id_or_never_issued_is_fenced(pair: tuple[int, int]) -> None:
    assert at(10).init("w", pair=pair) == fenced(10)


def test_051_with_epochs_used_up_and_no_pair_there_is_a_new_id() -> None:
    driver = at(EXHAUSTED)
    assert driver.init("w") == producer(PID + 2, 0)
    assert driver.init("w", pair=(PID, EXHAUSTED)) == fenced(0)


def test_052_with_epochs_used_up_the_own_pair_gets_a_new_id_and_its_retry_the_same() -> None:
    driver = at(EXHAUSTED)
    assert driver.init("w", pair=(PID, EXHAUSTED)) == producer(PID + 2, 0)
    assert driver.init("w", pair=(PID, EXHAUSTED)) == producer(PID + 2, 0)


def test_053_after_the_rotation_an_older_pair_is_fenced() -> None:
    driver = at(EXHAUSTED)
    driver.init("w", pair=(PID, EXHAUSTED))
    assert driver.init("w", pair=(PID, EXHAUSTED - 1)) == fenced(0)


def test_054_the_retry_of_the_last_bump_is_answered_though_the_epochs_are_used_up() -> None:
    driver = at(EXHAUSTED - 1)
    assert driver.init("w", pair=(PID, EXHAUSTED - 1)) == producer(PID, EXHAUSTED)
    assert driver.init("w", pair=(PID, EXHAUSTED - 1)) == producer(PID, EXHAUSTED)


def test_055_a_fence_takes_the_epoch_kept_for_the_server_and_then_rotates() -> None:
    driver = at(EXHAUSTED, last=(PID, EXHAUSTED - 1))
    assert fence(driver) == producer(PID, 32767)
    assert driver.init("w", pair=(PID, EXHAUSTED - 1)) == fenced(32767)
    assert fence(driver) == producer(PID + 2, 0)


def test_a_fenced_producer_does_not_get_the_epoch_of_the_fence_by_repeating_itself() -> None:
    driver = Driver()
    driver.init("w", nonce="n")
    driver.init("w", pair=(PID, 0))
    assert fence(driver) == producer(PID, 2)
    refusal = driver.init("w", nonce="n")
    assert refusal == fenced(2)
    assert isinstance(refusal, ProducerFenced)
    assert "or the name was fenced" in refusal.detail, "no later producer has started"
    assert driver.init("w", pair=(PID, 0)) == fenced(2)
    assert driver.init("w", pair=(PID, 1)) == fenced(2)
    assert driver.init("w", nonce="m") == producer(PID, 3)


def test_an_unknown_name_cannot_be_fenced() -> None:
    assert fence(Driver()) == NotFound(what="producer")


def test_056_every_replica_gives_the_same_answer_to_a_retry() -> None:
    driver = Driver(replicas=3)
    driver.init("w", nonce="n")
    driver.term = 2
    assert driver.init("w", nonce="n") == producer(PID, 0)
    assert driver.init("w", pair=(PID, 0)) == producer(PID, 1)
    driver.term = 3
    assert driver.init("w", pair=(PID, 0)) == producer(PID, 1)
    assert len({machine.capture().state for machine in driver.machines}) == 1


@pytest.mark.parametrize("epoch", [10, EXHAUSTED])
def test_056_a_retry_at_the_next_leader_is_answered_as_the_first_call_was(epoch: int) -> None:
    driver = at(epoch)
    answer = driver.init("w", pair=(PID, epoch))
    driver.fail_over()
    assert driver.init("w", pair=(PID, epoch)) == answer


def test_058_a_first_call_repeated_with_its_nonce_bumps_once() -> None:
    driver = Driver()
    driver.init("w")
    assert driver.init("w", nonce="n") == producer(PID, 1)
    assert driver.init("w", nonce="n") == producer(PID, 1)
    assert driver.init("w", pair=(PID, 1)) == producer(PID, 2)
    assert driver.init("w", nonce="n") == producer(PID, 2), "the same instance, whose epoch is another by now"


def test_122_a_delayed_copy_of_an_older_first_call_is_refused() -> None:
    driver = Driver()
    driver.init("w", nonce="a")
    assert driver.init("w", nonce="b") == producer(PID, 1)
    assert driver.init("w", nonce="a") == fenced(1)
    assert driver.init("w") == producer(PID, 2)
    assert driver.init("w", nonce="b") == fenced(2), "an instance without a nonce supersedes as well"
    assert driver.init("w", nonce="c") == producer(PID, 3)


def test_nonces_are_remembered_up_to_a_bound() -> None:
    driver = Driver()
    for number in range(NONCES_PER_NAME_MAX + 1):
        driver.init("w", nonce=f"n{number}")
    assert driver.init("w", nonce="n1") == fenced(NONCES_PER_NAME_MAX)
    assert driver.init("w", nonce="n0") == producer(PID, NONCES_PER_NAME_MAX + 1), "forgotten"


def taken_over(*, by_pair: bool, level: int = 2) -> tuple[Driver, InitProducer]:
    """The name is alice's, at epoch 1, and enrolled; the command is that of her last call, from bob who may evict."""
    driver = Driver()
    if level == 2:
        driver.do(RaiseFeatureLevel(now_ms=0, level=2, supporting=["n1", "n2", "n3"]))
    group = group_id(driver.topic(), 0)
    driver.do(InitProducer(now_ms=0, by=By("alice"), name="w", nonce="m"))
    call = InitProducer(now_ms=0, by=By("alice"), name="w", nonce=None if by_pair else "n")
    if by_pair:
        call = replace(call, pair=(PID, 0))
    assert driver.do(call) == driver.do(call) == producer(PID, 1)
    assert isinstance(driver.do(Enrol(now_ms=0, pid=PID, group_id=group)), Enrolled)
    return driver, replace(call, by=By("bob", evicts=True))


@pytest.mark.parametrize("by_pair", [False, True])
def test_another_principal_that_takes_a_name_fences_its_writer_also_when_it_repeats_the_writers_call(
    by_pair: bool,
) -> None:
    driver, call = taken_over(by_pair=by_pair)
    taken = driver.do(call)
    assert isinstance(taken, ProducerState)
    assert (taken.pid, taken.epoch, row_of(driver).principal) == (PID, 2, "bob")
    [fence] = taken.pending
    assert (fence.pid, fence.epoch) == (PID, 2), "the partition that knows the writer is told"
    assert [work.command.principal for work in driver.machine.work() if isinstance(work, ProducerInstall)] == ["bob"]
    assert driver.do(call) == taken, "its own repetition is one"
    assert driver.do(replace(call, by=By("", evicts=True))) == taken, "without principals the name stays bob's"


def test_another_principal_takes_a_name_whose_epochs_are_used_up() -> None:
    driver, call = taken_over(by_pair=False)
    for machine in (driver.machine, driver.twin):
        machine.registry.rows["w"].epoch = EXHAUSTED
    taken = driver.do(call)
    assert isinstance(taken, ProducerState)
    assert (taken.pid, taken.epoch) == (PID + 2, 0)


@pytest.mark.parametrize("by_pair", [False, True])
def test_at_level_1_a_repeated_call_answers_the_present_pair_as_in_older_software(by_pair: bool) -> None:
    driver, call = taken_over(by_pair=by_pair, level=1)
    assert driver.do(call) == producer(PID, 1)


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "NAMES_MAX", 1)
    driver = Driver()
    driver.init("w")
    assert driver.init("v") == ThrottlingQuotaExceeded(retry_after_ms=1000)
    assert driver.init("w") == producer(PID, 1)


@pytest.mark.parametrize("seed", range(20))
def test_random_calls_agree_with_a_plain_reading_of_the_table(seed: int) -> None:
    rng = random.Random(seed)
    driver = Driver()
    row: dict[str, tuple[int, int] | None] = {"pair": None, "last": None}
    fresh = iter(range(PID, 10**6, 2))
    pairs: list[tuple[int, int]] = [(PID, 0)]
    for _ in range(300):
        supplied = rng.choice([None, *pairs[-4:]])
        current, last = row["pair"], row["last"]
        answer = driver.init("w", pair=supplied)
        if current is None:
            row = {"pair": (next(fresh), 0), "last": None}
        elif supplied is not None and supplied == last:
            pass
        elif supplied not in (None, current):
            assert answer == fenced(current[1])
            continue
        else:
            row = {"pair": (current[0], current[1] + 1), "last": supplied}
        assert row["pair"] is not None
        assert answer == producer(*row["pair"])
        pairs.append(row["pair"])
