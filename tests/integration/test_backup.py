"""Backups of real clusters: one is lost and restored into another; damage, incidents, and an S3 server."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stockade.cli.backup.commands import shown
from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.cli.local_cluster.ports import free_ports
from stockade.partition.api.topics import BATCH_BYTES_MAX
from stockade.partition.records.batch import SCHEMA

from .api import ARROW, CALM, Topic, call, eventually, expect

# A test types up to a dozen commands; on a busy machine each takes ten seconds to begin.
pytestmark = pytest.mark.timeout(600)

BATCHES = 30
LINES = [f"{number} " + "x" * 90 for number in range(300)]


def stockade(node: str, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return offline(*words, "--url", node, **environment)


def done(node: str, *words: str, **environment: str) -> Any:
    """The facts that a command prints."""
    ended = stockade(node, *words, "--json", **environment)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def offline(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A command that asks no node."""
    command = [sys.executable, "-m", "stockade", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def rows(topic: Topic, partition: int, offset: int = 0) -> pa.Table:
    """Every record of a partition, by the tests' own reader: key, value, timestamp, headers. ``offset``: where the
    reader begins; whole batches come, so perhaps some records before it.
    """
    found: list[pa.RecordBatch] = []
    while True:
        answer = call("GET", f"{topic.records(partition)}?offset={offset}", headers={"Accept": ARROW})
        assert answer.status == 200, answer.body
        batches = list(pa.ipc.open_stream(answer.body))
        if not batches:
            return pa.Table.from_batches(found) if found else None
        found += batches
        offset = int(answer.headers["stockade-next-offset"])


def filled(node: str, name: str, partitions: int = 2, batches: int = BATCHES, **config: Any) -> Topic:
    topic = Topic(node, name)
    topic.create(partitions=partitions, config=config)
    for number in range(batches):
        expect(200, topic.append("\n".join(LINES), number % partitions))
    return topic


@pytest.fixture(scope="module")
def other(module_path: Path) -> Iterator[LocalCluster]:
    """A cluster of another name, to restore into."""
    with LocalCluster(module_path / "other", nodes_count=1, port_base=0, cluster_id="other") as running:
        node = running.nodes[0].url
        assert stockade(node, "cluster", "upgrade", "--finalize").returncode == 0
        yield running


def test_a_lost_cluster_is_restored_into_another_one_record_by_record(
    data: Path, other: LocalCluster, record_property: Any
) -> None:
    place = str(data / "backup")
    with LocalCluster(data / "lost", port_base=0, settings=CALM) as lost:
        node = lost.nodes[0].url
        topic = filled(node, "drill", 3, retention_ms=86_400_000, dedupe_window_ms=1000)
        odd = [{"key": "k", "value": None, "timestamp_ms": 5, "headers": [{"key": "h", "value_base64": "/w=="}]}]
        expect(200, call("POST", topic.records(1), {"records": odd}))
        sealed = filled(node, "sealed", 1, 1, require_fence=False)
        expect(200, call("PATCH", sealed.url, {"sealed": True}))
        Topic(node, "empty").create(partitions=2, config={"require_fence": True, "writer_group": "g"})
        expect(200, call("PUT", f"{node}/v1/groups/g/positions/drill/2", {"offset": 1234}))
        first = done(node, "backup", "create", place)
        assert (first["topics"], first["records"]) == (3, len(LINES) * (BATCHES + 1) + 1)
        [noted] = expect(200, call("GET", f"{node}/v1/cluster/backups"))["backups"]
        assert (noted["place"], noted["records"]) == (shown(place), first["records"])
        expect(200, topic.append("later", 2))
        began = time.monotonic()
        second = done(node, "backup", "create", place)
        record_property("backup_of_one_new_record_s", time.monotonic() - began)
        assert second["records"] == first["records"] + 1
        before = {number: rows(topic, number) for number in range(3)}
        described = expect(200, call("GET", topic.url))
    assert offline("backup", "verify", place).returncode == 0
    new = other.nodes[0].url
    began = time.monotonic()
    restored = done(new, "backup", "restore", place)
    record_property("restore_s", time.monotonic() - began)
    assert {(each["topic"], each["partition"], each["shift"]) for each in restored} == {
        *(("drill", number, 0) for number in range(3)),
        ("sealed", 0, 0),
        ("empty", 0, 0),
        ("empty", 1, 0),
    }
    for number, table in before.items():
        assert rows(topic.at(new), number).equals(table)
    assert expect(200, call("GET", topic.at(new).url))["config"] == described["config"]
    assert expect(200, call("GET", f"{new}/v1/groups/g/positions/drill/2"))["offset"] == 1234
    assert sealed.at(new).append("no more").json["code"] == "TOPIC_SEALED"
    empty = expect(200, call("GET", f"{new}/v1/topics/empty"))["config"]
    assert (empty["require_fence"], empty["writer_group"]) == (True, "g")


def test_an_incremental_backup_copies_only_new_records_and_stands_for_itself(data: Path, other: LocalCluster) -> None:
    node, place = other.nodes[0].url, data / "backup"
    topic = filled(node, "grows", 1, 30)
    done(node, "backup", "create", str(place), "--topic", "grows")
    times = {path: path.stat().st_mtime_ns for path in place.rglob("*.arrow")}
    expect(200, topic.append("one more"))
    done(node, "backup", "create", str(place), "--topic", "grows")
    after = {path: path.stat().st_mtime_ns for path in place.rglob("*.arrow")}
    assert times.items() < after.items()
    assert len(after) == len(times) + 1
    listed = json.loads(offline("backup", "list", str(place), "--json").stdout)
    assert [each["records"] for each in listed] == [9000, 9001]
    (place / "manifests" / f"{listed[0]['name']}.json").unlink()
    assert offline("backup", "verify", str(place)).returncode == 0


def test_a_log_that_began_later_than_0_keeps_its_offsets_and_positions(data: Path, other: LocalCluster) -> None:
    node, place = other.nodes[0].url, str(data / "backup")
    topic = filled(node, "later", 2, 6)
    expect(200, call("POST", f"{topic.url}/partitions/0/trim", {"before": 500}))
    expect(200, call("POST", f"{topic.url}/partitions/1/trim", {"before": -1}))
    expect(200, call("PUT", f"{node}/v1/groups/g/positions/later/0", {"offset": 620, "metadata": "page 7"}))
    assert done(node, "backup", "create", place, "--topic", "later")["records"] == 400
    restored = ("backup", "restore", place, "--topic", "later", "--as")
    assert done(node, *restored, "kept", "--until-offset", "later/0=700") == [
        {"topic": "kept", "partition": 0, "records": 200, "log_end": 700, "shift": 0},
        {"topic": "kept", "partition": 1, "records": 0, "log_end": 900, "shift": 0},
    ]
    assert done(node, *restored, "kept", "--resume")[0]["log_end"] == 900
    kept, query = Topic(node, "kept"), "offset=500&max_bytes=67108864"
    assert kept.values(query=query) == topic.values(query=query)
    ends = expect(200, call("GET", f"{kept.url}/partitions/1/offsets"))
    assert (ends["log_start"], ends["log_end"]) == (900, 900)
    position = expect(200, call("GET", f"{node}/v1/groups/g/positions/kept/0"))
    assert (position["offset"], position["metadata"]) == (620, "page 7")
    assert expect(200, kept.append("next", 1))["base_offset"] == 900
    assert [each["shift"] for each in done(node, *restored, "renumbered", "--renumber")] == [-500, -900]
    renumbered = Topic(node, "renumbered")
    assert renumbered.values(query="offset=0&max_bytes=67108864") == topic.values(query=query)
    assert expect(200, call("GET", f"{node}/v1/groups/g/positions/renumbered/0"))["offset"] == 120
    ended = stockade(node, *restored, "renumbered", "--resume")
    assert (ended.returncode, "restored with --renumber" in ended.stderr) == (1, True)


def test_records_come_back_that_their_topic_would_not_take_today(data: Path, other: LocalCluster) -> None:
    """One is larger than the bound that was lowered later; the other is within the largest one by its compression."""
    node, place = other.nodes[0].url, str(data / "backup")
    topic = Topic(node, "large")
    topic.create(partitions=1, config={"max_batch_bytes": BATCH_BYTES_MAX})
    expect(200, topic.append("x" * 3_000_000))
    columns = [[None], [bytes(BATCH_BYTES_MAX - 64)], [5], [None]]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    expect(200, call("POST", topic.records(), sink.getvalue().to_pybytes(), headers={"Content-Type": ARROW}))
    expect(200, call("PATCH", topic.url, {"config": {"max_batch_bytes": 1024}}))
    done(node, "backup", "create", place, "--topic", "large")
    done(node, "backup", "restore", place, "--topic", "large", "--as", "large-again")
    again = Topic(node, "large-again")
    assert rows(again, 0).equals(rows(topic, 0))
    assert expect(200, call("GET", again.url))["config"]["max_batch_bytes"] == 1024


def test_missing_files_of_a_backup_are_copied_again_and_old_backups_go_without_harm(
    data: Path, other: LocalCluster
) -> None:
    node, place = other.nodes[0].url, data / "backup"
    topic = filled(node, "mended", 2, 6)
    create = ("backup", "create", str(place), "--topic", "mended")
    done(node, *create)
    for path in sorted(place.rglob("*.arrow"))[:1]:
        path.unlink()
    ended = stockade(node, *create)
    assert (ended.returncode, "its records were copied again" in ended.stderr) == (0, True)
    expect(200, topic.append("one more"))
    metrics = data / "backup.prom"
    done(node, *create, "--keep-last", "1", "--metrics-file", str(metrics))
    assert len(list((place / "manifests").glob("*.json"))) == 1
    assert offline("backup", "verify", str(place)).returncode == 0
    gauges = dict(line.split() for line in metrics.read_text().splitlines() if not line.startswith("#"))
    assert float(gauges["stockade_backup_records"]) == 1801
    assert abs(time.time() - float(gauges["stockade_backup_last_success_timestamp_seconds"])) < 60
    done(node, "backup", "restore", str(place), "--topic", "mended", "--as", "mended-again")
    for number in (0, 1):
        assert rows(Topic(node, "mended-again"), number).equals(rows(topic, number))


def test_a_restore_stops_before_a_time_or_an_offset(data: Path, other: LocalCluster) -> None:
    node, place = other.nodes[0].url, str(data / "backup")
    topic = Topic(node, "timed")
    topic.create(partitions=2)
    for partition in (0, 1):
        for times in ([10, 20, 30], [15, 40]):
            records = [{"value": str(each), "timestamp_ms": each} for each in times]
            expect(200, call("POST", topic.records(partition), {"records": records}))
    done(node, "backup", "create", place, "--topic", "timed")

    def restored(name: str, *options: str) -> list[list[str]]:
        done(node, "backup", "restore", place, "--topic", "timed", "--as", name, *options)
        return [Topic(node, name).values(partition) for partition in (0, 1)]

    whole, begun = ["10", "20", "30", "15", "40"], "1970-01-01T00:00:00.0"
    assert restored("t30", "--until", f"{begun}30Z") == [["10", "20"]] * 2  # 15 comes after a record that is too late
    assert restored("t31", "--until", f"{begun}31Z") == [whole[:4]] * 2
    assert restored("t41", "--until", f"{begun}41Z") == [whole] * 2
    assert restored("to", "--until-offset", "timed/1=4") == [whole, whole[:4]]
    assert restored("t0", "--until-offset", "timed/1=0") == [whole, []]


def test_damage_is_found_and_never_restored(data: Path, other: LocalCluster) -> None:
    node, place = other.nodes[0].url, data / "backup"
    filled(node, "damaged", 1, 2)
    done(node, "backup", "create", str(place), "--topic", "damaged")
    (file,) = place.rglob("*.arrow")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    ended = offline("backup", "verify", str(place))
    assert (ended.returncode, "another SHA-256" in ended.stdout) == (1, True)
    ended = stockade(node, "backup", "restore", str(place), "--topic", "damaged", "--as", "new")
    assert (ended.returncode, "another SHA-256" in ended.stderr) == (1, True)
    assert expect(200, call("GET", f"{node}/v1/topics/new/partitions/0/offsets"))["log_end"] == 0
    file.unlink()
    ended = offline("backup", "verify", str(place))
    assert (ended.returncode, "is missing" in ended.stdout) == (1, True)


def test_a_topic_with_records_is_not_touched_and_a_cut_short_restore_goes_on(data: Path, other: LocalCluster) -> None:
    node, place = other.nodes[0].url, str(data / "backup")
    topic = filled(node, "again", 1, 4)
    expect(200, call("PUT", f"{node}/v1/groups/g/positions/again/0", {"offset": 700}))
    done(node, "backup", "create", place, "--topic", "again")
    ended = stockade(node, "backup", "restore", place, "--topic", "again")
    assert (ended.returncode, "is there already" in ended.stderr) == (1, True)
    restored = ("backup", "restore", place, "--topic", "again", "--as", "copy")
    done(node, *restored, "--until-offset", "again/0=500")
    assert stockade(node, *restored).returncode == 1
    assert done(node, *restored, "--resume") == [
        {"topic": "copy", "partition": 0, "records": 1200, "log_end": 1200, "shift": 0}
    ]
    assert rows(Topic(node, "copy"), 0).equals(rows(topic, 0))
    assert stockade(node, *restored).returncode == 1
    copy, position = Topic(node, "copy"), f"{node}/v1/groups/g/positions/copy/0"
    assert expect(200, call("GET", position))["offset"] == 500  # where the first attempt ended
    expect(200, call("PUT", position, {"offset": 900}))
    expect(200, call("PATCH", copy.url, {"config": {"retention_ms": 5_000_000}}))
    assert done(node, *restored, "--resume")[0]["log_end"] == 1200  # nothing is left to do
    assert expect(200, call("GET", position))["offset"] == 900
    assert expect(200, call("GET", copy.url))["config"]["retention_ms"] == 5_000_000
    ended = stockade(node, "backup", "restore", place, "--topic", "again", "--as", "b", "--until-offset", "agian/0=5")
    assert (ended.returncode, "no topic agian is to be restored" in ended.stderr) == (2, True)
    assert call("GET", f"{node}/v1/topics/b").status == 404


def test_a_log_that_is_shorter_than_its_backup_is_noticed(data: Path, other: LocalCluster) -> None:
    node, place = other.nodes[0].url, data / "backup"
    filled(node, "shorter", 1, 1)
    done(node, "backup", "create", str(place), "--topic", "shorter")
    (path,) = (place / "manifests").glob("*.json")
    manifest = json.loads(path.read_bytes())
    manifest["has_digest"] = False
    manifest["topics"][0]["partitions"][0]["end_offset"] += 1  # as if the cluster had lost a record since
    path.write_text(json.dumps(manifest), encoding="utf-8")
    ended = stockade(node, "backup", "create", str(place), "--topic", "shorter")
    assert (ended.returncode, "lost records" in ended.stderr) == (1, True)
    manifest["cluster_id"] = "another"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    ended = stockade(node, "backup", "create", str(place), "--topic", "shorter")
    assert (ended.returncode, "the cluster another" in ended.stderr) == (1, True)


def test_a_backup_does_not_begin_in_the_bare_folder_of_a_share_that_is_not_mounted(
    data: Path, other: LocalCluster
) -> None:
    """All was copied to the machine's own disk, and told as a success: only a command that ran on had noticed it."""
    node, place, away = other.nodes[0].url, data / "backup", data / "away"
    filled(node, "mounted", 1, 1)
    create = ("backup", "create", str(place), "--topic", "mounted")
    done(node, *create)
    place.rename(away)
    place.mkdir()
    ended = stockade(node, *create)
    assert (ended.returncode, "is it mounted?" in ended.stderr, list(place.iterdir())) == (1, True, [])
    place.rmdir()
    away.rename(place)
    done(node, *create)
    for path in place.rglob("*.json*"):
        path.unlink()
    assert stockade(node, *create).returncode == 1
    assert done(node, *create, "--anew")["records"] == len(LINES)
    done(node, *create)


@contextmanager
def s3_process(log: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Where moto's S3 server is, with a bucket ``backups``, and its process."""
    (port,) = free_ports(1)
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as server:
        try:
            eventually(lambda: call("GET", f"http://127.0.0.1:{port}/").status == 200)
            assert call("PUT", f"http://127.0.0.1:{port}/backups", b"").status == 200
            yield f"127.0.0.1:{port}", server
        finally:
            server.terminate()


@contextmanager
def s3_server(log: Path) -> Iterator[str]:
    """Where moto's S3 server is, with a bucket ``backups``."""
    with s3_process(log) as (address, _):
        yield address


def test_backups_go_to_an_s3_server_and_come_back(data: Path, other: LocalCluster) -> None:
    node = other.nodes[0].url
    topic = filled(node, "clouded", 2, 4)
    data.mkdir()
    with s3_server(data / "moto.log") as server:
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
        place = f"s3://backups/house?endpoint_override={server}&scheme=http&region=us-east-1"
        assert done(node, "backup", "create", place, "--topic", "clouded", **keys)["records"] == 1200
        for _ in range(2):  # as much as the partition had
            expect(200, topic.append("\n".join(LINES), 0))
        assert done(node, "backup", "create", place, "--topic", "clouded", **keys)["records"] == 1800
        pruned = json.loads(offline("backup", "prune", place, "--keep-last", "1", "--json", **keys).stdout)
        assert (len(pruned["backups"]), pruned["files"]) == (1, 1)  # of the partition that grew: it was put together
        verified = offline("backup", "verify", place, "--json", **keys)
        assert (verified.returncode, json.loads(verified.stdout)["faults"]) == (0, [])
        done(node, "backup", "restore", place, "--topic", "clouded", "--as", "fallen", **keys)
    for number in (0, 1):
        assert rows(Topic(node, "fallen"), number).equals(rows(topic, number))


def test_the_page_verifies_a_backup_with_pyarrow_alone(data: Path, other: LocalCluster) -> None:
    """Its program is run as it stands there."""
    node, place = other.nodes[0].url, data / "backup"
    filled(node, "paged", 2, 3)
    done(node, "backup", "create", str(place), "--topic", "paged")
    program = from_page(data, "verify_backup.py")
    assert "stockade" not in program.read_text(encoding="utf-8")

    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, program, place], capture_output=True, text=True, check=False)

    verified = run()
    assert (verified.returncode, verified.stdout.count("300 records are")) == (0, 1), verified.stderr
    path = min(place.rglob("*.arrow"))
    path.write_bytes(path.read_bytes()[:-1])
    assert run().returncode == 1


