"""A leader whose disk hangs without an error: its followers' disks are enough to commit, so nothing else stops it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from disks import MIB, cluster_on_disks

from stockade.chaos.system import cgroups
from stockade.chaos.system.disks import why_not
from stockade.cli.chaos_commands.arena import SMALL_FILES, STALL
from stockade.cli.local_cluster.cluster import LocalCluster

from .api import Topic, call, eventually, expect
from .test_failover import node_named

REASON = why_not() or cgroups.why_not("blkio")


@pytest.fixture
def cluster(data: Path) -> Iterator[LocalCluster]:
    """Three nodes with a disk each."""
    with cluster_on_disks(data, [64 * MIB] * 3, SMALL_FILES + STALL) as running:
        yield running


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_a_node_whose_disk_hangs_ends_and_another_leads_and_nothing_acknowledged_is_lost(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[0].url, "t")
    topic.create(partitions=1)
    hung = node_named(cluster, topic.led_by())
    topic = topic.at(next(node for node in cluster.nodes if node is not hung).url)
    stored: list[str] = []
    unknown: list[str] = []

    def append() -> None:
        value = f"record {len(stored) + len(unknown)}"
        expect(200, topic.append(value))
        stored.append(value)

    append()
    assert hung.process is not None
    assert hung.pid is not None
    with closing(cgroups.SlowDevice(hung.data.stat().st_dev, 1, [hung.pid])):  # one byte a second
        append()  # committed by the others

        def is_led_by_another() -> bool:
            value = f"record {len(stored) + len(unknown)}"
            is_stored = topic.append(value).status == 200
            (stored if is_stored else unknown).append(value)
            return is_stored and topic.leader() not in (None, hung.name)

        eventually(is_led_by_another)
        eventually(lambda: "has not ended a write for 3 s" in (hung.data / "node.log").read_text())
        append()
    assert hung.process.wait(60) == 1  # its thread in the kernel has come back, too
    cluster.start_node(hung)
    cluster.wait_ready()
    append()
    values = topic.values()
    assert [value for value in values if value not in unknown] == stored
    own = f"{topic.at(hung.url).records()}?offset={len(values) - 1}&local=true"
    eventually(lambda: call("GET", own).status == 200)
