"""The streaming sink: every row once, whatever dies and whenever."""

from pathlib import Path
from typing import Any

import pytest
from integration.api import Topic

from .copying import PARTITIONS, Copy, numbered
from .topics import append

pytestmark = pytest.mark.processes


def copy(spark: Any, url: str, folder: Path, name: str, rows: int = 400) -> Copy:
    source, target = Topic(url, f"{name}-in"), Topic(url, f"{name}-out")
    source.create(partitions=2)
    target.create(partitions=PARTITIONS)
    for partition in (0, 1):
        append(source, partition, numbered(source, partition, 0, rows // 2))
    return Copy(spark, source, target, folder)


def test_a_topic_is_copied_row_for_row(spark: Any, url: str, tmp_path: Path) -> None:
    copying = copy(spark, url, tmp_path, "plain")
    assert copying.run()
    assert copying.wrong() == ([], [])
