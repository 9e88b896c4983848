"""Reads: forms, bounds, offsets and tails."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from stockade.http_api.records import encode, fetch, handlers
from stockade.partition.log.interface import Slice, StoredBatch

from ..conversation import ARROW, JSON, NDJSON, RECORDS, TEXT, Conversation, run
from ..fake_partition import FakePartition

OFFSETS = "/v1/topics/orders/partitions/0/offsets"
TAIL = "/v1/topics/orders/partitions/0/tail"


async def fill(node: Conversation, *batches: bytes) -> None:
    for batch in batches:
        assert (await node.call("POST", RECORDS, batch, TEXT)).status == 200


def accept(headers: dict[str, str]) -> dict[str, str]:
    return {"Accept": headers["Content-Type"]}


@pytest.mark.parametrize(
    ("query", "offsets", "next_offset"),
    [
        ("", [0, 1, 2, 3, 4], 5),
        ("?offset=earliest", [0, 1, 2, 3, 4], 5),
        ("?offset=0", [0, 1, 2, 3, 4], 5),
        ("?offset=1", [1, 2, 3, 4], 5),
        ("?offset=004", [4], 5),
        ("?offset=5", [], 5),
        ("?offset=latest", [], 5),
        ("?max_bytes=1", [0], 1),
        ("?offset=1&max_bytes=2", [1, 2], 3),
    ],
)
def test_a_fetch_begins_at_its_offset_and_says_where_to_go_on(query: str, offsets: list[int], next_offset: int) -> None:
    async def test(node: Conversation) -> None:
        await fill(node, b"a\nb\nc\n", b"d\ne\n")
        answer = await node.call("GET", RECORDS + query)
        assert [record["offset"] for record in answer.json["records"]] == offsets
        assert (answer.json["next_offset"], answer.json["log_start"], answer.json["log_end"]) == (next_offset, 0, 5)
        assert answer.headers["Stockade-Next-Offset"] == str(next_offset)
        lines = await node.call("GET", RECORDS + query, None, accept(NDJSON))
        assert lines.headers["Stockade-Next-Offset"] == str(next_offset)
        assert [json.loads(line)["offset"] for line in lines.body.splitlines()] == offsets

    run(test)


def test_max_bytes_counts_the_bytes_of_keys_and_values_and_the_first_record_always_comes() -> None:
    async def test(node: Conversation) -> None:
        records = [{"key": "kk", "value": "v" * 8}] * 4
        await node.call("POST", RECORDS, {"records": records})
        for max_bytes, count in ((1, 1), (10, 1), (19, 1), (20, 2), (39, 3), (40, 4)):
            answer = await node.call("GET", f"{RECORDS}?max_bytes={max_bytes}")
            assert len(answer.json["records"]) == count, max_bytes

    run(test)


def test_max_bytes_counts_the_bytes_of_headers() -> None:
    """Compressed headers of a megabyte a record came by the hundred in an answer of "1 MiB"."""

    async def test(node: Conversation) -> None:
        records = [{"value": "v", "headers": [{"key": "ä", "value": "v" * 7}]}] * 3
        await node.call("POST", RECORDS, {"records": records})
        for max_bytes, count in ((19, 1), (20, 2), (29, 2), (30, 3)):
            answer = await node.call("GET", f"{RECORDS}?max_bytes={max_bytes}")
            assert len(answer.json["records"]) == count, max_bytes

    run(test)


def test_arrow_sends_whole_batches_and_says_where_they_begin() -> None:
    async def test(node: Conversation) -> None:
        await fill(node, b"a\nb\nc\n", b"d\ne\n")
        answer = await node.call("GET", RECORDS + "?offset=1", None, accept(ARROW))
        assert answer.headers["Stockade-Base-Offset"] == "0"
        assert answer.headers["Stockade-Next-Offset"] == "5"
        table = pa.ipc.open_stream(answer.body).read_all()
        assert table.column("value").to_pylist() == [b"a", b"b", b"c", b"d", b"e"]
        last = await node.call("GET", RECORDS + "?offset=4&max_bytes=1", None, accept(ARROW))
        assert last.headers["Stockade-Base-Offset"] == "3"
        empty = await node.call("GET", RECORDS + "?offset=5", None, accept(ARROW))
        assert pa.ipc.open_stream(empty.body).read_all().num_rows == 0
        assert empty.headers["Stockade-Next-Offset"] == "5"

    run(test)


@pytest.mark.parametrize(
    ("offered", "form"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("application/x-ndjson, */*", "application/x-ndjson"),
        ("application/json;q=0.5, application/x-ndjson;q=0.8", "application/x-ndjson"),
        ("application/json;q=0, */*;q=0.1", "application/x-ndjson"),
        ("APPLICATION/JSON", "application/json"),
        ("text/html, */*;q=0.8", "application/json"),
        ("application/vnd.apache.arrow.stream;q=1.0", "application/vnd.apache.arrow.stream"),
        ("nonsense, application/json", "application/json"),
    ],
)
def test_accept_chooses_the_form(offered: str | None, form: str) -> None:
    async def test(node: Conversation) -> None:
        headers = {} if offered is None else {"Accept": offered}
        answer = await node.call("GET", RECORDS, None, headers)
        assert answer.headers["Content-Type"].partition(";")[0] == form

    run(test)


def test_an_offset_outside_the_log_is_refused_with_its_bounds() -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("GET", RECORDS + "?offset=1")
        assert (answer.status, answer.json["log_start"], answer.json["log_end"]) == (416, 0, 0)

    run(test)


def test_a_fetch_at_the_log_end_waits_for_the_next_record() -> None:
    async def test(node: Conversation) -> None:
        waiting = asyncio.create_task(node.call("GET", RECORDS + "?max_wait_ms=10000"))
        await asyncio.sleep(0)
        await fill(node, b"late\n")
        answer = await waiting
        assert [record["value"] for record in answer.json["records"]] == ["late"]
        empty = await node.call("GET", RECORDS + "?offset=1&max_wait_ms=20")
        assert (empty.json["records"], empty.json["next_offset"]) == ([], 1)

    run(test)


def test_meta_adds_the_producer_of_each_record() -> None:
    async def test(node: Conversation) -> None:
        await fill(node, b"a\n")
        pid = (await node.call("POST", "/v1/producers", {})).json["producer_id"]
        trio = {
            "Stockade-Producer-Id": str(pid),
            "Stockade-Producer-Epoch": "0",
            "Stockade-Producer-Seq": "0",
        }
        await node.call("POST", RECORDS, b"b\nc\n", TEXT | trio)
        expected = [(None, None, None, 0), (pid, 0, 0, 0), (pid, 0, 1, 0)]
        fetched = await node.call("GET", RECORDS + "?meta=true")
        tail = await node.call("GET", TAIL + "?n=10")
        for answer in (fetched, tail):
            names = ("producer_id", "producer_epoch", "sequence", "writer_epoch")
            assert [tuple(record[name] for name in names) for record in answer.json["records"]] == expected
        assert (tail.json["log_end"], tail.json["topic_epoch"]) == (3, 0)

    run(test)


def test_the_origins_of_many_batches_are_made_between_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "BATCHES_PER_TURN", 1)
    threads: list[int] = []
    write = fetch.origin_stream

    def noted(batches: list[StoredBatch]) -> bytes:
        threads.append(threading.get_ident())
        return write(batches)

    monkeypatch.setattr(fetch, "origin_stream", noted)

    async def test(node: Conversation) -> None:
        await fill(node, b"a\n", b"b\nc\n", b"d\n")
        answer = await node.call("GET", RECORDS + "?origins=true", None, {"Accept": ARROW["Content-Type"]})
        body = pa.BufferReader(answer.body)
        assert len(pa.ipc.open_stream(body).read_all()) == 4
        assert pa.ipc.open_stream(body).read_all().column("count").to_pylist() == [1, 2, 1]
        assert threads
        assert threading.get_ident() not in threads

    run(test)


def test_a_tail_is_the_last_records() -> None:
    async def test(node: Conversation) -> None:
        assert (await node.call("GET", TAIL)).json["records"] == []
        await fill(node, b"a\nb\nc\n", b"d\n")
        for count, values in ((1, ["d"]), (3, ["b", "c", "d"]), (10_000, ["a", "b", "c", "d"])):
            answer = await node.call("GET", f"{TAIL}?n={count}")
            assert [record["value"] for record in answer.json["records"]] == values
        assert len((await node.call("GET", TAIL)).json["records"]) == 1

    run(test)


def test_a_tail_is_read_on_from_its_first_slice_to_the_log_end_of_that_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is in a store comes piece by piece; records that were appended since are none of it."""

    async def first_batch(partition: FakePartition, count: int) -> tuple[Slice, int]:
        log = partition.machine.log
        return structs.replace(log.read(1, 1), log_end=log.log_end - 1), 0

    async def test(node: Conversation) -> None:
        await fill(node, b"a\nb\n", b"c\n", b"d\ne\n", b"late\n")
        monkeypatch.setattr(FakePartition, "read_tail", first_batch)
        for piece_bytes in (1, 1 << 20):
            monkeypatch.setattr(handlers, "TAIL_PIECE_BYTES", piece_bytes)
            tail = (await node.call("GET", f"{TAIL}?n=4")).json
            assert [record["value"] for record in tail["records"]] == ["b", "c", "d", "e"]
            assert tail["log_end"] == 5

    run(test)


