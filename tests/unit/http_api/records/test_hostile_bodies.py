"""Bodies made to hurt: whatever they are, they are refused by name, cheaply, and the node goes on."""

import asyncio
import json
import os
import resource
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.partition.arrow import fields_bomb, pairs_bomb

from stockade.partition.records.batch import SCHEMA

from ..conversation import ARROW, JSON, NDJSON, RECORDS, TEXT, Conversation, check, nodes
from ..samples import PARTS_FORM, parts_body
from .test_append import arrow_stream

KEYED = "/v1/topics/orders/records"
PATHS = (RECORDS, KEYED)
MEMORY_KIB_MAX = 300 * 1024
FACTOR = int(os.environ.get("FUZZ_FACTOR", "1"))


def compressed(values: list[bytes], codec: str) -> bytes:
    count = len(values)
    columns = [pa.nulls(count, pa.binary()), pa.array(values, pa.binary())]
    batch = pa.record_batch([*columns, *(pa.nulls(count, field.type) for field in list(SCHEMA)[2:])], schema=SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def bomb(codec: str) -> bytes:
    """A few hundred kilobytes that unpack to 200 MB."""
    return compressed([bytes(1_000_000)] * 200, codec)


def lying(claimed: int) -> bytes:
    """A compressed buffer that claims another size than it has."""
    body = bytearray(compressed([b"x" * 4000], "zstd"))
    place = body.rindex(struct.pack("<q", 4000))  # the first is an offset and the zeros behind it
    body[place : place + 8] = struct.pack("<q", claimed)
    return bytes(body)


WHOLE = arrow_stream([b"a", None, b"ccc"])
HOSTILE: list[tuple[str, dict[str, str], bytes, set[str]]] = [
    ("zstd bomb", ARROW, bomb("zstd"), {"MESSAGE_TOO_LARGE"}),
    ("lz4 bomb", ARROW, bomb("lz4"), {"MESSAGE_TOO_LARGE"}),
    ("claims an exabyte", ARROW, lying(1 << 60), {"MESSAGE_TOO_LARGE"}),
    ("claims less than there is", ARROW, lying(1), {"CORRUPT_MESSAGE"}),
    ("claims a negative size", ARROW, lying(-2), {"CORRUPT_MESSAGE"}),
    ("one pair of metadata for a gigabyte", ARROW, pairs_bomb(10_003, 100_000), {"INVALID_RECORD"}),
    ("one field 94,249 times", ARROW, fields_bomb(307), {"INVALID_RECORD"}),
    *((f"cut at {place}", ARROW, WHOLE[:place], {"CORRUPT_MESSAGE"}) for place in (1, 7, 8, 100, len(WHOLE) - 1)),
    ("twice", ARROW, WHOLE + WHOLE, {"CORRUPT_MESSAGE", "INVALID_RECORD"}),
    ("gigantic metadata", ARROW, b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(100), {"CORRUPT_MESSAGE"}),
    ("negative metadata", ARROW, b"\xff\xff\xff\xff\x00\x00\x00\x80" + bytes(100), {"CORRUPT_MESSAGE"}),
    ("deep arrays", JSON, b"[" * 900_000, {"INVALID_REQUEST"}),
    ("deep objects", JSON, b'{"a":' * 150_000, {"INVALID_REQUEST"}),
    ("deep value", JSON, b'{"records":[{"value_json":' + b"[" * 65 + b"]" * 65 + b"}]}", {"INVALID_REQUEST"}),
    ("deep line", NDJSON, b'{"value_json":' + b"[" * 100_000 + b"]" * 100_000 + b"}", {"INVALID_RECORD"}),
    ("long number", JSON, b'{"records":[{"timestamp_ms":' + b"9" * 900_000 + b"}]}", {"INVALID_RECORD"}),
    ("long exponent", JSON, b'{"records":[{"timestamp_ms":1e' + b"9" * 900_000 + b"}]}", {"INVALID_RECORD"}),
    ("half a surrogate", JSON, b'{"records":[{"value":"\\ud800"}]}', {"INVALID_REQUEST"}),
    ("overlong UTF-8", JSON, b'{"records":[{"value":"\xc0\x80"}]}', {"INVALID_REQUEST"}),
    ("UTF-16", JSON, json.dumps({"records": [{"value": "x"}]}).encode("utf-16"), {"INVALID_REQUEST"}),
    ("byte order mark", JSON, b'\xef\xbb\xbf{"records":[{"value":"x"}]}', {"INVALID_REQUEST"}),
    ("NUL bytes", JSON, bytes(900_000), {"INVALID_REQUEST"}),
    ("many records", NDJSON, b"{}\n" * 100_001, {"MESSAGE_TOO_LARGE"}),
    ("many lines", TEXT, b"\n" * 100_001, {"MESSAGE_TOO_LARGE"}),
    (
        "many names",
        JSON,
        b'{"records":[{' + b",".join(b'"%d":1' % n for n in range(90_000)) + b"}]}",
        {"INVALID_REQUEST"},
    ),
]


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[asyncio.Runner, Conversation]]:
    with asyncio.Runner() as runner:
        context = nodes(1)
        (node,) = runner.run(context.__aenter__())
        runner.run(node.topic(partitions=2))
        yield runner, node
        runner.run(context.__aexit__(None, None, None))


