"""How far Spark is, for progress bars."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PERIOD_S = 0.2


@contextmanager
def watched(spark: Any, on_tasks: Callable[[int, int], None]) -> Iterator[None]:
    """Inside, ``on_tasks`` is told from another thread how many tasks are done, and of how many, of what runs now."""
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
