"""What `stockade backup rescue` says of a partition that it cannot append to."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.cli.backup.rescue import _add
from stockade.cli.backup.restore import CannotRestore


class Restored:
    """A topic of a new cluster, restored up to the offset 600."""

    config = SimpleNamespace(delivery_timeout_ms=1000)

    async def topic(self, name: str) -> Any:
        return SimpleNamespace(topic_id=9, partitions=[0])

    async def offsets(self, name: str, partition: int) -> Any:
        return SimpleNamespace(log_start=0, log_end=600)


@pytest.mark.parametrize(
    ("log_start", "way_out"),
    [
        (700, "If that is what is there, these records need a topic without any: delete it there, and create it again"),
        (0, "are in the tiered store: restore the last backup first"),
    ],
)
def test_a_gap_between_backup_and_disk_is_told_with_a_way_out(log_start: int, way_out: str) -> None:
    """Records between the two were dropped: it asked for a restore of the last backup, which had been done."""
    client: Any = Restored()
    log = SimpleNamespace(log_start=log_start, log_end=900)
    disk: Any = SimpleNamespace(topic="t", topic_id=7, partition=0, first=700, log=log)
    with pytest.raises(CannotRestore, match=f"ends at 600 there, and begins at 700 .*{way_out}"):
        asyncio.run(_add(client, disk, 900))
