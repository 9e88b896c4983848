"""Table 6.6 row by row, and the outcome certificates of 7.6, on entries made by hand."""

import pytest
from msgspec.structs import replace

from stockade.partition.commands import SEQUENCE_MODULUS, Stamp
from stockade.partition.errors import InvalidProducerEpoch, OutOfOrderSequence, StockadeError
from stockade.partition.state.producers import (
    OLDER_EPOCH,
    OTHER_BOUNDS,
    CachedBatch,
    Entry,
    Outcome,
    Repeated,
    SequenceRun,
    certify,
    judge,
)

from ..driver import ANONYMOUS, NAMED

MAX = SEQUENCE_MODULUS - 1


def run_of(*counts: int, epoch: int = 0, first_seq: int = 0, records_before: int = 0) -> SequenceRun:
    """A run that stored batches of these sizes from ``first_seq``, with ``records_before`` records ahead of them."""
    run = SequenceRun(epoch, first_seq - 1, records_before)
    for count in counts:
        run.extend(run.next_seq, count, run.records, 1000 + run.records)
    return run


def out_of_order(reason: str, expected: int, last: int) -> StockadeError:
    return OutOfOrderSequence(reason=reason, expected_seq=expected, last_seq=last)


def remembered(first_seq: int, count: int) -> Repeated:
    """A batch of a run that began at offset 0, where offsets and numbers are equal."""
    last = first_seq + count - 1
    return Repeated(CachedBatch(first_seq, last, first_seq, last, 1000 + first_seq))


ONE_TO_SEVEN = run_of(1, 2, 3, 4, 5, 6, 7)  # 0 | 1-2 | 3-5 | 6-9 | 10-14 | 15-20 | 21-27; the last five are remembered
FULL_TURN = run_of(1, 1, 1, 1, 1, first_seq=1, records_before=SEQUENCE_MODULUS + 1)  # ends at 5, test 117
AT_MAX = run_of(5, first_seq=MAX - 4, records_before=MAX - 4)
BEFORE_WRAP = run_of(1, first_seq=MAX - 11, records_before=MAX - 11)


@pytest.mark.parametrize(
    ("run", "first_seq", "count", "verdict"),
    [
        pytest.param(SequenceRun(2), 0, 1, None, id="64-fence-only-entry-takes-0"),
        pytest.param(
            SequenceRun(2), 17, 1, out_of_order("no_state", 0, -1), id="64-fence-only-entry-takes-nothing-else"
        ),
        pytest.param(SequenceRun(2), MAX, 1, out_of_order("no_state", 0, -1), id="fence-only-entry-was-never-at-max"),
        pytest.param(run_of(1), 1, 1, None, id="60-next"),
        pytest.param(run_of(1, 1), 5, 1, out_of_order("gap", 2, 1), id="60-gap"),
        pytest.param(run_of(1), 2, 1, out_of_order("gap", 1, 0), id="74-hole-of-one"),
        pytest.param(ONE_TO_SEVEN, 28, 3, None, id="next-of-many"),
        pytest.param(ONE_TO_SEVEN, 21, 7, remembered(21, 7), id="67-newest-resent"),
        pytest.param(ONE_TO_SEVEN, 3, 3, remembered(3, 3), id="69-fifth-newest-resent"),
        pytest.param(ONE_TO_SEVEN, 1, 2, Repeated(None), id="69-sixth-newest-resent"),
        pytest.param(ONE_TO_SEVEN, 0, 1, Repeated(None), id="first-resent"),
        pytest.param(ONE_TO_SEVEN, 0, 3, Repeated(None), id="forgotten-batches-resent-as-one"),
        pytest.param(ONE_TO_SEVEN, 0, 4, out_of_order("overlap", 28, 27), id="reaches-into-the-cache"),
        pytest.param(ONE_TO_SEVEN, 2, 2, out_of_order("overlap", 28, 27), id="begins-before-the-cache"),
        pytest.param(ONE_TO_SEVEN, 21, 2, out_of_order("overlap", 28, 27), id="68-part-of-a-batch-resent"),
        pytest.param(ONE_TO_SEVEN, 15, 13, out_of_order("overlap", 28, 27), id="two-batches-resent-as-one"),
        pytest.param(ONE_TO_SEVEN, 21, 8, out_of_order("overlap", 28, 27), id="resent-with-one-more"),
        pytest.param(ONE_TO_SEVEN, 27, 2, out_of_order("overlap", 28, 27), id="overlaps-the-last"),
        pytest.param(ONE_TO_SEVEN, 29, 1, out_of_order("gap", 28, 27), id="ahead"),
        pytest.param(AT_MAX, 0, 1, None, id="61-wrap"),
        pytest.param(AT_MAX, 1, 1, out_of_order("gap", 0, MAX), id="63-no-wrap-to-1"),
        pytest.param(BEFORE_WRAP, MAX - 10, 21, None, id="62-a-batch-straddles-the-wrap"),
        pytest.param(run_of(11), 2147483640, 6, out_of_order("gap", 11, 10), id="116-never-written"),
        pytest.param(run_of(11), 2147483640, 20, out_of_order("gap", 11, 10), id="never-written-reaching-over-0"),
        pytest.param(FULL_TURN, 2147483640, 6, Repeated(None), id="117-written-before-the-turn"),
        pytest.param(FULL_TURN, 1 << 29, 1, out_of_order("gap", 6, 5), id="further-back-than-half-the-circle"),
    ],
)
def test_a_range_of_the_current_epoch(
    run: SequenceRun, first_seq: int, count: int, verdict: Repeated | StockadeError
) -> None:
    entry = Entry(run, None, 1, 0)
    assert judge(entry, Stamp(NAMED, run.epoch, first_seq), count, strict=False) == verdict


