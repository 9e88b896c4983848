"""Medians, quartiles and ratios of a benchmark's rounds."""

import os
import time

import pytest
from figures import Load, Quartiles, paired_ratio, quartiles, sample_of
from processor import PIDS, Watch


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], (7, 7, 7)),
        ([1.0, 3.0], (1.5, 2, 2.5)),
        ([5.0, 1.0, 2.0, 4.0, 3.0], (2, 3, 4)),
    ],
)
def test_a_quarter_of_the_values_lies_below_and_a_quarter_above(
    values: list[float], expected: tuple[float, float, float]
) -> None:
    assert quartiles(values) == Quartiles(*expected)


def test_a_ratio_is_that_of_the_same_round_and_rounds_that_lack_one_do_not_count() -> None:
    ones = [10.0, None, 30.0, 8.0]
    others = [5.0, 1.0, 10.0, None]
    assert paired_ratio(ones, others) == Quartiles(2.25, 2.5, 2.75)


def test_without_a_round_that_has_both_there_is_no_ratio() -> None:
    assert paired_ratio([1.0, None], [None, 2.0]) is None
    assert paired_ratio([1.0], [0.0]) is None


def test_a_sample_has_processor_time_for_one_operation() -> None:
    sample = sample_of(Load(count=2000, seconds=4.0, client_s=0.01, servers_s=0.5, p50_ms=3.0, p99_ms=9.0))
    assert sample.per_s == 500
    assert (sample.client_us, sample.server_us) == (5, 250)
    assert (sample.p50_ms, sample.p99_ms) == (3, 9)


def test_a_watch_counts_the_servers_processor_time_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PIDS, f"{os.getpid()}")
    watch = Watch()
    began_s = time.process_time()
    while watch.load(1).servers_s == 0:  # until the kernel has counted a tick
        assert time.process_time() - began_s < 10
    assert watch.load(1).client_s > 0
    assert watch.load(3).count == 3
