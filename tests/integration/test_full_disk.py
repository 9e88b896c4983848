"""Nodes whose disks fill up: they refuse appends in time, go on with the rest, and outlive a full disk."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from disks import MIB, cluster_on_disks, fill, needs_root

from stockade.cli.local_cluster.cluster import LocalCluster

from .api import Topic, call, eventually, expect
from .test_failover import node_named

pytestmark = needs_root

DISK = 64 * MIB
SETTINGS = """[limits]
segment_bytes_max = 1048576
wal_file_bytes = 1048576
wal_bytes_max = 4194304
checkpoint_bytes = 1048576
disk_soft_free_bytes = 25165824
disk_hard_free_bytes = 8388608
disk_reserve_bytes = 4194304
"""
LINES = "\n".join(["x" * 999] * 500)


@pytest.fixture
def three(data: Path) -> Iterator[LocalCluster]:
    """Three nodes with a disk each."""
    with cluster_on_disks(data, [DISK] * 3, SETTINGS) as running:
        yield running


@pytest.fixture
def single(data: Path) -> Iterator[LocalCluster]:
    """One node on a disk of its own; it is not started again when it ends."""
    with cluster_on_disks(data, [DISK], SETTINGS) as running:
        yield running


def created(cluster: LocalCluster, name: str) -> Topic:
    topic = Topic(cluster.nodes[0].url, name)
    topic.create(partitions=1)
    return topic


def refusal(topic: Topic) -> Any:
    """The problem with an append; None: it was stored."""
    answer = topic.append(LINES)
    return None if answer.status == 200 else expect(507, answer)


def end_of(topic: Topic) -> int:
    offsets = expect(200, call("GET", f"{topic.url}/partitions/0/offsets"))
    end: int = offsets["log_end"]
    return end


def is_stored(topic: Topic) -> bool:
    return topic.append("one").status == 200


def filled(topic: Topic) -> int:
    """Append until there is no room; the log's end then."""
    problem = eventually(partial(refusal, topic), pause_s=0)
    assert (problem["code"], problem["retriable"], problem["no_side_effects"], problem["nodes"]) == (
        "INSUFFICIENT_STORAGE",
        True,
        True,
        ["n1"],
    )
    return end_of(topic)


def trim(topic: Topic, before: int) -> None:
    expect(200, call("POST", f"{topic.url}/partitions/0/trim", {"before": before}))


def test_below_the_soft_watermark_appends_are_refused_and_a_trim_makes_room_for_more(single: LocalCluster) -> None:
    topic = created(single, "t")
    end = filled(topic)
    assert topic.values(query=f"offset={end - 1}") == ["x" * 999]
    stage = f"{topic.url}/partitions/0/stages/s"
    assert call("PUT", stage, LINES.encode(), headers={"Content-Type": "text/plain"}).status == 507
    expect(200, call("PUT", f"{single.nodes[0].url}/v1/groups/g/positions/t/0", {"offset": 7}))
    assert end_of(topic) == end  # nothing of a refused append is stored
    trim(topic, end - 1)
    eventually(partial(is_stored, topic))
    assert end_of(topic) == end + 1


def test_below_the_soft_watermark_deleting_a_topic_makes_room(single: LocalCluster) -> None:
    kept, topic = created(single, "kept"), created(single, "deleted")
    filled(topic)
    assert not is_stored(kept)
    expect(204, call("DELETE", topic.url))
    eventually(partial(is_stored, kept))


def test_a_node_outlives_a_disk_without_any_room_and_takes_appends_again_when_there_is_some(
    single: LocalCluster,
) -> None:
    topic = created(single, "t")
    (node,) = single.nodes
    for _ in range(20):
        assert refusal(topic) is None
    end, pid = end_of(topic), node.pid
    ballast = fill(node.data)
    eventually(partial(refusal, topic), pause_s=0)
    for number in range(200):  # of these each goes into the log
        expect(200, call("PUT", f"{node.url}/v1/groups/g{number}/positions/t/0", {"offset": 7}))
    created(single, "another")
    assert len(topic.values()) >= 1
    trim(topic, end - 1)
    ballast.unlink()
    eventually(partial(is_stored, topic))
    assert (node.pid, node.process is not None and node.process.poll()) == (pid, None)
    single.kill(node)
    single.start_node(node)
    single.wait_ready()
    eventually(partial(is_stored, topic))


def test_a_disk_with_few_inodes_left_takes_no_appends_until_there_are_more(single: LocalCluster) -> None:
    """Something else has filled it with small files: the next ones of the log and of checkpoints need inodes, too."""
    topic = created(single, "t")
    (node,) = single.nodes
    many = node.data / "many"
    many.mkdir()
    for number in range(os.statvfs(many).f_favail - 100):
        (many / str(number)).touch()
    refused = eventually(lambda: None if is_stored(topic) else topic.append("one"))
    assert expect(507, refused)["nodes"] == ["n1"]
    assert "appends are refused below 25165824, and below 256 free files: " in (node.data / "node.log").read_text()
    shutil.rmtree(many)
    eventually(partial(is_stored, topic))


def disks(cluster: LocalCluster) -> dict[str, str]:
    """How full the disks are, by what the first node knows."""
    nodes = expect(200, call("GET", f"{cluster.nodes[0].url}/v1/cluster"))["nodes"]
    return {node["node_id"]: node["disk"] for node in nodes}


def leave(disk: Path, free: int) -> Path:
    """Take all room but so much, by a file that is returned."""
    ballast, found = disk / "ballast", os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - free)
    return ballast


def test_with_one_full_disk_of_three_appends_go_on_and_its_replica_catches_up_later(three: LocalCluster) -> None:
    topic = created(three, "t")
    expect(200, topic.append("first"))
    leader = node_named(three, topic.led_by())
    pid, full = leader.pid, leave(leader.data, 2 * MIB)
    eventually(lambda: disks(three)[leader.name] == "full")
    eventually(lambda: topic.leader() not in (None, leader.name))  # it has handed its partition over
    before = os.statvfs(leader.data).f_bavail
    for _ in range(20):  # 10 MB
        expect(200, topic.append(LINES))
    end = end_of(topic)
    assert os.statvfs(leader.data).f_bavail > before // 2  # none of it went to the full disk
    assert (leader.pid, leader.process is not None and leader.process.poll()) == (pid, None)
    full.unlink()
    eventually(lambda: disks(three)[leader.name] == "ok")
    last = f"{topic.at(leader.url).records()}?offset={end - 1}&local=true"
    eventually(lambda: call("GET", last).status == 200)


def test_two_full_disks_of_three_refuse_appends_and_a_trim_still_reaches_them(three: LocalCluster) -> None:
    topic = created(three, "t")
    for _ in range(10):
        expect(200, topic.append(LINES))
    end = end_of(topic)
    leader = topic.led_by()
    others = [node for node in three.nodes if node.name != leader]
    ballast = [leave(node.data, 2 * MIB) for node in others]
    eventually(lambda: sorted(disks(three).values()) == ["full", "full", "ok"])
    problem = eventually(partial(refusal, topic), pause_s=0.05)
    assert set(problem["nodes"]) <= {node.name for node in others}
    trim(topic, end - 1)
    assert end_of(topic) >= end
    for each in ballast:
        each.unlink()
    eventually(partial(is_stored, topic))
