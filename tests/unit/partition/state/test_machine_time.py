"""Time on a partition: cases of SEMANTICS 8 and 11 about forgetting; the number is in the name."""

import zlib

import pytest

from stockade.partition.commands import (
    Append,
    Appended,
    Configure,
    ForgetProducers,
    NotEnrolled,
    ProducersForgotten,
    Retain,
    Stamp,
    Token,
    Trim,
    Trimmed,
)
from stockade.partition.config import PartitionConfig
from stockade.partition.errors import (
    InvalidProducerEpoch,
    InvalidRequest,
    OffsetMismatch,
    ProducerBusy,
    ProducerFenced,
    StockadeError,
    ThrottlingQuotaExceeded,
    UnknownProducerId,
)
from stockade.partition.state import message_ids, snapshot

from ..driver import ANONYMOUS, NAMED, OTHER_ANONYMOUS, TOPIC_ID, Driver, grant, repeated, state, stored

TTL_MS = 1000
ABSENT = {"state": "absent", "base_offset": None, "last_offset": None}
FORGOTTEN = {"state": "unknown", "base_offset": None, "last_offset": None, "reason": "forgotten"}


def used_at_0(pid: int = NAMED, token: Token | None = None) -> Driver:
    """A producer that stored batches 0 and 1 at lease clock 0."""
    driver = Driver(replicas=3, producer_ttl_ms=TTL_MS)
    driver.enrol(pid)
    for sequence in range(2):
        driver.append(Stamp(pid, 0, sequence), token=token)
    return driver


def pass_time(driver: Driver, now_ms: int) -> None:
    driver.now_ms = now_ms
    assert isinstance(driver.apply(Retain(0, now_ms)), Trimmed)


def test_077_an_idle_producer_is_forgotten_after_its_ttl_and_begins_anew_with_its_next_epoch() -> None:
    driver = used_at_0()
    driver.now_ms = TTL_MS - 1
    assert stored(driver.send(NAMED, 0, 2)) == (2, 2)
    driver.now_ms = 2 * TTL_MS - 1  # idle for as long as the ttl: that is enough
    assert driver.send(NAMED, 0, 3) == NotEnrolled(NAMED)
    assert driver.machine.producer(NAMED) is None
    driver.enrol(NAMED, 0)
    assert driver.send(NAMED, 0, 3) == UnknownProducerId(log_start=0, log_end=3)
    driver.enrol(NAMED, 1)
    assert stored(driver.send(NAMED, 1, 0)) == (3, 3)


def test_077_an_anonymous_producer_that_was_forgotten_raises_its_epoch_by_itself() -> None:
    driver = used_at_0(ANONYMOUS)
    driver.now_ms = TTL_MS
    assert driver.send(ANONYMOUS, 0, 2) == UnknownProducerId(log_start=0, log_end=2)
    driver.enrol(ANONYMOUS)
    assert stored(driver.send(ANONYMOUS, 1, 0)) == (2, 2)


def test_078_a_producer_that_writes_under_a_live_grant_is_not_forgotten() -> None:
    driver = Driver(replicas=3, producer_ttl_ms=TTL_MS)
    driver.enrol(NAMED)
    driver.enrol(OTHER_ANONYMOUS)
    driver.seat(1, 1)
    token = Token(grant(1), 1, "s1")
    driver.append(Stamp(NAMED, 0, 0), token=token)
    pass_time(driver, 10 * TTL_MS)
    assert driver.machine.producer(OTHER_ANONYMOUS) is None
    assert stored(driver.append(Stamp(NAMED, 0, 1), token=token)) == (1, 1)
    driver.clear(1, 1)
    pass_time(driver, 11 * TTL_MS)
    driver.enrol(NAMED, 0)
    assert driver.send(NAMED, 0, 2) == UnknownProducerId(log_start=0, log_end=2)


