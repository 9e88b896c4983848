"""Each checker catches the run that was falsified in its way, and lets an honest run pass."""

from typing import Any

import pytest
from falsified_logs import (
    FALSIFIED,
    FENCED,
    LINES,
    ZOMBIE_PID,
    Falsify,
    append,
    honest,
    honest_log,
    honest_operations,
    on_every_replica,
    payload,
    rows,
)
from msgspec.structs import replace

from stockade.chaos.checkers.verdicts import CHECKERS, VIOLATIONS_SHOWN_MAX, judge
from stockade.chaos.history.evidence import Evidence, ReplicaLog, Stamp
from stockade.chaos.history.history import Operation


def test_an_honest_run_passes_every_checker() -> None:
    assert {verdict.checker: verdict.examples for verdict in judge(honest())} == {name: [] for name in CHECKERS}


@pytest.mark.parametrize(("name", "falsify"), [(n, f) for n, _, f in FALSIFIED], ids=[d for _, d, _ in FALSIFIED])
def test_a_falsified_run_is_caught_by_the_checker_meant_for_it(name: str, falsify: Falsify) -> None:
    assert name in {verdict.checker for verdict in judge(falsify(honest())) if verdict.violations}


def test_every_checker_is_tested_with_a_falsified_run() -> None:
    in_test_client_checkers = {"nonmonotonic-poll", "skipped-poll", "unseen", "position", "slot-history", "recovery"}
    assert {name for name, _, _ in FALSIFIED} | in_test_client_checkers == set(CHECKERS)


@pytest.mark.parametrize(
    ("epochs", "stamps", "said"),
    [
        ([1, 2, 1], [None] * 3, " has epoch 1 at 2, after 2"),
        ([0] * 3, [(7, 0, 0), (7, 1, 0), (7, 0, 1)], " has producer epoch 0 at 2, after 1"),
        ([0] * 3, [(7, 0, 0), None, (7, 0, 1)], ": old and new both wrote as producer 7, epoch 0"),
    ],
)
def test_a_log_alone_shows_a_zombie(epochs: list[int], stamps: list[Stamp | None], said: str) -> None:
    """Its append may have had no answer, or be another program's."""
    names = ["old/0", "new/0", "new/1" if stamps[1] is None else "old/1"]
    log = ReplicaLog("n1", 0, 0, 3, range(3), names, LINES[:3], stamps, epochs)
    assert list(CHECKERS["zombie"](Evidence([], [log], payload))) == [f"partition 0 on n1{said}"]


def test_an_append_of_unknown_outcome_may_be_stored_or_not() -> None:
    unstored = on_every_replica(lambda log: rows(log, [0, 1, 2, 3]))(honest())
    unread = replace(unstored, operations=honest_operations()[:4], expected=None)
    assert [verdict.checker for verdict in judge(unread) if verdict.violations] == []


@pytest.mark.parametrize(("again", "is_aborted"), [({}, False), (FENCED, True)])
def test_a_record_that_was_sent_twice_is_aborted_when_both_appends_were_refused(
    again: dict[str, Any], is_aborted: bool
) -> None:
    """One that was refused, and one without an answer, which may have stored it."""
    refused = append(30, "old", 0, 1, pid=ZOMBIE_PID, seq=0, **FENCED)
    run = Evidence([refused, append(40, "old", 0, 1, pid=ZOMBIE_PID, seq=0, **again)], [honest_log("n1")], payload)
    assert bool(list(CHECKERS["aborted-read"](run))) == is_aborted


def test_writers_may_share_the_open_slot() -> None:
    open_slot = on_every_replica(lambda log: replace(log, writer_epochs=[0] * 10))(honest())
    operations = [
        Operation(replace(op.invoke, epoch=None), op.end)
        for op in open_slot.operations
        if op.invoke.f == "append" and op.outcome == "ok"
    ]
    assert list(CHECKERS["zombie"](replace(open_slot, operations=operations))) == []


def test_violations_are_all_counted_and_some_shown() -> None:
    log = replace(honest_log("n1"), values=[b"x"] * 10)
    run = replace(honest(), logs=[replace(log, partition=k) for k in range(VIOLATIONS_SHOWN_MAX)])
    verdict = next(v for v in judge(replace(run, expected=None)) if v.checker == "byte-exact")
    assert (verdict.violations, len(verdict.examples)) == (10 * VIOLATIONS_SHOWN_MAX, VIOLATIONS_SHOWN_MAX)