def test_offsets_are_found_by_word_and_by_time() -> None:
    async def test(node: Conversation) -> None:
        for time_ms in (1000, 3000, 2000):
            await node.call("POST", RECORDS, {"records": [{"timestamp_ms": time_ms}]}, JSON)
        for at, offset, found_ms in (
            ("earliest", 0, None),
            ("latest", 3, None),
            ("max_timestamp", 1, 3000),
            ("0", 0, 1000),
            ("1001", 1, 3000),
            ("3001", -1, None),
        ):
            answer = await node.call("GET", f"{OFFSETS}?at={at}")
            assert (answer.json["offset"], answer.json["timestamp_ms"]) == (offset, found_ms), at
            assert (answer.json["log_start"], answer.json["log_end"]) == (0, 3)
        assert (await node.call("GET", OFFSETS)).json["offset"] == 3

    run(test)


def test_a_local_read_says_that_it_may_be_stale() -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("GET", RECORDS + "?local=true")
        assert (answer.json["stale"], answer.headers["Stockade-Stale"]) == (True, "true")
        answer = await node.call("GET", RECORDS)
        assert (answer.json["stale"], answer.headers["Stockade-Stale"]) == (False, "false")
        beyond = await node.call("GET", RECORDS + "?local=true&offset=99")
        assert (beyond.status, beyond.json["stale"], "this replica" in beyond.json["detail"]) == (416, True, True)
        beyond = await node.call("GET", RECORDS + "?offset=99")
        assert (beyond.status, "stale" in beyond.json) == (416, False)

    run(test)


