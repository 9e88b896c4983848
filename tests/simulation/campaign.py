"""Many runs on all cores: how far it is, what failed, and the line that replays each failure."""

import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from multiprocessing import get_context, parent_process
from typing import TextIO

from simulation.checker import Violation
from simulation.plan import Plan
from simulation.schedule import Run

SEEDS_A_TASK = 20
TASKS_AHEAD = 3
"""Tasks of each worker that wait for it."""


@dataclass(frozen=True)
class Failure:
    """A run that broke something."""

    plan: Plan
    claim: str

    @property
    def line(self) -> str:
        """The command that replays it, with what it broke."""
        return f"{self.plan.line()}  # {self.claim}"


@dataclass
class Tally:
    """How far a campaign is."""

    seeds: int
    done: int = 0
    failures: list[Failure] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def rate(self) -> float:
        """Schedules a second."""
        return self.done / max(time.monotonic() - self.began, 1e-9)

    def line(self) -> str:
        """One line for people."""
        left = f"{(self.seeds - self.done) / self.rate / 60:.1f} min left" if self.done else "just begun"
        return f"{self.done:,} of {self.seeds:,} schedules, {self.rate:.1f}/s, {len(self.failures)} failed, {left}"


def campaign(plan: Plan, seeds: range, jobs: int, failures: TextIO | None, tell: Callable[[Tally], None]) -> Tally:
    """Run the plan with each of these seeds in ``jobs`` processes. Ctrl-C ends it early, with the tally so far.

    Failures are written to ``failures`` as soon as they are known; ``tell`` is called after every few schedules.
    """
    tally = Tally(len(seeds))
    tasks = (seeds[at : at + SEEDS_A_TASK] for at in range(0, len(seeds), SEEDS_A_TASK))
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _begin_worker)
    try:
        for done, failed in _results(pool, plan, tasks, jobs):
            tally.done += done
            tally.failures += failed
            if failures is not None and failed:
                failures.writelines(f"{failure.line}\n" for failure in failed)
                failures.flush()
            tell(tally)
    except KeyboardInterrupt:
        pass  # the tally says how far it came
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return tally


def _results(
    pool: ProcessPoolExecutor, plan: Plan, tasks: Iterator[range], jobs: int
) -> Iterator[tuple[int, list[Failure]]]:
    """How many were run, and what failed. Tasks are handed out as they are needed, so that an end comes soon."""
    pending: set[Future[tuple[int, list[Failure]]]] = set()
    while True:
        while len(pending) < jobs * TASKS_AHEAD and (task := next(tasks, None)) is not None:
            pending.add(pool.submit(run_task, plan, task))
        if not pending:
            return
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


def _begin_worker() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent ends the workers
    logging.disable(logging.CRITICAL)
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)  # what a run leaves behind is collected less often, which saves a few percent


def _end_with_parent() -> None:
    """Whoever kills the parent does not have to find its workers."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def run_task(plan: Plan, seeds: range) -> tuple[int, list[Failure]]:
    failures = []
    for seed in seeds:
        each = replace(plan, seed=seed)
        try:
            Run(each).go()
        except Exception as error:
            failures.append(Failure(each, f"{error}" if isinstance(error, Violation) else repr(error)))
    return len(seeds), failures
