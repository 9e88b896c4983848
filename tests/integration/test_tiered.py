"""Old segments in a folder and in an S3 server, over real nodes: read as if they were here, also when nodes die."""

import hashlib
import re
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

from .api import Answer, Topic, call, eventually, expect
from .test_backup import done, rows, s3_process
from .test_failover import node_named

# Each of many steps may take a minute on a busy machine.
pytestmark = pytest.mark.timeout(600)

SETTINGS = """[limits]
segment_bytes_max = 1048576
wal_file_bytes = 1048576
wal_bytes_max = 4194304
checkpoint_bytes = 1048576
inspection_bytes_per_s = 0
disk_soft_free_bytes = 0
disk_hard_free_bytes = 0

[tiered]
place = "{place}"
cache_bytes = 268435456
timeout_ms = {timeout_ms}
"""
BODY = 100
LINE = "x" * 2000
HERE = {"Stockade-Forwarded-By": "client"}
"""The node that is asked answers itself."""


def created(node: LocalNode, **local: int) -> Topic:
    """A topic of one partition, in a cluster that has got its first level meanwhile."""
    eventually(lambda: call("GET", f"{node.url}/v1/cluster").json["feature_level"] == 2)
    topic = Topic(node.url, "old")
    topic.create(partitions=1, config={"retention_ms": -1, **local})
    return topic


def segments(node: LocalNode, topic: Topic) -> list[int]:
    """First offsets of the segments of the topic's partition on a node's disk."""
    group = expect(200, call("GET", topic.url))["topic_id"] << 16
    return sorted(int(path.stem) for path in (node.data / "groups" / f"{group:016x}").glob("files-*/*.arrow"))


def contents(topic: Topic) -> dict[str, Any]:
    found: dict[str, Any] = expect(200, call("GET", f"{topic.url}/partitions/0/contents"))
    return found


def append(topic: Topic, bodies: range) -> None:
    for number in bodies:
        text = "\n".join(f"{number}/{line} {LINE}" for line in range(BODY))
        eventually(lambda text=text: topic.append(text).status == 200)  # type: ignore[misc]


def digest(topic: Topic, *, local: bool = False) -> tuple[int, str]:
    """How many records a reader gets from the log's start to its end, and the digest of all."""
    found, at, end = hashlib.sha256(), expect(200, call("GET", f"{topic.url}/partitions/0/offsets"))["log_start"], None
    count = 0
    while at != end:
        query = f"offset={at}&max_bytes=2097152" + ("&local=true" if local else "")
        answer = expect(200, call("GET", f"{topic.records()}?{query}", headers=HERE if local else {}))
        for record in answer["records"]:
            assert record["offset"] == at
            found.update(record["value"].encode() + b"\n")
            at, count = at + 1, count + 1
        end = answer["log_end"]
    return count, found.hexdigest()


def read(topic: Topic, offset: int) -> Answer:
    return call("GET", f"{topic.records()}?offset={offset}&max_bytes=1")


def has_caught_up(topic: Topic) -> bool:
    answer = call("GET", f"{topic.records()}?offset=latest&local=true", headers=HERE)
    return answer.status == 200 and answer.json["log_end"] == 40 * BODY


def expected(bodies: range) -> tuple[int, str]:
    found = hashlib.sha256()
    for number in bodies:
        for line in range(BODY):
            found.update(f"{number}/{line} {LINE}\n".encode())
    return len(bodies) * BODY, found.hexdigest()


def metric(node: LocalNode, name: str) -> float:
    text = call("GET", f"{node.url}/metrics").body.decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def until_tiered(topic: Topic, nodes: list[LocalNode]) -> int:
    """Everything but the last segment is in the store, and no longer in a replica's log; answers where that begins. Of
    its dropped files, less than checkpoint_bytes (one segment) may lie on a disk until the next checkpoint.
    """
    start: int = eventually(lambda: (found := contents(topic))["local_start"] >= found["log_end"] - 600 and found)[
        "local_start"
    ]
    for node in nodes:
        eventually(lambda node=node: sum(each < start for each in segments(node, topic)) <= 1)  # type: ignore[misc]
    return start