def test_records_that_the_last_node_still_tells_follow_the_backup_into_a_new_cluster(
    data: Path, other: LocalCluster
) -> None:
    """By the program of the page, as it stands there. Nothing said what to do when two of three disks are lost."""
    place, new = str(data / "backup"), other.nodes[0].url
    with LocalCluster(data / "lost", port_base=0, restart=False, settings=CALM) as lost:
        node = lost.nodes[0].url
        topic = filled(node, "survives", 2, 4)
        done(node, "backup", "create", place)
        for number in range(5):
            expect(200, topic.append("\n".join(LINES), number % 2))
        before = {number: rows(topic, number) for number in range(2)}
        here = {"Stockade-Forwarded-By": "client"}
        for number in range(2):  # the last node knows that all of it is committed
            url = f"{topic.records(number)}?offset=latest&local=true"
            end = before[number].num_rows
            eventually(lambda url=url, end=end: call("GET", url, headers=here).json["log_end"] == end)  # type: ignore[misc]
        for each in lost.nodes[1:]:
            lost.kill(each)
        done(new, "backup", "restore", place, "--topic", "survives")
        program = from_page(data, "rescue.py")
        for more in (900, 600), (0, 0):  # a second run finds nothing more
            ended = subprocess.run([sys.executable, program, node, new], capture_output=True, text=True, check=False)
            for number in range(2):
                assert f"survives/{number}: {more[number]} records more" in ended.stdout, ended
    for number, table in before.items():
        assert rows(topic.at(new), number).equals(table)