@pytest.mark.parametrize("sequence", [0, 1])
def test_081_the_epoch_of_a_named_producer_that_was_forgotten_is_judged_before_its_sequence(sequence: int) -> None:
    driver = used_at_0()
    driver.now_ms = 2 * TTL_MS
    assert driver.send(NAMED, 0, sequence) == NotEnrolled(NAMED)
    driver.enrol(NAMED, 1)  # as the registry has it by now
    for epoch in (0, 7):
        refusal = driver.send(NAMED, epoch, sequence)
        assert isinstance(refusal, InvalidProducerEpoch)
        assert (refusal.fields["current_epoch"], refusal.fields["outcome"]["state"]) == (1, "unknown")


def test_a_forgotten_producer_whose_batch_is_refused_takes_no_live_ones_place() -> None:
    """Otherwise one zombie could have each of them forgotten in turn."""
    driver = Driver(replicas=3, max_producers=2)
    for pid in (NAMED, NAMED + 2, NAMED + 4):
        driver.enrol(pid)
        assert stored(driver.send(pid, 0, 0))
    assert driver.machine.producer(NAMED) is None
    assert driver.send(NAMED, 0, 1) == UnknownProducerId(log_start=0, log_end=3)
    for pid in (NAMED + 2, NAMED + 4):
        assert stored(driver.send(pid, 0, 1))


@pytest.mark.parametrize("dropping", [Retain(2, 0), Trim(2), Trim(None)], ids=["retention", "trim", "trim all"])
def test_079_dropping_records_keeps_the_producers_and_the_epoch(dropping: Retain | Trim) -> None:
    driver = used_at_0()
    driver.seat(1, 4)
    driver.clear(1, 4)
    assert driver.apply(dropping) == Trimmed(2, 2)
    assert repeated(driver.send(NAMED, 0, 1)) == (1, 1)
    assert stored(driver.send(NAMED, 0, 2)) == (2, 2)
    assert driver.machine.topic_epoch == 4


def test_080_timestamps_of_records_and_of_receipt_say_nothing_about_idleness() -> None:
    driver = used_at_0()
    driver.now_ms = TTL_MS - 1  # the wall clock of the driver stands at a second; a ttl is measured on the lease clock
    assert driver.machine.producer(NAMED) is not None
    assert stored(driver.send(NAMED, 0, 2)) == (2, 2)
    batch = driver.machine.log.read(2, 1).batches[0]
    assert batch.timestamp_ms > TTL_MS
    assert driver.machine.clock_ms == TTL_MS - 1


@pytest.mark.parametrize("record_ms", [0, TTL_MS - 2, 10**15])
def test_080_a_batch_of_any_date_keeps_its_producer_for_a_ttl_from_when_it_was_stored(record_ms: int) -> None:
    driver = used_at_0()
    driver.now_ms = TTL_MS - 1
    dated = Append(b"x", 1, zlib.crc32(b"x"), record_ms, record_ms, stamp=Stamp(NAMED, 0, 2), now_ms=driver.now_ms)
    assert stored(driver.apply(dated)) == (2, 2)
    pass_time(driver, 2 * TTL_MS - 2)
    assert driver.machine.producer(NAMED) is not None
    pass_time(driver, 2 * TTL_MS - 1)
    assert driver.machine.producer(NAMED) is None


def test_081_a_zombie_of_a_forgotten_name_cannot_begin_at_its_old_epoch() -> None:
    """The partition asks the registry, which tells the epoch in force."""
    driver = used_at_0()
    pass_time(driver, TTL_MS)
    assert driver.send(NAMED, 0, 0) == NotEnrolled(NAMED)
    driver.enrol(NAMED, 7)
    assert driver.send(NAMED, 0, 0) == InvalidProducerEpoch(current_epoch=7, outcome=FORGOTTEN)
    assert driver.log_end == 2