@pytest.fixture
def three(data: Path) -> Iterator[LocalCluster]:
    settings = SETTINGS.format(place=data / "store", timeout_ms=30_000)
    with LocalCluster(data / "nodes", port_base=0, restart=False, settings=settings) as running:
        yield running


def objects(data: Path) -> list[Path]:
    return list((data / "store").rglob("*.arrow.zst"))


def test_a_tiered_log_survives_killed_leaders_and_lost_disks(three: LocalCluster, data: Path) -> None:
    topic = created(three.nodes[0], local_retention_bytes=0)
    append(topic, range(20))
    until_tiered(topic, three.nodes)
    assert digest(topic) == expected(range(20))
    leader = node_named(three, topic.led_by())
    three.kill(leader)
    topic = topic.at(next(node.url for node in three.nodes if node is not leader))
    append(topic, range(20, 40))
    shutil.rmtree(leader.data / "wal")
    for folder in ("groups", "partitions", "tiered"):
        shutil.rmtree(leader.data / folder, ignore_errors=True)
    for file in ("founders.json", "members.json", "principals.json"):
        (leader.data / file).unlink(missing_ok=True)
    three.start_node(leader)
    until_tiered(topic, [node for node in three.nodes if node is not leader])
    eventually(lambda: has_caught_up(topic.at(leader.url)), timeout_s=120)
    assert segments(leader, topic)[0] >= 1000, "the copy has only what the other disks have"
    for node in three.nodes:
        eventually(partial(has_caught_up, topic.at(node.url)))
        assert digest(topic.at(node.url), local=True) == expected(range(40))
    assert digest(topic) == expected(range(40))
    place = str(data / "backup")
    assert done(topic.node, "backup", "create", place, "--topic", "old")["records"] == 4000
    done(topic.node, "backup", "restore", place, "--topic", "old", "--as", "again")
    assert rows(Topic(topic.node, "again"), 0).equals(rows(topic, 0))
    expect(204, call("DELETE", f"{topic.node}/v1/topics/again"))
    expect(200, call("PATCH", topic.url, {"config": {"retention_bytes": 2_000_000}}))
    eventually(lambda: contents(topic)["log_start"] > 2000)
    count, _ = digest(topic)
    assert 0 < count < 2000
    expect(204, call("DELETE", topic.url))
    eventually(lambda: not objects(data), timeout_s=120)


def test_a_store_that_hangs_stops_reads_of_old_records_and_nothing_else(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    data.mkdir()
    with s3_process(data / "moto.log") as (server, process):
        place = f"s3://backups/old?endpoint_override={server}&scheme=http&region=us-east-1"
        settings = SETTINGS.format(place=place, timeout_ms=1000)
        with LocalCluster(data / "nodes", nodes_count=1, port_base=0, restart=False, settings=settings) as one:
            topic = created(one.nodes[0], local_retention_ms=0)
            append(topic, range(15))
            until_tiered(topic, one.nodes)
            assert metric(one.nodes[0], "stockade_tiered_bytes") > 2_000_000
            assert read(topic, 0).json["records"][0]["offset"] == 0
            process.send_signal(signal.SIGSTOP)
            try:
                refused = read(topic, 700)
                assert (refused.status, refused.json["code"]) == (503, "TIERED_STORE_UNAVAILABLE")
                assert (refused.json["store"], refused.json["retriable"]) == ("s3://backups/old", True)
                assert read(topic, 0).status == 200  # from the cache
                append(topic, range(15, 25))
                assert read(topic, 2400).status == 200
            finally:
                process.send_signal(signal.SIGCONT)
            eventually(lambda: read(topic, 700).status == 200)
            until_tiered(topic, one.nodes)
            assert digest(topic) == expected(range(25))
            assert metric(one.nodes[0], 'stockade_tiered_reads_total{outcome="failed"}') > 0
            expect(204, call("DELETE", topic.url))
            keys = f"http://{server}/backups?list-type=2&prefix=old/"
            eventually(lambda: re.findall("<Key>(.*?)</Key>", call("GET", keys).body.decode()) == ["old/local/"])