def test_the_disk_of_a_stopped_node_tells_all_that_its_log_has(data: Path, other: LocalCluster) -> None:
    """A node that was started again without a majority tells records up to its last checkpoint only, here none."""
    place, new = str(data / "backup"), other.nodes[0].url
    with LocalCluster(data / "lost", port_base=0, restart=False, settings=CALM) as lost:
        topic = filled(lost.nodes[0].url, "on-disk", 2, 4)
        expect(200, call("POST", f"{topic.url}/partitions/1/trim", {"before": 100}))
        done(lost.nodes[0].url, "backup", "create", place)
        for number in range(5):
            expect(200, topic.append("\n".join(LINES), number % 2))
        before = {number: rows(topic, number, 100) for number in range(2)}
        running = stockade(new, "backup", "rescue", str(lost.nodes[0].data))
        lost.kill(lost.nodes[0])
        wrong = stockade(lost.nodes[1].url, "backup", "rescue", str(lost.nodes[0].data), "--timeout", "60")
        lost.kill_all()
        disk = lost.nodes[0].data
        found = contents(disk)
        told = offline("backup", "rescue", str(disk), "--dry-run", "--json")
        assert (told.returncode, told.stderr) == (0, "")
        places = [
            (each["partition"], each["first"], each["known_end"], each["log_end"]) for each in json.loads(told.stdout)
        ]
        assert places == [(0, 0, 0, 1500), (1, 100, 0, 1200)]
        missing = stockade(new, "backup", "rescue", str(disk), "--json")
        assert (missing.returncode, json.loads(missing.stderr)["code"]) == (1, "CANNOT_RESTORE")
        done(new, "backup", "restore", place, "--topic", "on-disk")
        assert added(done(new, "backup", "rescue", str(disk), "--known-only")) == [(0, 0), (0, 0)]
        assert added(done(new, "backup", "rescue", str(disk))) == [(900, 900), (600, 600)]
        assert added(done(new, "backup", "rescue", str(disk))) == [(0, 0), (0, 0)]
        assert contents(disk) == found
    assert running.returncode == 1, running
    assert wrong.returncode == 1, wrong
    assert re.search(r"^on-disk/0-1: .* is it the cluster of this disk\?", wrong.stderr, re.MULTILINE)
    assert "in use by another process" in running.stderr
    for number, table in before.items():
        assert last(rows(topic.at(new), number, 100)).equals(last(table))


