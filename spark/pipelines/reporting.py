"""The output of a pipeline that runs as a script: progress as lines, the result as a table. Needs no library."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

PERIOD_S = 0.2


@contextmanager
def watched(spark: Any, on_tasks: Callable[[int, int], None]) -> Iterator[None]:
    """Inside, another thread calls ``on_tasks`` with (tasks done, all tasks) of the running Spark jobs."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(PERIOD_S):
            on_tasks(*_tasks(spark.sparkContext.statusTracker()))

    watcher = threading.Thread(target=watch, name="spark-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _tasks(tracker: Any) -> tuple[int, int]:
    jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage), sum(stage.numTasks for stage in stages if stage)


PROGRESS_S = 2.0
"""Seconds between two lines of progress."""


def print_line(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Progress:
    """Prints progress on standard error, at most every PROGRESS_S, and only if it changed."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._printed, self._printed_at = "", time.monotonic()

    def __call__(self, done: int, total: int | None = None) -> None:
        """Print the progress, if it changed and PROGRESS_S are over."""
        line = f"{done:,} {self._what}" if total is None else f"{done:,} of {total:,} {self._what}"
        if done and line != self._printed and time.monotonic() >= self._printed_at + PROGRESS_S:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
            self._printed, self._printed_at = line, time.monotonic()


def shown(facts: Mapping[str, Any]) -> dict[str, str]:
    """The facts formatted as text, with the rows per second added as ``rows/s``."""
    made = {name: f"{each:,.1f}" if isinstance(each, float) else str(each) for name, each in facts.items()}
    if facts["seconds"]:
        made["rows/s"] = f"{facts['rows'] / facts['seconds']:,.0f}"
    return made


def summary(facts: Mapping[str, Any]) -> None:
    """Print the facts as a table of one row."""
    made = shown(facts)
    table(list(made), [list(made.values())])


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in (header, ["-" * width for width in widths], *rows):
        print_line("  ".join(each.ljust(width) for each, width in zip(line, widths, strict=True)).rstrip())
