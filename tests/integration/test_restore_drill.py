"""The drill: a cluster under load is backed up all the time, and lost; what was backed up is restored into a new one,
and every record is compared with what its writer was acknowledged.

RPO: how old the oldest acknowledged record is that was lost. RTO: from the order to start a new cluster until every
record of the backup is in it and a writer writes again.
"""

import hashlib
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster

from .api import Topic, call, eventually, expect

PARTITIONS, LINES = 3, 50
DROPPED = 2 * LINES
"""Records that partition 0 has lost before the first backup: its log begins later."""


class Acked(NamedTuple):
    """A record's place, the digest of its value, and when its writer knew that it is stored."""

    offset: int
    digest: bytes
    at_s: float


def digest(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()


class Writers:
    """A thread for each partition that appends until the cluster is gone."""

    def __init__(self, topic: Topic) -> None:
        self.acked: list[list[Acked]] = [[] for _ in range(PARTITIONS)]
        self._topic = topic
        self._threads = [threading.Thread(target=self._write, args=(each,)) for each in range(PARTITIONS)]
        for thread in self._threads:
            thread.start()

    def _write(self, partition: int) -> None:
        try:
            for number in itertools.count():
                values = [f"{partition}/{number}/{line} " + "x" * 80 for line in range(LINES)]
                answer = self._topic.append("\n".join(values), partition)
                if answer.status == 200:
                    base, now_s = answer.json["base_offset"], time.time()
                    self.acked[partition] += [Acked(base + row, digest(v), now_s) for row, v in enumerate(values)]
        except OSError:
            return  # the cluster is gone

    def join(self) -> None:
        for thread in self._threads:
            thread.join(timeout=60)
            assert not thread.is_alive()


def backed_up_all_the_time(node: str, place: Path, log: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "stockade", "backup", "create", str(place), "--every", "1s", "--keep-last", "3"]
    with log.open("wb") as out:
        return subprocess.Popen([*command, "--url", node], stdout=out, stderr=out)


def found_in(topic: Topic, partition: int) -> dict[int, bytes]:
    """Every record of a partition: the digest of its value, by offset."""
    ends = expect(200, call("GET", f"{topic.url}/partitions/{partition}/offsets"))
    found: dict[int, bytes] = {}
    at = ends["log_start"]
    while at < ends["log_end"]:
        answer = expect(200, call("GET", f"{topic.records(partition)}?offset={at}&max_bytes=4194304"))
        found |= {record["offset"]: digest(record["value"]) for record in answer["records"]}
        at = answer["next_offset"]
    return found


def run(*words: str) -> str:
    ended = subprocess.run([sys.executable, "-m", "stockade", *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_cluster_lost_under_load_comes_back_with_every_record_of_its_backup_at_its_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record_property: Callable[[str, object], None]
) -> None:
    place = tmp_path / "backups"
    with LocalCluster(tmp_path / "lost", port_base=0) as lost:
        topic = Topic(lost.nodes[0].url, "drill")
        topic.create(partitions=PARTITIONS)
        writers = Writers(topic)
        eventually(lambda: all(len(each) > DROPPED for each in writers.acked))
        expect(200, call("POST", f"{topic.url}/partitions/0/trim", {"before": DROPPED}))
        backups = backed_up_all_the_time(topic.node, place, tmp_path / "backups.log")
        try:
            eventually(lambda: (tmp_path / "backups.log").read_text().count("record") >= 3)
            lost_s = time.time()
            lost.kill_all()
        finally:
            backups.terminate()
            backups.wait(timeout=60)
        writers.join()
    manifest = json.loads(max((place / "manifests").glob("*.json")).read_bytes())
    ends = [each["end_offset"] for each in manifest["topics"][0]["partitions"]]
    began_s = time.time()
    with LocalCluster(tmp_path / "new", port_base=0, cluster_id="new") as new:
        run("cluster", "upgrade", "--finalize", "--url", new.nodes[0].url)
        started_s = time.time()
        run("backup", "restore", str(place), "--url", new.nodes[0].url)
        restore_s = time.time() - started_s
        topic = topic.at(new.nodes[0].url)
        assert [expect(200, topic.append("next", each))["base_offset"] for each in range(PARTITIONS)] == ends
        rto_s = time.time() - began_s
        restored = [found_in(topic, partition) for partition in range(PARTITIONS)]
    lost_records: list[Acked] = []
    for partition, acked in enumerate(writers.acked):
        first = DROPPED if partition == 0 else 0
        there = {each.offset: each.digest for each in acked if first <= each.offset < ends[partition]}
        assert {offset: restored[partition][offset] for offset in there} == there
        unheard = set(restored[partition]) - set(there) - {ends[partition]}
        assert len(unheard) <= LINES  # of the append that was under way when the cluster was lost
        assert min(restored[partition]) == first
        lost_records += [each for each in acked if each.offset >= ends[partition]]
    assert all(each.at_s >= manifest["started_ms"] / 1000 for each in lost_records), "a backup misses what was there"
    rpo_s = lost_s - min((each.at_s for each in lost_records), default=lost_s)
    compared = sum(map(len, restored)) - PARTITIONS
    figures = {"rpo_s": rpo_s, "rto_s": rto_s, "restore_s": restore_s, "records": compared, "lost": len(lost_records)}
    for name, value in figures.items():
        record_property(name, value)
    text = f"{compared:,} records at their offsets, RPO {rpo_s:.2f} s ({len(lost_records):,} records)"
    with capsys.disabled():
        sys.stdout.write(f"\nrestore drill: {text}, RTO {rto_s:.2f} s, of which {restore_s:.2f} s restore\n")
