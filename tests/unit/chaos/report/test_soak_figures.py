"""The table of figures over several runs: counts add up, and every figure of each run is in it."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stockade.chaos.checkers.verdicts import Verdict
from stockade.chaos.harness.campaign import Options
from stockade.chaos.harness.results import Summary
from stockade.chaos.harness.round import RoundOver
from stockade.chaos.history.history import Event
from stockade.chaos.report.soak_figures import Soak

S = 1_000_000_000


def summary(lost: int) -> Summary:
    verdicts = [Verdict("lost-write", "", lost, [], 10), Verdict("zombie", "", 0, [], 10)]
    options = Options(["append"], ["kill-leader"], 1, 60.0)
    return Summary(options, ["processes"], 3, 60.0, 40, 30, {}, [RoundOver(1, 1, 0.5, [])], verdicts, [])


def events() -> list[Event]:
    """A write each second for 30 s, but for 3 s after the kill at 15 s."""

    def event(i: int, t_s: float, **fields: Any) -> Event:
        return msgspec.convert({"i": i, "t_mono_ns": int(t_s * S), **fields}, Event)

    about = {"process": "w", "f": "append", "topic": "t", "partition": 0, "count": 1}
    found = [event(0, 0.5, process="nemesis", type="info", f="round", value="1")]
    for t in (*range(1, 15), *range(18, 31)):
        begun_s = 15.5 if t == 18 else t
        found.append(event(2 * t, begun_s, type="invoke", **about))
        found.append(event(2 * t + 1, t + 0.1, type="ok", of=2 * t, **about))
    strike = {"process": "nemesis", "type": "info", "value": "kill-leader", "count": 1}
    found += [event(90, 15.5, f="strike", **strike), event(91, 20.0, f="heal", **strike)]
    return sorted(found, key=lambda event: event.t_mono_ns)


def test_the_figures_of_several_runs_are_one_table() -> None:
    soaked = Soak()
    soaked.add(summary(0), events())
    soaked.add(summary(2), events())
    lines = list(soaked.lines())
    assert lines[0].startswith("2 rounds in 2.0 minutes; 80 operations checked; 2 strikes of 1 fault;")
    assert "| acknowledged records lost | 0 | 2 | 80 | - |" in lines
    assert "| lost-write | 20 | 2 |" in lines
    [killed] = [line for line in lines if line.startswith("| writable again after kill -9 of a leader")]
    assert "2.60 s | 2 | 2.60 s" in killed
    assert soaked.violations == 2


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_run_without_a_verdict_takes_no_figure_of_the_others_away(at: int) -> None:
    """None of its rounds could be carried out; a soak of an hour ended with a traceback in place of its tables."""
    runs = [summary(1), summary(2)]
    runs.insert(at, replace(summary(0), verdicts=[]))
    soaked = Soak()
    for each in runs:
        soaked.add(each, [])
    assert soaked.violations == 3
    assert "| lost-write | 20 | 3 |" in list(soaked.lines())