@pytest.mark.parametrize("path", PATHS, ids=["one", "keyed"])
@pytest.mark.parametrize(("headers", "body", "codes"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_a_hostile_body_is_refused_by_name_and_costs_little(
    running: tuple[asyncio.Runner, Conversation], headers: dict[str, str], body: bytes, codes: set[str], path: str
) -> None:
    runner, node = running
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = runner.run(node.call("POST", path, body, headers))
    assert answer.status in (400, 413), answer.body[:300]
    assert answer.json["code"] in codes, answer.body[:300]
    assert len(answer.body) < 2000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < MEMORY_KIB_MAX
    assert runner.run(node.call("GET", "/healthz")).status == 200


OF_ARROW = [row for row in HOSTILE if row[1] is ARROW]


@pytest.mark.parametrize(("body", "codes"), [row[2:] for row in OF_ARROW], ids=[row[0] for row in OF_ARROW])
def test_a_hostile_part_is_refused_by_name_and_the_part_beside_it_is_stored(
    running: tuple[asyncio.Runner, Conversation], body: bytes, codes: set[str]
) -> None:
    runner, node = running
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sent = parts_body(({"partition": 0}, body), ({"partition": 1}, WHOLE))
    answer = runner.run(node.call("POST", "/v1/append", sent, PARTS_FORM))
    assert answer.status == 200, answer.body[:300]
    found = {line["part"]: line for line in map(json.loads, answer.body.splitlines())}
    assert found[0]["problem"]["code"] in codes
    assert found[1]["stored"]["partition"] == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < MEMORY_KIB_MAX


@settings(max_examples=150 * FACTOR, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4),
    cut=st.none() | st.integers(0, 1 << 12),
    behind=st.binary(max_size=3),
)
def test_a_damaged_parts_body_is_refused_or_valid(
    running: tuple[asyncio.Runner, Conversation], changes: list[tuple[int, int]], cut: int | None, behind: bytes
) -> None:
    runner, node = running
    body = bytearray(parts_body(({"partition": 0}, WHOLE), ({"partition": 1}, WHOLE)))
    for place, byte in changes:
        body[place % len(body)] = byte
    answer = runner.run(node.call("POST", "/v1/append", bytes(body[:cut]) + behind, PARTS_FORM))
    assert answer.status in (200, 400, 413), answer.body
    if answer.status == 200:
        lines = [json.loads(line) for line in answer.body.splitlines()]
        assert sorted(line["part"] for line in lines) == [0, 1], "each part once"
        assert all(line.get("problem", {}).get("code") != "INTERNAL_ERROR" for line in lines), lines


@settings(max_examples=150 * FACTOR, deadline=None)
@given(
    values=st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=5),
    codec=st.sampled_from(["none", "zstd", "lz4"]),
    changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4),
    cut=st.none() | st.integers(0, 1 << 12),
)
def test_a_damaged_arrow_stream_is_refused_or_valid(
    running: tuple[asyncio.Runner, Conversation],
    values: list[Any],
    codec: str,
    changes: list[tuple[int, int]],
    cut: int | None,
) -> None:
    runner, node = running
    body = bytearray(arrow_stream(values) if codec == "none" else compressed([v or b"" for v in values], codec))
    for place, byte in changes:
        body[place % len(body)] = byte
    answer = runner.run(node.call("POST", RECORDS, bytes(body[:cut]), ARROW))
    check("POST", RECORDS, answer)
    assert answer.status in (200, 400, 413)
