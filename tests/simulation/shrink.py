"""The smallest run that still fails as a given one does."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from simulation.plan import Plan
from simulation.schedule import Run

LUCK = 12
"""What is left out changes the course of what is left; so many draws of latencies are tried for each smaller run."""


def failure(plan: Plan) -> tuple[str, float] | None:
    """What breaks in a run, and when; None if nothing does. Names and numbers of the moment are left out."""
    run = Run(plan)
    try:
        run.go()
    except Exception as error:
        return re.sub(r"b?'[^']*'|\bn?\d[\d.]*", "*", str(error)), run.world.now
    return None


def shrunk(plan: Plan, tell: Callable[[str], None] = lambda _: None) -> Plan:
    """Leave out of a failing run whatever can be left out, until nothing more can. ValueError if it passes."""
    found = failure(plan)
    if found is None:
        raise ValueError("this run does not fail")
    claim, end = found
    plan = replace(plan, chaos_s=min(plan.chaos_s, _up(end)))
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(plan):
            better = _failing(smaller, claim)
            if better is not None:
                plan, progress = better, True
                tell(plan.line())
                break
    return plan


def _failing(plan: Plan, claim: str) -> Plan | None:
    """The plan, or one that differs by luck, if it fails in the same way."""
    for luck in (plan.luck, *range(LUCK)):
        candidate = replace(plan, luck=luck)
        found = failure(candidate)
        if found is not None and found[0] == claim:
            return replace(candidate, chaos_s=min(plan.chaos_s, _up(found[1])))
    return None


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Runs that are one step smaller, the largest steps first."""
    run = Run(plan)
    nodes, groups = run.setting.nodes, run.setting.groups
    for fewer in range(1, nodes):
        yield replace(plan, nodes=fewer)
    if groups > 1:
        yield replace(plan, groups=1)
    if not plan.calm:
        yield replace(plan, calm=True)
    kinds = run.nemesis.kinds + (run.changes.kinds if run.changes is not None else [])
    for kind in ("mend", *dict.fromkeys(kind.__name__ for kind in kinds)):
        if kind not in plan.spare:
            yield replace(plan, spare=plan.spare | {kind})
    if plan.chaos_s > 0.2:
        yield replace(plan, chaos_s=_up(plan.chaos_s * 0.7))
    for number in _strikes(plan):
        yield replace(plan, without=plan.without | {number})


def _strikes(plan: Plan) -> list[int]:
    """Numbers of the strikes that the run gets to, and that do something."""
    run = Run(plan)
    with suppress(Exception):  # it is expected to fail
        run.go()
    return run.struck


def _up(seconds: float) -> float:
    return round(seconds + 0.005, 2)
