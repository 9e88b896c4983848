"""The benchmark's page says what was measured, how to repeat it, and where a peer is better."""

import pytest
from figures import Quartiles, Sample
from page import Machine, number, table, written
from runner import Results
from systems.etcd import etcd
from systems.kafka import kafka
from systems.stockade import stockade
from workloads import Cell, Options

MACHINE = Machine(
    "2026-01-02 03:04 UTC", "Fast CPU", 2, 24.0, "6.1", "3.11.2", "ext4", Quartiles(0.3, 0.4, 0.5), (0.1, 1.5)
)
SYSTEMS = {system.name: system for system in (stockade(), etcd(), kafka(is_synced=False))}


def rates(*values: float | None) -> list[Sample | None]:
    return [None if value is None else Sample(per_s=value, server_us=12.5, client_us=3.0) for value in values]


def page(samples: dict[Cell, list[Sample | None]], reasons: dict[str, str] | None = None) -> dict[str, str]:
    results = Results(2, samples, reasons or {}, {"stockade": "abc of 2026-01-01", "etcd": "etcd v3"})
    options = Options(rounds=2, systems=tuple(SYSTEMS))
    return written(MACHINE, options, SYSTEMS, results, "make bench ROUNDS=2")


def section(text: str, title: str) -> str:
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_conditions_versions_and_the_command_are_named() -> None:
    text = page({Cell("requests", "stockade", 1): rates(10, 20)})["benchmarks.md"]
    for said in ("make bench ROUNDS=2", "Fast CPU, 2 cores", "0.40 ms (0.30 to 0.50)", "etcd v3", "2 rounds", "3.11.2"):
        assert said in text


def test_a_page_from_a_busy_machine_says_so_and_calls_no_system_better() -> None:
    samples = {Cell("requests", "stockade", 1): rates(10, 20)}
    options, results = Options(2, systems=("stockade",)), Results(2, samples, {}, {"stockade": "abc"})
    for load, is_busy in ((1.0, False), (1.1, True)):
        machine = MACHINE._replace(cores=2, loads=(load, 9.0))
        text = written(machine, options, SYSTEMS, results, "make bench")["benchmarks.md"]
        assert ("busy with other things" in section(text, "Conditions")) == is_busy
        assert ("is better\n" in text) != is_busy


def test_a_peer_that_cannot_be_had_stands_in_the_table_with_its_reason() -> None:
    text = page({}, {"kafka": "cannot be had: there is no java"})["benchmarks.md"]
    assert "| Kafka | **not measured**: cannot be had: there is no java |" in section(text, "What is compared")


def test_a_failed_measurement_is_named_and_the_rounds_that_went_well_count() -> None:
    samples = {Cell("producer", "stockade", 1): rates(None, 5000)}
    text = page(samples, {"stockade, producer, 1": "the disk is full"})["benchmarks.md"]
    assert "- stockade, producer, 1: the disk is full" in section(text, "What failed")
    assert "| Stockade | 1 | 5,000 | 5,000 to 5,000 | 12.5 | 3 |" in section(text, "Producers")


@pytest.mark.parametrize(
    ("ours", "theirs", "better", "ratio"), [(100, 400, "a peer", "0.25"), (400, 100, "Stockade", "4.00")]
)
def test_the_better_one_of_two_rates_is_named(ours: float, theirs: float, better: str, ratio: str) -> None:
    samples = {
        Cell("producer", "stockade", 16): rates(ours, ours),
        Cell("producer", "kafka", 16): rates(theirs, theirs),
    }
    text = page(samples)["benchmarks.md"]
    sentence = f"Producers (records/s), **Kafka**: {theirs:g} against Stockade's {ours:g} at 16 partitions"
    other = {"a peer": "Stockade", "Stockade": "a peer"}[better]
    assert sentence in section(text, f"Where {better} is better")
    assert section(text, f"Where {other} is better").strip() == "Nothing."
    assert f"| {ratio} ({ratio} to {ratio}) |" in section(text, "Producers")


def test_of_two_latencies_the_lower_one_is_better() -> None:
    samples: dict[Cell, list[Sample | None]] = {
        Cell("latency", "stockade", 1): [Sample(p50_ms=1.0)] * 2,
        Cell("latency", "etcd", 1): [Sample(p50_ms=2.0)] * 2,
    }
    text = page(samples)["benchmarks.md"]
    assert "(ms, p50), **etcd**: 2 against Stockade's 1\n" in section(text, "Where Stockade is better")


def test_no_system_is_better_where_one_round_says_this_and_the_other_that() -> None:
    """Kafka's 437,114 against Stockade's 394,680 stood where Stockade is better: the median of two ratios was 1.002."""
    samples = {Cell("consumer", "stockade", 1): rates(380, 400), Cell("consumer", "kafka", 1): rates(320, 540)}
    text = page(samples)["benchmarks.md"]
    assert section(text, "Where a peer is better").strip() == "Nothing."
    assert section(text, "Where Stockade is better").strip() == "Nothing."
    assert "**Kafka**: 430 against Stockade's 390\n" in section(text, "Where rounds differ")


def test_a_peer_without_partitions_is_compared_at_each_number_of_ours() -> None:
    samples = {Cell("requests", "stockade", count): rates(count, count) for count in (1, 16)}
    samples[Cell("requests", "etcd", 1)] = rates(8, 8)
    text = page(samples)["benchmarks.md"]
    assert "**etcd**: 8 against Stockade's 1 at 1 partition\n" in section(text, "Where a peer is better")
    assert "**etcd**: 8 against Stockade's 16 at 16 partitions\n" in section(text, "Where Stockade is better")


def test_ratios_of_partitions_and_of_fences_are_those_of_the_same_rounds() -> None:
    samples = {
        Cell("requests", "stockade", 1): rates(100, 1000),
        Cell("requests", "stockade", 16): rates(50, 900),
        Cell("fenced", "stockade", 1): rates(80, 1000),
    }
    text = page(samples)["benchmarks.md"]
    assert "| 16 | 0.70 | 0.60 to 0.80 |" in section(text, "Stockade: many partitions beside one")
    assert "**0.90** of the rate" in section(text, "Stockade: fenced and numbered beside plain")


def test_each_picture_of_the_page_is_written_beside_it() -> None:
    files = page({Cell("requests", "stockade", 1): rates(1, 2)})
    assert set(files) == {"benchmarks.md", "assets/benchmark-requests.svg"}
    assert "(assets/benchmark-requests.svg)" in files["benchmarks.md"]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.1234, "0.123"), (99.96, "100"), (1234.5, "1,234"), (0.0, "0")]
)
def test_numbers_have_three_digits_or_commas(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_table_is_markdown() -> None:
    assert table(["", "b"], [["1", "2"]]) == "|  | b |\n|---|---|\n| 1 | 2 |\n"