def test_an_install_decided_before_the_producer_was_forgotten_is_ignored() -> None:
    """A late install of epoch 1 must not bring back what epoch 2 has fenced."""
    driver = Driver(replicas=3, max_producers=1)
    driver.enrol(NAMED, 2, order=200)
    stored(driver.send(NAMED, 2, 0))
    driver.enrol(OTHER_ANONYMOUS, order=300)  # no room: the other one is forgotten
    driver.enrol(NAMED, 1, order=100)
    assert driver.send(NAMED, 1, 0) == NotEnrolled(NAMED)
    driver.enrol(NAMED, 2, order=301)
    assert driver.send(NAMED, 1, 0) == InvalidProducerEpoch(current_epoch=2, outcome=FORGOTTEN)


def test_an_install_decided_before_forget_producers_is_ignored_for_an_unknown_producer() -> None:
    """The controller counts on it: it forgets the producer, whose epochs begin anew with another decision."""
    driver = Driver(replicas=3)
    driver.enrol(ANONYMOUS, order=100)
    assert driver.apply(ForgetProducers([NAMED, ANONYMOUS], order=100)) == ProducersForgotten([NAMED])
    driver.enrol(NAMED, 1, order=100)
    assert driver.send(NAMED, 1, 0) == NotEnrolled(NAMED)
    driver.enrol(NAMED, 0, order=101)
    assert stored(driver.send(NAMED, 0, 0)) == (0, 0)


def test_the_lease_clock_of_a_partition_never_goes_back() -> None:
    driver = used_at_0()
    pass_time(driver, TTL_MS - 1)
    driver.now_ms = 5
    stored(driver.send(NAMED, 0, 2))
    assert driver.machine.clock_ms == TTL_MS - 1
    entry = driver.machine.producer(NAMED)
    assert entry is not None
    assert entry.last_used_ms == TTL_MS - 1


def test_lowering_the_cap_forgets_the_least_recently_used() -> None:
    driver = Driver(replicas=3)
    for pid in (8, 10, 12):
        driver.enrol(pid)
    driver.apply(Configure(5, PartitionConfig(TOPIC_ID, max_producers=1)))
    assert list(driver.machine.producers.entries) == [12]
    assert driver.machine.producers.max_dropped_pid == 10


def windowed(window_ms: int = 100) -> Driver:
    return Driver(replicas=3, dedupe_window_ms=window_ms)


def test_a_repeated_message_id_is_a_duplicate_within_the_dedupe_window() -> None:
    driver = windowed()
    driver.now_ms = 50
    assert stored(driver.append(count=3, message_id="m")) == (0, 2)
    driver.now_ms = 149
    assert repeated(driver.append(count=3, message_id="m")) == (0, 2)
    assert stored(driver.append(message_id="n")) == (3, 3)
    driver.now_ms = 150
    assert stored(driver.append(count=3, message_id="m")) == (4, 6)


def test_a_repeated_message_id_is_judged_before_if_log_end_and_uses_no_sequence_number() -> None:
    driver = windowed()
    first = driver.append(message_id="m", if_log_end=0)
    before = state(driver.machine)
    again = driver.append(message_id="m", if_log_end=0)
    assert (stored(first), repeated(again)) == ((0, 0), (0, 0))
    assert isinstance(first, Appended)
    assert isinstance(again, Appended)
    assert again.timestamp_ms == first.timestamp_ms
    assert state(driver.machine) == before
    assert stored(driver.append(message_id="n", if_log_end=1)) == (1, 1)


def test_the_message_id_of_a_refused_batch_is_not_remembered() -> None:
    driver = windowed()
    assert driver.append(message_id="m", if_log_end=7) == OffsetMismatch(log_end=0)
    driver.seat(1, 1)
    assert isinstance(driver.append(message_id="m"), ProducerBusy)
    driver.clear(1, 1)
    assert stored(driver.append(message_id="m")) == (0, 0)


def test_the_sequence_number_is_judged_before_the_message_id() -> None:
    driver = windowed()
    driver.enrol(NAMED)
    stored(driver.append(Stamp(NAMED, 0, 0), message_id="m"))
    assert repeated(driver.append(Stamp(NAMED, 0, 0), message_id="other")) == (0, 0)
    assert repeated(driver.append(Stamp(NAMED, 0, 1), message_id="m")) == (0, 0)
    assert stored(driver.append(Stamp(NAMED, 0, 1), message_id="other")) == (1, 1)


