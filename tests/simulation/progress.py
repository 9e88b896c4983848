"""Shows people how far a campaign is: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from simulation.campaign import Tally

LINE_EVERY_S = 10.0

Show = Callable[[Tally], None]


@contextmanager
def showing(seeds: int) -> Iterator[Show]:
    """What to call with the tally as it grows. Failures are shown at once, one line each."""
    if sys.stderr.isatty():
        with _bar() as bar:
            yield _on_bar(bar, seeds)
    else:
        yield _in_lines()


def _bar() -> Progress:
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("schedules  {task.fields[rate]:.0f}/s  {task.fields[failed]} failed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True))


def _on_bar(bar: Progress, seeds: int) -> Show:
    task = bar.add_task("", total=seeds, rate=0.0, failed=0)
    shown = 0

    def show(tally: Tally) -> None:
        nonlocal shown
        bar.update(task, completed=tally.done, rate=tally.rate, failed=len(tally.failures))
        for failure in tally.failures[shown:]:
            bar.console.print(failure.line, soft_wrap=True, markup=False, highlight=False)
        shown = len(tally.failures)

    return show


def _in_lines() -> Show:
    shown, told_at = 0, time.monotonic()

    def show(tally: Tally) -> None:
        nonlocal shown, told_at
        lines = [failure.line for failure in tally.failures[shown:]]
        shown = len(tally.failures)
        if time.monotonic() - told_at > LINE_EVERY_S:
            told_at = time.monotonic()
            lines.append(tally.line())
        for line in lines:
            print(line, file=sys.stderr, flush=True)  # noqa: T201

    return show
