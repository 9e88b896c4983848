"""The streaming sink: every row once, whatever dies and whenever. SINK_KILLS=all tries every request of a commit."""

import os
from pathlib import Path
from typing import Any

import pytest
from integration.api import Topic

from .copying import PARTITIONS, Copy
from .topics import append, numbered

REQUESTS = 32
"""At least as many as the first commit of a run makes."""
SOME_KILLS = [(3, "after"), (10, "before"), (15, "after"), (19, "after"), (24, "after")]
ALL_KILLS = [(number, when) for number in range(1, REQUESTS + 1) for when in ("before", "after")]
KILLS = ALL_KILLS if os.environ.get("SINK_KILLS") == "all" else SOME_KILLS

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900 if KILLS is SOME_KILLS else 3600)]


def copy(spark: Any, url: str, folder: Path, name: str, rows: int, **options: Any) -> Copy:
    source, target = Topic(url, f"{name}-in"), Topic(url, f"{name}-out")
    source.create(partitions=2)
    target.create(partitions=PARTITIONS)
    for partition in (0, 1):
        append(source, partition, numbered(partition, 0, rows // 2))
    return Copy(spark, source, target, folder, **options)


def test_a_copy_is_exact_though_its_driver_dies_around_any_request_of_a_commit(
    spark: Any, url: str, tmp_path: Path
) -> None:
    copying = copy(spark, url, tmp_path, "dying", rows=40 * (len(KILLS) + 2))
    died = 0
    for number, when in KILLS:
        copying.dies_at(number, when)
        assert copying.run(rows_per_batch=40) != copying.died
        died += copying.died
        print(f"{number} {when}: {copying.died_of() or 'not reached'}", flush=True)  # noqa: T201 (the whole takes long: pytest -s)
    assert died >= len(KILLS) // 2
    copying.survives()
    assert copying.run(rows_per_batch=40)
    assert copying.wrong() == ([], [])


def test_tasks_that_fail_before_or_after_they_have_staged_are_run_again(spark: Any, url: str, tmp_path: Path) -> None:
    copying = copy(spark, url, tmp_path, "failing", rows=80)
    for place in ("before", "after"):
        (copying.plan / "task").write_text(place)
        assert copying.run(rows_per_batch=40)
    assert copying.wrong() == ([], [])


def test_another_checkpoint_needs_leave_to_take_a_named_sink_over(spark: Any, url: str, tmp_path: Path) -> None:
    copying = copy(spark, url, tmp_path, "named", rows=40, sink="named")
    assert copying.run()
    copying.checkpoint = tmp_path / "another"
    assert not copying.run()
    assert copying.wrong() == ([], [])