def test_topics_that_no_backup_has_are_rescued_with_the_positions_of_groups(data: Path, other: LocalCluster) -> None:
    """Of a topic that was missing it said no more than that; groups that read it from its end skipped all of it."""
    new = other.nodes[0].url
    with LocalCluster(data / "unsaved", nodes_count=1, port_base=0, restart=False) as lost:
        topic = filled(lost.nodes[0].url, "unsaved", 2, 4, require_fence=False, retention_ms=-1)
        done(lost.nodes[0].url, "groups", "reset", "reading", "unsaved", "--to-offset", "450", "--yes")
        done(lost.nodes[0].url, "topics", "alter", "unsaved", "--config", "require_fence=true")
        before = {number: rows(topic, number) for number in range(2)}
        lost.kill_all()
    disk = lost.nodes[0].data
    missing = stockade(new, "backup", "rescue", str(disk))
    assert missing.returncode == 1, missing
    create, alter = re.findall(r"`stockade ([^`]*)`", missing.stderr)
    assert create == "topics create unsaved --partitions 2 --config retention_ms=-1"
    while done(new, *create.split())["topic_id"] == topic_id_of(disk):  # of another cluster, by chance
        done(new, "topics", "delete", "unsaved", "--yes")
    done(new, "groups", "reset", "reading", "unsaved", "--partition", "1", "--to-offset", "0", "--yes")
    saved = done(new, "backup", "rescue", str(disk))
    assert [(each["added"], each["added_unknown"], each["positions"]) for each in saved] == [(600, 0, 1)] * 2
    done(new, "groups", "reset", "reading", "unsaved", "--partition", "0", "--to-offset", "500", "--yes")
    assert [each["positions"] for each in done(new, "backup", "rescue", str(disk))] == [0, 0]
    found = done(new, "groups", "describe", "reading", "--topic", "unsaved")["positions"]
    assert [each["offset"] for each in found] == [500, 450]
    assert done(new, *alter.split())["config"]["require_fence"] is True
    for number, table in before.items():
        assert rows(topic.at(new), number).equals(table)


