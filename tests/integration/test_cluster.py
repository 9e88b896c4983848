"""Three real nodes: any of them answers, and what was acknowledged is there after they were all stopped."""

import io
import json
import signal
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from stockade.cli.local_cluster.cluster import ClusterFailed, LocalCluster, end_of_log
from stockade.partition.records.batch import SCHEMA

from .api import ARROW, CALM, Topic, Writer, call, eventually, expect


def test_any_node_takes_an_append_and_gives_the_records(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[0].url, "any-node")
    topic.create(partitions=3)
    for partition in range(3):
        for number, node in enumerate(cluster.nodes):
            answer = expect(200, topic.at(node.url).append(f"{number}", partition))
            assert (answer["base_offset"], answer["duplicate"]) == (number, False)
        for node in cluster.nodes:
            assert topic.at(node.url).values(partition) == ["0", "1", "2"]


def test_every_form_of_append_and_fetch_meets_in_one_log(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[1].url, "forms")
    topic.create()
    records = topic.records()
    sink = io.BytesIO()
    row = {"key": [b"k"], "value": [b"arrow"], "timestamp": [7], "headers": [[{"key": "h", "value": b"v"}]]}
    batch = pa.record_batch([pa.array(row[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(batch)
    expect(200, call("POST", records, {"records": [{"value": "json"}]}))
    expect(200, call("POST", records, b'{"value":"ndjson"}\n', headers={"Content-Type": "application/x-ndjson"}))
    expect(200, call("POST", records, b"text\n", headers={"Content-Type": "text/plain"}))
    expect(200, call("POST", records, sink.getvalue(), headers={"Content-Type": ARROW}))
    assert topic.values() == ["json", "ndjson", "text", "arrow"]
    lines = call("GET", f"{records}?offset=3", headers={"Accept": "application/x-ndjson"}).body.splitlines()
    assert [json.loads(line)["headers"] for line in lines] == [[{"key": "h", "value": "v"}]]
    table = pa.ipc.open_stream(call("GET", f"{records}?offset=0", headers={"Accept": ARROW}).body).read_all()
    assert table["value"].to_pylist() == [b"json", b"ndjson", b"text", b"arrow"]


def test_segments_on_disk_are_arrow_stream_files(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[0].url, "on-disk")
    topic.create()
    expect(200, topic.append("a\nb"))
    for node in cluster.nodes:
        path = eventually(partial(_segment, node.data, [b"a", b"b"]))
        assert path.name == "00000000000000000000.arrow"


def _segment(data: Path, values: list[bytes]) -> Path | None:
    for path in data.glob("groups/*/files-*/*.arrow"):
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            if stream.read_all()["value"].to_pylist() == values:
                return path
    return None


def test_a_topic_is_listed_described_and_deleted(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[2].url, "short-lived")
    made = topic.create(partitions=2)
    for node in cluster.nodes:
        names = [entry["name"] for entry in expect(200, call("GET", f"{node.url}/v1/topics"))["topics"]]
        assert "short-lived" in names
        assert expect(200, call("GET", topic.at(node.url).url))["topic_id"] == made["topic_id"]
    expect(204, call("DELETE", topic.url))
    for node in cluster.nodes:
        assert call("GET", topic.at(node.url).url).json["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert topic.at(node.url).append("late").status == 404
    again = topic.create(partitions=2)
    assert again["topic_id"] > made["topic_id"]
    assert topic.values() == []


def test_a_stopped_cluster_finds_its_data_again(data: Path) -> None:
    first = LocalCluster(data, port_base=0, settings=CALM)
    with first:
        topic = Topic(first.nodes[0].url, "kept")
        topic.create()
        writer = Writer(topic, "w", [0])
        assert expect(200, writer.append("one\ntwo", 0))["base_offset"] == 0
    ends = {node.name: node.process is not None and node.process.returncode for node in first.nodes}
    assert set(ends.values()) == {0}, (ends, *map(end_of_log, first.nodes))
    with LocalCluster(data, port_base=0) as second:
        kept = topic.at(second.nodes[1].url)
        assert eventually(kept.values) == ["one", "two"]
        assert expect(200, writer.append("one\ntwo", 0, topic=kept))["duplicate"] is True
        assert kept.append("no token").json["code"] == "PRODUCER_BUSY"
        assert expect(200, writer.append("three", 2, topic=kept))["base_offset"] == 2


def test_every_acknowledged_record_is_there_after_all_nodes_were_killed(data: Path) -> None:
    with LocalCluster(data, port_base=0, restart=False, settings=CALM) as first:
        topic = Topic(first.nodes[0].url, "killed")
        topic.create()
        for number in range(50):
            expect(200, topic.append(str(number)))
        for node in first.nodes:
            first.kill(node, signal.SIGKILL)
    with LocalCluster(data, port_base=0) as second:
        assert eventually(topic.at(second.nodes[0].url).values) == [str(number) for number in range(50)]


def test_a_second_cluster_in_the_same_folder_or_on_the_same_ports_is_refused(cluster: LocalCluster, data: Path) -> None:
    listing = (cluster.data / "cluster.json").read_bytes()
    with pytest.raises(ClusterFailed, match="another cluster runs"), LocalCluster(cluster.data, port_base=0):
        pass
    taken = LocalCluster(data, port_base=0)
    taken.nodes[0].http = cluster.nodes[0].http
    with pytest.raises(ClusterFailed, match=f"{cluster.nodes[0].http} is in use"), taken:
        pass
    assert (cluster.data / "cluster.json").read_bytes() == listing
    assert not (data / "cluster.json").exists()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_other_sizes_of_cluster_work_as_well(data: Path, count: int) -> None:
    with LocalCluster(data, count, port_base=0, settings=CALM) as sized:
        topic = Topic(sized.nodes[-1].url, "sized")
        topic.create(partitions=4)
        for partition in range(4):
            for node in sized.nodes:
                expect(200, topic.at(node.url).append(node.name, partition))
            assert topic.values(partition) == [node.name for node in sized.nodes]
