"""Many runs on all cores: how far it is, what failed, and the line that replays each failure."""

import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from ctypes import c_bool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context, parent_process
from types import SimpleNamespace
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
    """Run the plan with each of these seeds in ``jobs`` processes. Ctrl-C ends it early, with the tally so far: each
    process ends the schedule that it runs, and begins no other.

    Failures are written to ``failures`` as soon as they are known; ``tell`` is called after every few schedules.
    """
    tally = Tally(len(seeds))
    tasks = (seeds[at : at + SEEDS_A_TASK] for at in range(0, len(seeds), SEEDS_A_TASK))
    context = get_context("spawn")
    ending = context.RawValue(c_bool, False)
    pool = ProcessPoolExecutor(jobs, context, _begin_worker, (ending,))
    try:
        with _set_by_ctrl_c(ending):
            for done, failed in _results(pool, plan, tasks, jobs, ending):
                tally.done += done
                tally.failures += failed
                if failures is not None and failed:
                    failures.writelines(f"{failure.line}\n" for failure in failed)
                    failures.flush()
                tell(tally)
    finally:
        ending.value = True
        pool.shutdown(wait=True, cancel_futures=True)
    return tally


@contextmanager
def _set_by_ctrl_c(ending: c_bool) -> Iterator[None]:
    """Inside the block Ctrl-C sets ``ending``. An exception in its place could come while the main thread has locks of
    futures, which the pool's thread then waited for without end.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:  # as of a process in the background of a script
        yield
        return

    def end(*_: object) -> None:
        ending.value = True

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _results(
    pool: ProcessPoolExecutor, plan: Plan, tasks: Iterator[range], jobs: int, ending: c_bool
) -> Iterator[tuple[int, list[Failure]]]:
    """How many were run, and what failed. Tasks are handed out as they are needed, so that an end comes soon."""
    pending: set[Future[tuple[int, list[Failure]]]] = set()
    while True:
        while not ending.value and len(pending) < jobs * TASKS_AHEAD and (task := next(tasks, None)) is not None:
            pending.add(_submit(pool, plan, task))
        if not pending:
            return
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


def _submit(pool: ProcessPoolExecutor, plan: Plan, task: range) -> "Future[tuple[int, list[Failure]]]":
    """Hand out a task. A worker that starts for it never hears Ctrl-C, which reaches the whole group of processes."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(run_task, plan, task)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_worker = SimpleNamespace(ending=c_bool(False))
"""Of a worker: ``ending`` says whether it shall begin no further schedule."""


def _begin_worker(ending: c_bool) -> None:
    _worker.ending = ending
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.disable(logging.CRITICAL)
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)  # what a run leaves behind is collected less often, which saves a few percent


def _end_with_parent() -> None:
    """A worker ends with its parent, so that killing the parent is enough."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def run_task(plan: Plan, seeds: range) -> tuple[int, list[Failure]]:
    failures: list[Failure] = []
    for done, seed in enumerate(seeds):
        if _worker.ending.value:
            return done, failures
        each = replace(plan, seed=seed)
        try:
            Run(each).go()
        except Exception as error:
            failures.append(Failure(each, f"{error}" if isinstance(error, Violation) else repr(error)))
    return len(seeds), failures