def test_a_large_log_is_read_in_pieces_that_leave_nothing_out() -> None:
    async def test(node: Conversation) -> None:
        await fill(node, *(b"".join(b"%d-%d\n" % (batch, row) for row in range(1200)) for batch in range(2)))
        expected = [f"{batch}-{row}" for batch in range(2) for row in range(1200)]
        assert await node.values() == expected
        found, offset = [], 0
        while offset < len(expected):
            answer = await node.call("GET", f"{RECORDS}?offset={offset}&max_bytes=4000", valid=False)
            found += [record["value"] for record in answer.json["records"]]
            offset = answer.json["next_offset"]
        assert found == expected

    run(test)


@pytest.mark.parametrize(("records", "value_bytes", "turns"), [(1000, 1, 4), (10, 100_000, 5), (3, 300_000, 3)])
@pytest.mark.parametrize("form", ["application/json", "application/x-ndjson"])
def test_a_large_answer_gives_the_loop_its_turn_by_records_and_by_bytes(
    form: str, records: int, value_bytes: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """250 records, or 256 KiB of them, a turn."""
    pieces: list[int] = []
    rows = encode.rows

    async def noted(*given: Any, **options: Any) -> AsyncIterator[list[encode.Row]]:
        async for piece in rows(*given, **options):
            pieces.append(len(piece))
            yield piece

    monkeypatch.setattr(encode, "rows", noted)

    async def test(node: Conversation) -> None:
        body = (b"x" * value_bytes + b"\n") * records
        assert (await node.call("POST", RECORDS, body, TEXT)).status == 200
        answer = await node.call("GET", f"{RECORDS}?max_bytes=67108864", None, {"Accept": form})
        is_json = form == "application/json"
        lines = answer.json["records"] if is_json else [json.loads(line) for line in answer.body.splitlines()]
        assert [line["offset"] for line in lines] == list(range(records))
        assert {line["value"] for line in lines} == {"x" * value_bytes}

    run(test)
    assert len(pieces) == turns
    assert sum(pieces) == records
