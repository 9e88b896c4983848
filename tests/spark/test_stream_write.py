"""The streaming sink: every row once, whatever dies and whenever. SINK_KILLS=all tries many more deaths."""

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from integration.api import Topic, call, expect
from pyspark import TaskContext
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from stockade.client.blocking import reader as blocking_reader
from stockade.client.blocking.http import PlainHttp
from stockade.client.blocking.reader import BlockingClient
from stockade.client.errors import ClusterUnreachable
from stockade.spark.sink.options import parse_write_options
from stockade.spark.sink.writer import Staged, stream_writer, writer_of
from stockade.spark.source.planning.options import parse_read_options
from stockade.spark.source.stream import StockadeStreamReader

from .copying import PARTITIONS, Copy
from .topics import append, numbered

STEPS = ("enter 1", "run 1", "keep 1", "manifest 1", "append 1", "append 2", "done 1", "delete 1")
"""Requests that every run makes that has a batch to write, or one to finish; kills.py has more of them."""
REQUESTS = 27
"""At least as many as a run makes that writes a batch. Which one has which number depends on how the last run ended."""
SOME_KILLS = ["enter 1 after", "keep 1 after", "manifest 1 after", "append 1 after", "done 1 after"]
ALL_KILLS = [
    f"{request} {when}"
    for request in (*STEPS, *(f"any {number}" for number in range(1, REQUESTS + 1)))
    for when in ("before", "after")
]
KILLS = ALL_KILLS if os.environ.get("SINK_KILLS") == "all" else SOME_KILLS

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900 if KILLS is SOME_KILLS else 3600)]


def copy(spark: Any, url: str, folder: Path, name: str, rows: int, **options: Any) -> Copy:
    source, target = Topic(url, f"{name}-in"), Topic(url, f"{name}-out")
    source.create(partitions=2)
    target.create(partitions=PARTITIONS)
    for partition in (0, 1):
        append(source, partition, numbered(partition, 0, rows // 2))
    return Copy(spark, source, target, folder, **options)


def test_the_first_batch_of_a_checkpoint_fails_without_a_cluster_and_a_later_one_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.setattr(BlockingClient.connect, "__defaults__", (0,))
    writes = stream_writer({"url": nowhere, "topic": "t"}, StructType().add("value", "string"), overwrite=False)
    batch = {"streaming.sql.batchId": "0"}
    task = SimpleNamespace(getLocalProperty=lambda name: batch.get(name, "one"), partitionId=lambda: 0)
    monkeypatch.setattr(TaskContext, "get", lambda: task)
    with pytest.raises(ClusterUnreachable, match=f"no node can be connected to: {nowhere}"):
        writes.write(iter(()))
    batch["streaming.sql.batchId"] = "1"
    assert writes.write(iter(())).pieces == (), "it has not asked for a node: there are no rows"


@pytest.mark.parametrize(("failed", "left"), [(True, 0), (False, 1)])
def test_an_abort_deletes_stages_only_of_a_batch_that_no_commit_has_seen(
    url: str, monkeypatch: pytest.MonkeyPatch, failed: bool, left: int
) -> None:
    topic = Topic(url, f"abort-{failed}")
    topic.create()
    writes = stream_writer({"url": url, "topic": topic.name}, StructType().add("value", "string"), overwrite=False)
    task = SimpleNamespace(getLocalProperty=lambda name: "7", partitionId=lambda: 0)
    monkeypatch.setattr(TaskContext, "get", lambda: task)
    staged = writes.write(iter([pa.record_batch({"value": ["a"]})]))
    writes.abort([staged, None] if failed else [staged], 7)
    assert len(expect(200, call("GET", topic.url + "/partitions/0/stages"))["stages"]) == left


def test_a_commit_whose_tasks_know_a_node_with_tls_still_asks_those_without_it() -> None:
    """While a cluster changes over to HTTPS, node by node, the leaders without it were refused as a downgrade."""
    options = parse_write_options({"url": "http://127.0.0.1:1", "topic": "t"}, "stream")
    staged = Staged("query", "run", 0, (), ("http://127.0.0.1:1", "https://127.0.0.1:2"))
    writer = writer_of(options, [staged])
    assert writer.nodes == staged.nodes
    with pytest.raises(ClusterUnreachable):
        writer._http.request("http://127.0.0.1:3", "GET", "/healthz")


def test_a_copy_with_the_url_of_one_node_goes_on_at_the_others_when_that_node_has_gone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source and sink asked this node alone, and ended after two minutes."""
    source, target = Topic(url, "one-url-in"), Topic(url, "one-url-out")
    for topic in (source, target):
        topic.create(partitions=3)
    append(source, 0, numbered(0, 0, 3))
    schema = StructType().add("value", "binary")
    options = parse_read_options({"url": url, "subscribe": source.name, "startingOffsets": "earliest"}, "stream")
    reads = StockadeStreamReader(options, schema)
    writes = stream_writer({"url": url, "topic": target.name}, schema, overwrite=False)
    batch = {"streaming.sql.batchId": "0"}
    task = SimpleNamespace(getLocalProperty=lambda name: batch.get(name, "one-url"), partitionId=lambda: 0)
    monkeypatch.setattr(TaskContext, "get", lambda: task)
    start = reads.initialOffset()
    writes.commit([writes.write(iter(()))], 0)

    connected = PlainHttp.connected

    def elsewhere(http: PlainHttp, node: str) -> Any:
        if node == url:
            raise ClusterUnreachable(f"{node}: it has gone")
        return connected(http, node)

    monkeypatch.setattr(PlainHttp, "connected", elsewhere)
    (piece,) = reads.partitions(start, reads.latestOffset(start, ReadAllAvailable()))
    batch["streaming.sql.batchId"] = "1"
    staged = writes.write(reads.read(piece))
    monkeypatch.setattr(blocking_reader, "_known", {})  # as in a commit, which has a process of its own
    writes.commit([staged], 1)
    monkeypatch.undo()
    assert target.values() == ["0:0", "0:1", "0:2"]


def test_a_copy_is_exact_though_its_driver_dies_around_any_request_of_a_commit(
    spark: Any, url: str, tmp_path: Path
) -> None:
    copying = copy(spark, url, tmp_path, "dying", rows=40 * (len(KILLS) + 2))
    for kill in KILLS:
        copying.dies_at(kill)
        assert copying.run(rows_per_batch=40) != copying.died
        assert copying.died or kill.startswith("any"), f"not reached: {kill}"
        print(f"{kill}: {copying.died_of() or 'not reached'}", flush=True)  # noqa: T201 (the whole takes long: pytest -s)
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


def test_a_query_that_would_write_its_whole_result_each_time_is_refused(spark: Any, url: str, tmp_path: Path) -> None:
    source, target = Topic(url, "complete-in"), Topic(url, "complete-out")
    for topic in (source, target):
        topic.create()
    append(source, 0, numbered(0, 0, 10))
    reading = {"url": url, "subscribe": source.name, "startingOffsets": "earliest"}
    counts = spark.readStream.format("stockade").options(**reading).load().groupBy("key").count()
    rows = counts.selectExpr("key", "cast(count as string) as value").writeStream.format("stockade")
    rows = rows.options(url=url, topic=target.name).trigger(availableNow=True)

    for mode, why in (
        ("complete", r'cannot be overwritten: use outputMode\("append"\)'),
        ("update", "does not support Update mode"),  # it is Spark that says so
    ):
        query = rows.outputMode(mode).option("checkpointLocation", str(tmp_path / mode)).start()
        with pytest.raises(Exception, match=why):
            query.awaitTermination()
    assert target.values() == []
