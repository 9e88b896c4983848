"""Simulated clusters from seeds. A failure names the line that replays it."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from ctypes import c_bool
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from child import ended, hearing_ctrl_c
from simulation.campaign import Tally, campaign, run_task
from simulation.checker import Checker, Stream, Violation
from simulation.mutants import votes_twice
from simulation.plan import Plan
from simulation.schedule import run_seed

from stockade.raft.core.leader import Progress

SEEDS = 1500


@pytest.mark.timeout(600)
def test_no_schedule_of_faults_breaks_an_invariant() -> None:
    tally = campaign(Plan(0), range(SEEDS), os.cpu_count() or 1, None, lambda _: None)
    assert [failure.line for failure in tally.failures] == []
    assert tally.done == SEEDS


@pytest.mark.parametrize("accident", ["late_acks", "late_refusals", "lost_ballots", "stray_tail"])
def test_known_accidents_break_nothing(accident: str) -> None:
    for seed in range(20):
        run_seed(seed, accident)


def test_a_lost_connection_may_lower_next_index_and_an_ack_may_not() -> None:
    """Seed 9452988: an offer was refused, an older ack came in, and the connection broke before anything was sent."""
    checker, streams = Checker(cast(Any, None)), dict[str, Stream]()
    follower = Progress("n1", 138, 7, 365, 0.0)
    leading, process = SimpleNamespace(round=365, followers={"n1": follower}), SimpleNamespace(node_id="n3")

    def check() -> None:
        checker._check_streams(cast(Any, process), cast(Any, leading), streams)

    check()
    follower.matched(136)
    check()
    follower.connected = False
    follower.rewind(137, leading.round)
    check()
    follower.matched(137)
    check()
    follower.next_index = 137
    checker._world = cast(Any, SimpleNamespace(now=0.0))
    with pytest.raises(Violation, match="next_index of n1 went back to 137"):
        check()


def test_a_failure_is_one_line_that_replays_it() -> None:
    with votes_twice():
        done, failures = run_task(Plan(0), range(20))
    assert done == 20
    assert failures
    assert all(failure.line.startswith(f"{failure.plan.line()}  # at ") for failure in failures)
    assert all("\n" not in failure.line for failure in failures)


def test_workers_end_with_a_parent_that_is_killed() -> None:
    command = [sys.executable, str(Path(__file__).with_name("run.py")), "--seeds", "1000000", "--jobs", "2"]
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)) as parent:
        children = _soon(lambda: found if len(found := _workers(parent.pid)) == 2 else None)
        parent.kill()
    _soon(lambda: all(map(_has_ended, children)))


def test_ctrl_c_ends_a_campaign_soon_and_without_a_word_from_its_workers() -> None:
    """They ran what waited for them, up to a hundred schedules; those that had just started told of a
    KeyboardInterrupt.
    """
    command = [sys.executable, str(Path(__file__).with_name("run.py")), "--seeds", "1000000", "--jobs", "2"]
    pipe = subprocess.PIPE
    with hearing_ctrl_c():
        begun = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    with ended(begun) as parent:
        _soon(lambda: len(workers := _workers(parent.pid)) == 2 and all(map(_imports, workers)))
        os.killpg(parent.pid, signal.SIGINT)
        told, errors = parent.communicate(timeout=60)
    assert parent.returncode == 130
    assert " of 1,000,000 schedules, " in told
    assert "KeyboardInterrupt" not in errors


def test_ctrl_c_ends_a_campaign_after_the_running_schedules_which_count() -> None:
    told: list[tuple[int, int]] = []

    def tell(tally: Tally) -> None:
        signal.raise_signal(signal.SIGINT)
        told.append((tally.done, len(tally.failures)))

    with hearing_ctrl_c():
        tally = campaign(Plan(0, accident="no such accident"), range(10_000), 1, None, tell)
    assert told[0] == (20, 20)
    assert told[-1] == (tally.done, len(tally.failures)) and tally.done == len(tally.failures) < 100


def test_a_worker_begins_no_schedule_once_its_campaign_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ending = c_bool(False)
    monkeypatch.setattr("simulation.campaign._worker", SimpleNamespace(ending=ending))
    assert run_task(Plan(0, accident="no such accident"), range(20))[0] == 20
    ending.value = True
    assert run_task(Plan(0), range(20)) == (0, [])


def _soon(look: Callable[[], Any]) -> Any:
    """What ``look`` finds within a minute."""
    deadline = time.monotonic() + 60
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def _workers(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _imports(worker: int) -> bool:
    return b"pyarrow" in Path(f"/proc/{worker}/maps").read_bytes()


def _has_ended(pid: int) -> bool:
    """A dead process may stay in the table of processes until its parent asks for its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_campaign_reports_its_progress_and_writes_its_failures() -> None:
    told: list[int] = []

    def tell(tally: Tally) -> None:
        told.append(tally.done)

    file = io.StringIO()
    tally = campaign(Plan(0, accident="no such accident"), range(60), 1, file, tell)
    assert told == [20, 40, 60]
    assert file.getvalue().splitlines() == [failure.line for failure in tally.failures]
    assert len(tally.failures) == 60
    assert tally.line().startswith("60 of 60 schedules, ")
