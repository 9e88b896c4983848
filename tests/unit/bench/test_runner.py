"""Systems take turns; what fails costs its own figures, and says why."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from runner import prepare, run
from setup_tools import CannotHave
from systems.common import Failed, System
from workloads import Cell, Options

LOAD = {"count": 100, "seconds": 2.0, "client_s": 0.5, "servers_s": 1.0}


@pytest.fixture(autouse=True)
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with each sync of all disks, which would take long where others write."""
    done: list[str] = []
    monkeypatch.setattr("os.sync", lambda: done.append("sync"))
    return done


@dataclass
class Told:
    """A system that writes down what it is asked; ``broken``: workloads whose loads fail."""

    broken: Sequence[str] = ()
    pids: Sequence[int] = ()
    asked: list[str] = field(default_factory=list)

    def create(self, partitions: int) -> None:
        self.asked.append(f"create {partitions}")

    def delete(self, partitions: int) -> None:
        self.asked.append(f"delete {partitions}")

    def command(self, workload: str, partitions: int, amount: float) -> list[str]:
        self.asked.append(f"{workload} {partitions}")
        program = "import sys; sys.exit('no room')" if workload in self.broken else f"print({json.dumps(LOAD)!r})"
        return [sys.executable, "-S", "-c", program]


WRITES = {"requests": [1], "producer": [1, 16]}


def system(
    name: str,
    told: Told,
    *,
    reason: str = "",
    failure: BaseException | None = None,
    workloads: Mapping[str, Sequence[int]] = WRITES,
) -> System:
    @contextmanager
    def start(folder: Path) -> Iterator[Told]:
        if failure is not None:
            raise failure
        told.asked.append("start")
        yield told
        told.asked.append("stop")

    def had() -> str:
        if reason:
            raise CannotHave(reason)
        return f"{name} 1.0"

    return System(name, name.title(), "synced", "", workloads, had, start)


def ran(systems: Sequence[System], rounds: int = 1) -> tuple[dict[Cell, list[float | None]], dict[str, str]]:
    options = Options(rounds, 0.01, tuple(each.name for each in systems))
    by_name = {each.name: each for each in systems}
    results = prepare(by_name, options, lambda _: None)
    run(by_name, options, results)
    rates = {cell: [each and each.per_s for each in samples] for cell, samples in results.samples.items()}
    return rates, results.reasons


def test_a_turn_starts_the_system_measures_each_figure_on_a_new_topic_and_stops_it() -> None:
    told = Told()
    rates, reasons = ran([system("a", told)])
    assert told.asked == [
        *("start", "create 1", "requests 1", "requests 1", "delete 1"),
        *("create 1", "producer 1", "producer 1", "delete 1"),
        *("create 16", "producer 16", "producer 16", "delete 16", "stop"),
    ]
    assert rates == {
        Cell(load, "a", count): [50.0] for load, count in (("requests", 1), ("producer", 1), ("producer", 16))
    }
    assert not reasons


def test_after_each_turn_dirty_pages_are_written_back(syncs: list[str]) -> None:
    _ = ran([system("a", Told()), system("b", Told(), failure=Failed("the port is taken"))], rounds=2)
    assert len(syncs) == 4


def test_a_system_that_warms_up_has_a_load_before_its_first_figure_that_does_not_count() -> None:
    told = Told()
    rates, _ = ran([system("a", told)._replace(warms_up=True)])
    assert told.asked[:5] == ["start", "create 16", "producer 16", "delete 16", "create 1"]
    assert len(rates) == 3


def test_a_load_that_fails_costs_its_own_figure_and_the_others_go_on() -> None:
    rates, reasons = ran([system("a", Told(broken=["requests"])), system("b", Told())])
    assert rates[Cell("requests", "a", 1)] == [None]
    assert rates[Cell("producer", "a", 1)] == rates[Cell("requests", "b", 1)] == [50.0]
    assert reasons == {"a, requests, 1": "no room"}


@pytest.mark.parametrize("stored", [100, 2_000])
def test_a_consumer_has_no_figure_where_the_producer_stored_too_few_records(
    stored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for none, or fewer, those of Stockade read all, and that of Kafka had a figure of 0."""
    monkeypatch.setitem(LOAD, "count", stored)
    told = Told()
    rates, reasons = ran([system("a", told, workloads={"consumer": [1]})])
    assert told.asked == ["start", "create 1", "producer 1", "delete 1", "stop"]
    assert rates == {Cell("consumer", "a", 1): [None]}
    problem = f"the producer stored {stored:,} records; to read, more than 2,000 are needed"
    assert reasons == {"a, consumer, 1": problem}


def test_a_system_that_cannot_be_had_or_does_not_start_is_named_and_the_others_go_on() -> None:
    systems = [
        system("a", Told(), reason="there is no compiler"),
        system("b", Told(), failure=Failed("the port is taken")),
        system("c", Told()),
    ]
    rates, reasons = ran(systems)
    assert {cell.system for cell in rates} == {"c"}
    assert reasons == {"a": "cannot be had: there is no compiler", "b": "round 1: the port is taken"}


def test_ctrl_c_keeps_the_figures_measured_by_then(capsys: pytest.CaptureFixture[str]) -> None:
    rates, _ = ran([system("a", Told()), system("b", Told(), failure=KeyboardInterrupt())], rounds=2)
    assert rates[Cell("producer", "a", 16)] == [50.0, None]
    assert "interrupted" in capsys.readouterr().err
