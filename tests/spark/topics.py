"""Topics that Spark's tests write to and read from."""

import io
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from integration.api import ARROW, Topic, call, expect

from stockade.partition.records.batch import SCHEMA


def record(partition: int, offset: int) -> dict[str, Any]:
    """What stands at an offset: keys and values that tell their place, some of them null, some not text."""
    return {
        "key": None if offset % 7 == 0 else f"{partition}:{offset}".encode(),
        "value": None if offset % 11 == 5 else bytes([offset % 256]) * (offset % 50),
        "timestamp": datetime(2026, 1, 1 + partition, 0, 0, offset % 60, 1000 * (offset % 1000), UTC),
        "headers": [{"key": "at", "value": str(offset).encode()}] if offset % 3 == 0 else None,
    }


def append(topic: Topic, partition: int, records: list[dict[str, Any]]) -> None:
    """One batch."""
    body = io.BytesIO()
    with pa.ipc.new_stream(body, SCHEMA) as stream:
        stream.write_batch(pa.RecordBatch.from_pylist(records, schema=SCHEMA))
    expect(200, call("POST", topic.records(partition), body.getvalue(), headers={"Content-Type": ARROW}))


def fill(topic: Topic, partition: int, start: int, end: int) -> None:
    """The records of these offsets."""
    append(topic, partition, [record(partition, offset) for offset in range(start, end)])


def load(spark: Any, topic: Topic, **options: Any) -> Any:
    """A batch read."""
    return spark.read.format("stockade").options(url=topic.node, subscribe=topic.name, **options).load()


def places(frame: Any) -> list[tuple[int, int]]:
    """(partition, offset) of every row, ascending."""
    return sorted(tuple(row) for row in frame.select("partition", "offset").collect())


def numbered(partition: int, start: int, end: int) -> list[dict[str, Any]]:
    """Records whose values tell them apart."""
    return [
        {"key": b"k%d" % (n % 5), "value": b"%d:%d" % (partition, n), "timestamp": None, "headers": None}
        for n in range(start, end)
    ]