def test_062_a_batch_that_straddles_the_wrap_ends_behind_0() -> None:
    after = replace(BEFORE_WRAP)
    after.extend(MAX - 10, 21, 50, 1)
    assert (after.last_seq, after.next_seq) == (9, 10)
    assert judge(Entry(after, None, 1, 0), Stamp(NAMED, 0, MAX - 10), 21, strict=False) == Repeated(
        CachedBatch(MAX - 10, 9, 50, 70, 1)
    )


def test_069_strict_refuses_the_sixth_newest_and_takes_the_fifth() -> None:
    entry = Entry(ONE_TO_SEVEN, None, 1, 0)
    assert judge(entry, Stamp(NAMED, 0, 3), 3, strict=True) == remembered(3, 3)
    assert judge(entry, Stamp(NAMED, 0, 1), 2, strict=True) == out_of_order("overlap", 28, 27)


@pytest.mark.parametrize(
    ("pid", "epoch", "first_seq", "verdict"),
    [
        pytest.param(ANONYMOUS, 0, 3, InvalidProducerEpoch(current_epoch=1), id="70-old-epoch"),
        pytest.param(NAMED, 0, 0, InvalidProducerEpoch(current_epoch=1), id="70-old-epoch-of-a-name"),
        pytest.param(ANONYMOUS, 2, 0, None, id="60-anonymous-bumps-itself"),
        pytest.param(ANONYMOUS, 2, 2, out_of_order("new_epoch", 0, 2), id="65-new-epoch-begins-at-0"),
        pytest.param(NAMED, 2, 0, InvalidProducerEpoch(current_epoch=1), id="a-name-is-bumped-by-install-alone"),
        pytest.param(NAMED, 2, 2, InvalidProducerEpoch(current_epoch=1), id="a-name-with-an-epoch-never-issued"),
    ],
)
def test_only_an_anonymous_producer_appends_in_another_epoch_a_newer_one_from_sequence_0(
    pid: int, epoch: int, first_seq: int, verdict: StockadeError | None
) -> None:
    entry = Entry(run_of(3, epoch=1), None, 1, 0)
    assert judge(entry, Stamp(pid, epoch, first_seq), 1, strict=False) == verdict


def test_an_epoch_without_records_does_not_replace_the_previous_run() -> None:
    entry = Entry(run_of(3, epoch=1), None, 1, 0)
    for epoch in (2, 4):
        entry.begin_epoch(epoch)
        assert entry == Entry(SequenceRun(epoch), run_of(3, epoch=1), 1, 0)


COMMITTED = Outcome("committed")
ABSENT = Outcome("absent")
TWO_EPOCHS = Entry(run_of(2, epoch=5), run_of(1, 2, 3, 4, 5, 6, 7, epoch=3), 1, 0)
NEW_EPOCH = Entry(SequenceRun(5), None, 1, 0)


@pytest.mark.parametrize(
    ("entry", "epoch", "first_seq", "count", "outcome"),
    [
        pytest.param(TWO_EPOCHS, 3, 21, 7, Outcome("committed", 21, 27), id="82-remembered-in-the-epoch-before"),
        pytest.param(TWO_EPOCHS, 3, 1, 2, COMMITTED, id="behind-in-the-epoch-before"),
        pytest.param(TWO_EPOCHS, 3, 28, 1, ABSENT, id="next-in-the-epoch-before"),
        pytest.param(TWO_EPOCHS, 3, 40, 1, ABSENT, id="ahead-in-the-epoch-before"),
        pytest.param(TWO_EPOCHS, 3, 22, 2, COMMITTED, id="cuts-a-batch"),
        pytest.param(TWO_EPOCHS, 3, 27, 2, OTHER_BOUNDS, id="stored-in-part"),
        pytest.param(TWO_EPOCHS, 3, MAX, 2, OTHER_BOUNDS, id="begins-before-0-and-reaches-into-what-was-stored"),
        pytest.param(TWO_EPOCHS, 3, MAX, 1, ABSENT, id="before-0"),
        pytest.param(TWO_EPOCHS, 4, 0, 1, ABSENT, id="an-epoch-that-stored-nothing"),
        pytest.param(TWO_EPOCHS, 2, 0, 1, OLDER_EPOCH, id="an-epoch-too-long-ago"),
        pytest.param(TWO_EPOCHS, 5, 0, 2, Outcome("committed", 0, 1), id="remembered-in-this-epoch"),
        pytest.param(TWO_EPOCHS, 5, 2, 1, ABSENT, id="next-in-this-epoch"),
        pytest.param(TWO_EPOCHS, 6, 0, 1, ABSENT, id="an-epoch-never-seen"),
        pytest.param(NEW_EPOCH, 4, 0, 1, ABSENT, id="nothing-before-the-first-epoch"),
        pytest.param(Entry(FULL_TURN, None, 1, 0), 0, 2147483640, 6, COMMITTED, id="before-the-turn"),
        pytest.param(Entry(FULL_TURN, None, 1, 0), 0, 1 << 29, 1, OTHER_BOUNDS, id="too-far-back-to-tell"),
    ],
)
def test_an_outcome_certificate(entry: Entry, epoch: int, first_seq: int, count: int, outcome: Outcome) -> None:
    assert certify(entry, Stamp(NAMED, epoch, first_seq), count) == outcome