def topic_id_of(disk: Path) -> int:
    (note, *_) = (disk / "partitions").glob("*/replica.json")
    found: int = json.loads(note.read_bytes())["topic_id"]
    return found


def test_damaged_files_of_a_disk_are_named_and_all_else_is_rescued(data: Path) -> None:
    """One damaged note of a replica, or one flipped bit of the log, refused the whole disk."""
    with LocalCluster(data / "hurt", nodes_count=1, port_base=0, restart=False) as lost:
        url = lost.nodes[0].url
        filled(url, "first", 1, 1)
        filled(url, "second", 1, 1)
        expect(200, Topic(url, "second").append("here it breaks", 0))
        expect(200, Topic(url, "first").append("behind it", 0))
        lost.kill_all()
    disk = lost.nodes[0].data

    def told() -> tuple[list[tuple[str, int]], str]:
        ended = offline("backup", "rescue", str(disk), "--dry-run", "--json")
        assert ended.returncode == (1 if ended.stderr else 0)
        return [(each["topic"], each["log_end"]) for each in json.loads(ended.stdout)], ended.stderr

    assert told() == ([("first", 301), ("second", 301)], "")
    [log] = [path for path in (disk / "wal").glob("*.wal") if b"here it breaks" in path.read_bytes()]
    log.write_bytes(log.read_bytes().replace(b"here it breaks", b"here it brakes"))
    found, fault = told()
    assert found == [("first", 300), ("second", 300)]
    assert json.loads(fault)["detail"].startswith(f"{log}: position ")
    [note] = [path for path in (disk / "partitions").glob("*/replica.json") if b'"first"' in path.read_bytes()]
    for content in (b"{", note.read_bytes().replace(b'"partition":0', b'"partition":1')):
        note.write_bytes(content)
        found, fault = told()
        assert found == [("second", 300)]
        assert json.loads(fault)["detail"].startswith(f"{note}: damaged (")
    (disk / "wal" / "identity").unlink()
    found, fault = told()
    assert found == [("second", 0)], "what its last checkpoint has"
    assert f"{disk}/wal/identity: position 0: the file is missing" in json.loads(fault)["detail"]
    (disk / "wal").rename(data / "removed")
    found, fault = told()
    assert found == [("second", 0)]
    assert f"{disk}/wal: the folder is missing, so only the checkpoints could be read" in json.loads(fault)["detail"]


def last(table: pa.Table) -> pa.Table:
    """The last 1,100 records."""
    return table.slice(table.num_rows - 1100)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def added(found: Any) -> list[tuple[int, int]]:
    return [(each["added"], each["added_unknown"]) for each in found]


def from_page(data: Path, name: str) -> Path:
    """A program of the page on backups, as a file."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "backup.md").read_text(encoding="utf-8")
    found = re.search(rf"```python\n(# {re.escape(name)}\n.*?)```", page, re.DOTALL)
    assert found is not None
    program = data / name
    program.write_text(found[1], encoding="utf-8")
    return program
