"""Sequence numbers that go round their circle: cases of SEMANTICS 11; the number is in the name.

Batches of half a circle stand for years of writing; a machine looks at their count alone.
"""

from stockade.partition.commands import InstallProducer, ProducerInstalled, Stamp
from stockade.partition.errors import InvalidProducerEpoch, OutOfOrderSequence

from ..driver import NAMED, Driver, repeated, stored

HALF = 1 << 30
MAX = 2147483647


def at_the_last_number(short_of_it: int = 0) -> Driver:
    """The producer has stored every number up to 2147483647 - ``short_of_it``."""
    driver = Driver()
    driver.enrol(NAMED)
    stored(driver.send(NAMED, 0, 0, HALF))
    stored(driver.send(NAMED, 0, HALF, HALF - short_of_it))
    return driver


def test_061_after_the_last_number_comes_0() -> None:
    driver = at_the_last_number()
    assert stored(driver.send(NAMED, 0, 0)) == (2 * HALF, 2 * HALF)
    assert stored(driver.send(NAMED, 0, 1)) == (2 * HALF + 1, 2 * HALF + 1)


def test_062_a_batch_that_straddles_the_wrap_is_stored_whole_and_recognised() -> None:
    driver = at_the_last_number(11)
    base = driver.log_end
    assert stored(driver.send(NAMED, 0, MAX - 10, 21)) == (base, base + 20)
    assert repeated(driver.send(NAMED, 0, MAX - 10, 21)) == (base, base + 20)
    assert stored(driver.send(NAMED, 0, 10)) == (base + 21, base + 21)


def test_063_after_the_last_number_1_is_a_gap() -> None:
    driver = at_the_last_number()
    refusal = OutOfOrderSequence(reason="gap", expected_seq=0, last_seq=MAX)
    assert driver.send(NAMED, 0, 1) == refusal
    assert driver.log_end == 2 * HALF


def test_117_an_old_batch_before_the_wrap_is_a_duplicate_without_offsets() -> None:
    driver = at_the_last_number(8)
    stored(driver.send(NAMED, 0, 2147483640, 6))
    for first_seq, count in ((2147483646, 2), (0, 1), (1, 1), (2, 1), (3, 3)):
        stored(driver.send(NAMED, 0, first_seq, count))
    entry = driver.machine.producer(NAMED)
    assert entry is not None
    assert (entry.run.last_seq, entry.run.records) == (5, 2 * HALF + 6)
    assert repeated(driver.send(NAMED, 0, 2147483640, 6)) == (None, None)


def test_121_a_late_batch_that_was_applied_before_the_bump_is_known_to_be_stored() -> None:
    """The client heard nothing, raises its epoch, looks, and sends again only what is missing."""
    driver = Driver(replicas=3)
    driver.enrol(NAMED)
    stored(driver.send(NAMED, 0, 0, 3))  # its answer was lost
    assert driver.apply(InstallProducer(NAMED, 1, 50)) == ProducerInstalled(1)
    entry = driver.machine.producer(NAMED)
    assert entry is not None
    assert entry.prev is not None
    assert (entry.prev.last_seq, entry.prev.cache[-1].base_offset) == (2, 0)
    assert driver.send(NAMED, 0, 0, 3).fields["outcome"]["state"] == "committed"  # type: ignore[union-attr]
    assert driver.log_end == 3


def test_121_a_late_batch_that_comes_after_the_bump_is_refused_and_stored_once_when_resent() -> None:
    driver = Driver(replicas=3)
    driver.enrol(NAMED)
    assert driver.apply(InstallProducer(NAMED, 1, 50)) == ProducerInstalled(1)
    late = driver.send(NAMED, 0, 0, 3)
    assert isinstance(late, InvalidProducerEpoch)
    assert late.fields["outcome"]["state"] == "absent"
    assert stored(driver.append(Stamp(NAMED, 1, 0), 3)) == (0, 2)
    assert driver.log_end == 3
