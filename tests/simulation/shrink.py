"""The smallest run that still fails as a given one does."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from simulation.plan import Plan
from simulation.schedule import Run

LUCK = 6
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
    shrinker = Shrinker(plan, *found, tell)
    while shrinker.shrink():
        pass
    shrinker.shorten_the_line()
    return shrinker.plan


class Shrinker:
    """A failing run, and attempts to make it smaller."""

    def __init__(self, plan: Plan, claim: str, end: float, tell: Callable[[str], None]) -> None:
        self.plan = _ended(plan, end)
        self._claim = claim
        self._tell = tell

    def shrink(self) -> bool:
        """Try everything once, what saves most first; answers whether anything was left out."""
        before, run = self.plan, Run(self.plan)
        any(self._try(replace(self.plan, nodes=nodes)) for nodes in range(1, run.setting.nodes))
        any(self._try(replace(self.plan, groups=groups)) for groups in range(1, run.setting.groups))
        if not self.plan.calm:
            self._try(replace(self.plan, calm=True))
        kinds = run.nemesis.kinds + (run.changes.kinds if run.changes is not None else [])
        for kind in dict.fromkeys(["mend", *(kind.__name__ for kind in kinds)]):
            if kind not in self.plan.spare:
                self._try(replace(self.plan, spare=self.plan.spare | {kind}))
        while self._try(_ended(self.plan, self.plan.chaos_s * 0.7)):
            pass
        self._leave_out_strikes()
        return self.plan != before

    def shorten_the_line(self) -> None:
        """Say nothing of what does not happen anyway."""
        self._try(replace(self.plan, spare=frozenset()), lucky=False)
        self._try(replace(self.plan, without=frozenset()), lucky=False)

    def _leave_out_strikes(self) -> None:
        """Half of them, then quarters, then one by one."""
        size = len(_strikes(self.plan)) // 2
        while size:
            for numbers in _pieces(_strikes(self.plan), size):
                self._try(replace(self.plan, without=self.plan.without | {*numbers}))
            size //= 2

    def _try(self, plan: Plan, *, lucky: bool = True) -> bool:
        """Take this plan, or one that differs by luck, if it is smaller and fails in the same way."""
        if plan == self.plan:
            return False
        for luck in dict.fromkeys((plan.luck, *(range(LUCK) if lucky else ()))):
            found = failure(replace(plan, luck=luck))
            if found is not None and found[0] == self._claim:
                self.plan = _ended(replace(plan, luck=luck), found[1])
                self._tell(self.plan.line())
                return True
        return False


def _ended(plan: Plan, seconds: float) -> Plan:
    return replace(plan, chaos_s=min(plan.chaos_s, round(seconds + 0.005, 2)))


def _pieces(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [numbers[at : at + size] for at in range(0, len(numbers), size)]


def _strikes(plan: Plan) -> list[int]:
    """Numbers of the strikes that the run gets to."""
    run = Run(plan)
    with suppress(Exception):  # it is expected to fail
        run.go()
    return run.struck
