"""The demo at a small size: the whole proof, from real node processes to the report."""

import asyncio
from pathlib import Path

import pytest
from histories import read_history

from stockade.chaos.checkers.verdicts import CHECKERS
from stockade.chaos.demo.demo import Options, plan, run_demo
from stockade.chaos.demo.report import Run, html, markdown
from stockade.chaos.demo.zombie import ATTEMPTS
from stockade.chaos.history.history import Event, History, operations
from stockade.cli.local_cluster.cluster import LocalCluster

pytestmark = [pytest.mark.processes, pytest.mark.elections]

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
RECORDS = 12_000


class Silent:
    """No person watches."""

    def step(self, text: str) -> None: ...

    def written(self, records: int) -> None: ...

    def read(self, records: int) -> None: ...


@pytest.fixture(scope="module")
def history_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report") / "history.jsonl"


@pytest.fixture(scope="module")
def run(cluster: LocalCluster, history_path: Path) -> Run:
    with History.create(history_path) as history:
        options = Options(DATA, RECORDS, seed=2)
        return asyncio.run(run_demo(cluster.data / "cluster.json", options, plan(options), history, Silent()))


@pytest.fixture(scope="module")
def events(run: Run, history_path: Path) -> list[Event]:
    return read_history(history_path)


def test_every_record_is_read_back_from_every_replica(run: Run) -> None:
    assert (run.records, run.partitions, run.replicas) == (RECORDS, 3, 9)
    assert run.records_compared == 3 * RECORDS


@pytest.mark.parametrize("checker", CHECKERS)
def test_no_checker_finds_a_violation(run: Run, checker: str) -> None:
    (verdict,) = (verdict for verdict in run.verdicts if verdict.checker == checker)
    assert verdict.examples == []


def test_leaders_are_killed_twice_and_every_partition_they_led_fails_over(run: Run) -> None:
    assert len(run.killings) == 2
    for killing in run.killings:
        assert killing.failovers == len(killing.outage.led) >= 1
        assert set(killing.outage.by_partition) == {0, 1, 2}


def test_every_write_of_the_zombie_is_refused_and_certified(run: Run) -> None:
    assert run.takeover.attempts >= run.takeover.refused == ATTEMPTS
    assert run.takeover.certificates["committed"] >= 1
    assert run.takeover.certificates["absent"] >= 1


def test_the_successor_goes_on_exactly_where_the_log_ended(run: Run, events: list[Event]) -> None:
    own = (op for op in operations(events) if op.invoke.process.endswith("~2"))
    first = next(op for op in own if op.invoke.f == "append" and op.end is not None)
    assert first.end is not None
    assert (first.end.type, first.end.offset, first.invoke.seq) == ("ok", run.takeover.log_end, 0)


def test_the_history_file_has_every_acknowledged_record(events: list[Event]) -> None:
    acknowledged = sum(e.count or 0 for e in events if e.f == "append" and e.type == "ok")
    appends = [op for op in operations(events) if op.invoke.f == "append"]
    unheard = sum(op.invoke.count or 0 for op in appends if op.outcome == "info")
    assert acknowledged <= RECORDS <= acknowledged + unheard


def test_the_report_says_that_it_passed(run: Run) -> None:
    assert f"Passed: every replica has all {RECORDS:,} records" in markdown(run)
    assert "<svg" in html(run)