def test_a_message_id_is_refused_on_a_topic_without_a_dedupe_window() -> None:
    assert isinstance(Driver().append(message_id="m"), InvalidRequest)


def test_a_certificate_knows_a_message_id_that_was_stored_with_another_stamp() -> None:
    """It said "absent": a writer that believed it stored the batch twice."""
    driver = Driver(dedupe_window_ms=10_000)
    driver.seat(1, 1)
    driver.enrol(NAMED)
    stored(driver.append(Stamp(NAMED, 0, 0), token=Token(grant(1), 1, "s1"), message_id="m"))
    driver.enrol(NAMED, 1)
    driver.seat(2, 2)
    late = [
        driver.append(Stamp(NAMED, epoch, 0), token=Token(grant(number), number, "s1"), message_id=name)
        for name in ("m", "n")
        for epoch, number in ((1, 1), (0, 2))
    ]
    assert [type(each) for each in late] == [ProducerFenced, InvalidProducerEpoch] * 2
    states = [each.fields["outcome"]["state"] for each in late if isinstance(each, StockadeError)]
    assert states == ["committed", "committed", "absent", "committed"], "the last one by its stamp"


def test_a_message_id_beyond_the_bound_is_refused_until_the_oldest_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_ids, "MESSAGE_IDS_MAX", 2)
    driver = windowed()
    for now_ms, name in ((0, "a"), (30, "b")):
        driver.now_ms = now_ms
        stored(driver.append(message_id=name))
    driver.now_ms = 40
    assert driver.append(message_id="c") == ThrottlingQuotaExceeded(retry_after_ms=60)
    assert repeated(driver.append(message_id="a")) == (0, 0)
    assert stored(driver.append()) == (2, 2)
    driver.now_ms = 100
    assert stored(driver.append(message_id="c")) == (3, 3)
    assert list(driver.machine.message_ids.batches) == ["b", "c"]


def test_after_the_dedupe_window_is_shortened_due_message_ids_make_room_before_older_ones_that_are_not_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_ids, "MESSAGE_IDS_MAX", 2)
    driver = windowed(86_400_000)
    stored(driver.append(message_id="long"))
    driver.apply(Configure(5, PartitionConfig(TOPIC_ID, dedupe_window_ms=100)))
    driver.now_ms = 20
    stored(driver.append(message_id="short"))
    assert driver.append(message_id="more") == ThrottlingQuotaExceeded(retry_after_ms=100)
    for now_ms, hides in ((119, False), (120, True)):
        driver.apply(Retain(0, now_ms))  # as a leader at feature level 1 does
        driver.now_ms = now_ms
        assert driver.machine.message_ids.hides_due(now_ms) is hides
        wait_ms = message_ids.RETRY_AFTER_MS if hides else 1
        assert driver.append(message_id="more") == ThrottlingQuotaExceeded(retry_after_ms=wait_ms)
    driver.apply(Retain(0, 120, all_message_ids=True))
    assert stored(driver.append(message_id="more")) == (2, 2)
    assert list(driver.machine.message_ids.batches) == ["long", "more"]
    assert repeated(driver.append(message_id="long")) == (0, 0)
    assert snapshot.encode(driver.replayed()) == snapshot.encode(driver.machine)


def test_a_shortened_dedupe_window_applies_to_new_message_ids_only() -> None:
    driver = windowed(1000)
    stored(driver.append(message_id="long"))
    driver.apply(Configure(5, PartitionConfig(TOPIC_ID, dedupe_window_ms=10)))
    stored(driver.append(message_id="short"))
    driver.now_ms = 9
    assert repeated(driver.append(message_id="short")) == (1, 1)
    driver.now_ms = 10  # its window is over, though an older name is remembered still
    assert repeated(driver.append(message_id="long")) == (0, 0)
    assert stored(driver.append(message_id="short")) == (2, 2)
