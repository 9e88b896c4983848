"""A node whose disk is damaged refuses to start and says what to do; then it copies its peers and counts again."""

import logging
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

from .api import Topic, call, eventually, expect
from .test_failover import node_named
from .test_membership import SMALL, whole

# It begins up to twelve commands, each of which takes ten seconds on a busy machine.
pytestmark = pytest.mark.timeout(600)

LINES = ["x" * 999] * 500
BATCHES = 30


def flip(path: Path) -> None:
    """Flip one bit, early enough that it is no unused space at the end."""
    content = bytearray(path.read_bytes())
    content[min(300, len(content) // 2)] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    """Cut off the second half at least."""
    content = path.read_bytes()
    path.write_bytes(content[: min(300, len(content) // 2)])


def oldest_of_log(data: Path) -> Path:
    return min((data / "wal").glob("*.wal"))


def of_partition(pattern: str, data: Path) -> Path:
    """The first file of this kind that belongs to a checkpoint."""
    return min(path for checkpoint in data.glob("groups/*/checkpoint") for path in checkpoint.parent.glob(pattern))


DAMAGES: dict[str, tuple[Callable[[Path], None], Callable[[Path], Path]]] = {
    "a flipped bit in the log": (flip, oldest_of_log),
    "a cut file of the log": (cut, oldest_of_log),
    "a missing file of the log": (Path.unlink, oldest_of_log),
    "a flipped bit in the log's identity": (flip, lambda data: data / "wal" / "identity"),
    "a flipped bit in a checkpoint": (flip, partial(of_partition, "checkpoint")),
    "a cut checkpoint": (cut, partial(of_partition, "checkpoint")),
    "a missing checkpoint": (Path.unlink, partial(of_partition, "checkpoint")),
    "a cut segment": (cut, partial(of_partition, "files-*/*.arrow")),
    "a flipped bit in an index": (flip, partial(of_partition, "files-*/*.index")),
}


def lacks_its_beginning(data: Path) -> bool:
    """Whether the log no longer holds everything: from here on nothing on this disk can be done without."""
    return oldest_of_log(data).name != "0000000001.wal"


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stockade", *words], check=False, capture_output=True, text=True, timeout=60
    )


def test_085_a_damaged_disk_is_refused_with_the_file_and_rebuilt_from_its_peers(data: Path) -> None:
    with LocalCluster(data, port_base=0, restart=False, settings=SMALL) as cluster:
        topic = Topic(cluster.nodes[0].url, "t")
        topic.create(partitions=2)
        for number in range(BATCHES):
            expect(200, topic.append("\n".join([*LINES, str(number)]), 0))
        node = cluster.nodes[2]
        eventually(partial(lacks_its_beginning, node.data), 30)
        cluster.kill(node, signal.SIGTERM)
        assert node.process is not None
        assert node.process.wait(60) == 0
        shutil.copytree(node.data, data / "kept")
        for name, (damage, choose) in DAMAGES.items():
            logging.getLogger(__name__).info("%s: the node is to refuse", name)
            shutil.rmtree(node.data)
            shutil.copytree(data / "kept", node.data)
            path = choose(node.data)
            damage(path)
            refused = command("serve", "--config", str(node.data / "node.toml"))
            assert refused.returncode == 1, name
            assert "stockade rebuild --data DIR" in refused.stderr, name
            assert str(path.parent) in refused.stderr, f"{name}: {refused.stderr}"
            assert "Traceback" not in refused.stderr, name
        rebuilt = command("rebuild", "--data", str(node.data), "--yes")
        assert rebuilt.returncode == 0, rebuilt.stderr
        cluster.start_node(node)
        eventually(partial(whole, cluster, topic, "n3", 2), 60)
        third = topic.at(node.url)  # it leads now
        for number in range(BATCHES):
            query = f"offset={number * 501}&max_bytes=1048576"
            assert third.values(0, query)[:501] == [*LINES, str(number)]


def last_line(node: LocalNode) -> str:
    """The last line that a node logged, but for those that say that this machine was busy."""
    lines = (node.data / "node.log").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if "the event loop stood still" not in line][-1]


def test_the_scrubber_finds_a_flipped_bit_and_the_node_is_rebuilt(data: Path) -> None:
    settings = f"{SMALL}inspection_bytes_per_s = 1073741824\n"
    with LocalCluster(data, port_base=0, restart=False, settings=settings) as cluster:
        topic = Topic(cluster.nodes[0].url, "t")
        topic.create()
        for number in range(5):
            expect(200, topic.append("\n".join([*LINES, str(number)]), 0))
        node = cluster.nodes[2]
        eventually(lambda: len(list(node.data.glob("groups/*/files-*/*.arrow"))) > 1)
        oldest = min(node.data.glob("groups/*/files-*/*.arrow"))

        flip(oldest)

        assert node.process is not None
        assert node.process.wait(60) == 1
        last = last_line(node)
        assert oldest.name in last
        assert "stockade rebuild --data DIR" in last
        assert command("rebuild", "--data", str(node.data), "--yes").returncode == 0
        cluster.start_node(node)
        eventually(partial(whole, cluster, topic, "n3", 1), 60)
        query = "offset=0&max_bytes=1048576&local=true"
        assert topic.at(node.url).values(0, query)[:501] == [*LINES, "0"]


@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_a_read_that_meets_a_damaged_index_stops_the_leader_and_another_one_answers(
    data: Path, damage: Callable[[Path], None]
) -> None:
    """It was answered 500, again and again, while two other nodes had the records and could have led."""
    settings = f"{SMALL}inspection_bytes_per_s = 0\n"
    with LocalCluster(data, port_base=0, restart=False, settings=settings) as cluster:
        topic = Topic(cluster.nodes[0].url, "t")
        topic.create()
        for number in range(5):
            expect(200, topic.append("\n".join([*LINES, str(number)]), 0))
        leader = node_named(cluster, topic.led_by())
        eventually(lambda: len(list(leader.data.glob("groups/*/files-*/*.index"))) > 1)
        oldest = min(leader.data.glob("groups/*/files-*/*.index"))
        damage(oldest)
        survivor = topic.at(next(node for node in cluster.nodes if node is not leader).url)
        query = "offset=0&max_bytes=1048576"
        eventually(lambda: call("GET", f"{survivor.records()}?{query}").status == 200)
        assert survivor.values(0, query)[:501] == [*LINES, "0"]
        assert leader.process is not None
        assert leader.process.wait(60) == 1
        last = last_line(leader)
        assert oldest.name in last
        assert "stockade rebuild --data DIR" in last
