"""Appends in each form, their guards, and what comes back."""

import asyncio
import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from waiting import until

from stockade.cluster.front.front import UNACKED_MAX
from stockade.partition.commands import Appended
from stockade.partition.records.batch import SCHEMA

from ..conversation import ARROW, NDJSON, RECORDS, TEXT, Conversation, nodes, run
from ..fake_partition import FakePartition


def arrow_stream(values: list[bytes | None], *, batches: int = 1, schema: pa.Schema = SCHEMA) -> bytes:
    count = len(values)
    columns = [pa.nulls(count, pa.binary()), pa.array(values, pa.binary()), pa.nulls(count, schema.field(2).type)]
    batch = pa.record_batch([*columns, pa.nulls(count, schema.field(3).type)], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def test_a_json_batch_comes_back_as_it_was_sent() -> None:
    async def test(node: Conversation) -> None:
        sent = [{"value": "hello"}, {"key": "k", "value_json": {"n": 1}, "headers": [{"key": "h", "value": "v"}]}]
        answer = await node.call("POST", RECORDS, {"records": sent})
        assert answer.status == 200
        assert answer.headers["Stockade-Base-Offset"] == "0"
        assert answer.json == {
            "topic": "orders",
            "partition": 0,
            "base_offset": 0,
            "last_offset": 1,
            "duplicate": False,
            "log_start": 0,
            "timestamp_ms": answer.json["timestamp_ms"],
            "leader_term": 6,
        }
        records = (await node.call("GET", RECORDS)).json["records"]
        assert [record["value"] for record in records] == ["hello", '{"n":1}']
        assert records[1]["headers"] == [{"key": "h", "value": "v"}]
        assert {record["timestamp_ms"] for record in records} == {answer.json["timestamp_ms"]}

    run(test)


RECORD_FORMS: list[tuple[Any, dict[str, Any]]] = [
    ({"value": "täxt"}, {"key": None, "value": "täxt", "headers": []}),
    ({}, {"key": None, "value": None, "headers": []}),
    ({"key": None, "value": None}, {"key": None, "value": None, "headers": []}),
    ({"key": "", "value": ""}, {"key": "", "value": "", "headers": []}),
    ({"key_base64": "AAE=", "value_base64": "/w=="}, {"key": "\x00\x01", "value_base64": "/w=="}),
    ({"key_base64": "/w=="}, {"key_base64": "/w==", "value": None}),
    ({"value_json": None}, {"value": "null"}),
    ({"value_json": [1, "ü", {"b": 1, "a": 2}]}, {"value": '[1,"ü",{"b":1,"a":2}]'}),
    ({"value": "a", "timestamp_ms": 0}, {"timestamp_ms": 0}),
    ({"value": "a", "timestamp_ms": 9223372036854775807}, {"timestamp_ms": 9223372036854775807}),
    (
        {"headers": [{"key": "a", "value": "x"}, {"key": "a", "value_base64": "/w=="}, {"key": "", "value": ""}]},
        {
            "headers": [
                {"key": "a", "value": "x"},
                {"key": "a", "value_base64": "/w=="},
                {"key": "", "value": ""},
            ]
        },
    ),
]


@pytest.mark.parametrize(("record", "stored"), RECORD_FORMS, ids=repr)
@pytest.mark.parametrize("lines", [False, True], ids=["json", "ndjson"])
def test_every_form_of_a_record_is_stored_as_the_contract_says(
    record: Any, stored: dict[str, Any], lines: bool
) -> None:
    async def test(node: Conversation) -> None:
        body = {"records": [record]}
        if lines:
            answer = await node.call("POST", RECORDS, json_line(record), NDJSON)
        else:
            answer = await node.call("POST", RECORDS, body)
        assert answer.status == 200, answer.body
        (found,) = (await node.call("GET", RECORDS)).json["records"]
        assert {name: found[name] for name in stored} == stored

    run(test)


def json_line(record: Any) -> bytes:
    return json.dumps(record).encode() + b"\r\n \t\r\n"


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (b"1.0", "1.0"),
        (b"1e3", "1e3"),
        (b"1.10", "1.10"),
        (b"123456789012345678901234567890", "123456789012345678901234567890"),
        (b"-9223372036854775809", "-9223372036854775809"),
        (b"18446744073709551615", "18446744073709551615"),
        (b' { "b" : [ 1 , 2 ] , "a" : "\\u00fc\\n" } ', '{"b":[1,2],"a":"ü\\n"}'),
    ],
)
def test_value_json_keeps_numbers_as_they_were_written(written: bytes, stored: str) -> None:
    async def test(node: Conversation) -> None:
        await node.call(
            "POST", RECORDS, b'{"records":[{"value_json":' + written + b"}]}", {"Content-Type": "application/json"}
        )
        assert await node.values() == [stored]

    run(test)


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb", ["a", "b"]),
        (b"\n", [""]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r", ["a\r"]),  # no line end, so a part of the value
        (b"a\nb\r", ["a", "b\r"]),
        (b"a\r\r\nb", ["a\r", "b"]),
        (b"\r\n\r\n", ["", ""]),
        (b"\xff\xfe\n", [base64.b64encode(b"\xff\xfe").decode()]),
    ],
)
@pytest.mark.parametrize("charset", ["", "; charset=latin-1"])
def test_a_text_body_has_a_record_a_line(body: bytes, values: list[str], charset: str) -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("POST", RECORDS, body, {"Content-Type": "text/plain" + charset})
        assert answer.status == 200
        assert await node.values() == values

    run(test)


def test_an_arrow_batch_is_stored_as_it_came() -> None:
    async def test(node: Conversation) -> None:
        assert (await node.call("POST", RECORDS, arrow_stream([b"a", None, b"c"]), ARROW)).status == 200
        assert await node.values() == ["a", None, "c"]

    run(test)


def test_a_repeated_batch_gets_the_offsets_of_the_first_time() -> None:
    async def test(node: Conversation) -> None:
        pid = (await node.call("POST", "/v1/producers", {})).json["producer_id"]
        trio = {"Stockade-Producer-Id": str(pid), "Stockade-Producer-Epoch": "0"}
        body = {"records": [{"value": "x"}, {"value": "y"}]}
        first = await node.call("POST", RECORDS, body, trio | {"Stockade-Producer-Seq": "0"})
        again = await node.call("POST", RECORDS, body, trio | {"Stockade-Producer-Seq": "0"})
        assert again.json == first.json | {"duplicate": True}
        gap = await node.call("POST", RECORDS, body, trio | {"Stockade-Producer-Seq": "9"})
        assert (gap.status, gap.json["reason"], gap.json["expected_seq"]) == (409, "gap", 2)

    run(test)


def test_a_duplicate_that_is_no_longer_remembered_has_no_offsets() -> None:
    async def test(node: Conversation) -> None:
        pid = (await node.call("POST", "/v1/producers", {})).json["producer_id"]
        trio = {"Stockade-Producer-Id": str(pid), "Stockade-Producer-Epoch": "0"}
        for sequence in range(7):
            headers = trio | {"Stockade-Producer-Seq": str(sequence)}
            await node.call("POST", RECORDS, {"records": [{"value": "x"}]}, headers)
        again = await node.call("POST", RECORDS, {"records": [{"value": "x"}]}, trio | {"Stockade-Producer-Seq": "0"})
        assert (again.status, again.json["base_offset"], again.json["duplicate"]) == (200, None, True)
        assert "Stockade-Base-Offset" not in again.headers

    run(test)


def test_a_conditional_append_is_refused_when_another_one_was_faster() -> None:
    async def test(node: Conversation) -> None:
        here = {"Stockade-If-Log-End": "0"}
        assert (await node.call("POST", RECORDS, {"records": [{}]}, here)).status == 200
        refused = await node.call("POST", RECORDS, {"records": [{}]}, here)
        assert (refused.status, refused.json["code"], refused.json["log_end"]) == (412, "OFFSET_MISMATCH", 1)

    run(test)


def test_acks_0_answers_at_once_and_stores_all_the_same() -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("POST", RECORDS + "?acks=0", b"x\n", TEXT)
        assert (answer.status, answer.json) == (202, {"topic": "orders", "partition": 0, "accepted": True})
        waited = await node.call("GET", RECORDS + "?max_wait_ms=5000")
        assert [record["value"] for record in waited.json["records"]] == ["x"]

    run(test)


def test_with_acks_0_the_verdict_is_dropped() -> None:
    async def test(node: Conversation) -> None:
        session = await node.call("POST", "/v1/sessions", {"client_id": "c"})
        grant = {"partitions": "all", "mode": "Exclusive", "producer_name": "p"}
        held = {"Stockade-Session": session.json["session"]}
        assert (await node.call("POST", "/v1/topics/orders/grants", grant, held)).status == 201
        assert (await node.call("POST", RECORDS + "?acks=0", b"x\n", TEXT)).status == 202
        assert await node.values() == []

    run(test)


def test_a_bug_in_an_append_with_acks_0_is_counted_so_that_an_alert_tells_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log had its traceback, and no number said that there was one."""

    async def append(*_: object) -> Appended:
        raise ZeroDivisionError

    async def test(node: Conversation) -> None:
        monkeypatch.setattr(FakePartition, "append", append)
        assert (await node.call("POST", RECORDS + "?acks=0", b"x\n", TEXT)).status == 202
        await until(lambda: node.server.front.unacked.budget.used == 0)
        text = (await node.server.metrics.text(names=True)).decode()
        assert 'stockade_http_refusals_total{code="INTERNAL_ERROR"} 1.0' in text

    run(test)


def test_a_body_may_be_no_longer_than_the_topic_allows() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("small", max_batch_bytes=1024)
        path = "/v1/topics/small/partitions/0/records"
        body_max = 2 * 1024 + 64 * 1024
        too_long = await node.call("POST", path, b"\n" * (body_max + 1), TEXT)
        assert (too_long.status, too_long.json["limit"], too_long.json["unit"]) == (413, body_max, "bytes")
        too_large = await node.call("POST", path, b"x" * 1025, TEXT)
        assert (too_large.status, too_large.json["limit"]) == (413, 1024)
        assert (await node.call("POST", path, b"x" * 100, TEXT)).status == 200

    run(test)


def test_a_batch_may_have_no_more_than_100_000_records() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("wide", max_batch_bytes=16_777_216)
        path = "/v1/topics/wide/partitions/0/records"
        for headers, line in ((TEXT, b"x\n"), (NDJSON, b"{}\n")):
            refused = await node.call("POST", path, line * 100_001, headers)
            assert (refused.status, refused.json["limit"], refused.json["unit"]) == (413, 100_000, "records")
        assert (await node.call("POST", path, b"x\n" * 100_000, TEXT)).json["last_offset"] == 99_999

    run(test)


def test_shape_comes_before_the_topic_and_the_topic_before_its_window() -> None:
    async def test(node: Conversation) -> None:
        nowhere = "/v1/topics/nowhere/partitions/0/records"
        assert (await node.call("POST", nowhere, b"{", {"Content-Type": "application/json"})).status == 400
        assert (await node.call("POST", nowhere, arrow_stream([]), ARROW)).json["code"] == "INVALID_RECORD"
        named = {"Stockade-Message-Id": "m"}
        assert (await node.call("POST", nowhere, {"records": [{}]}, named)).status == 404
        refused = await node.call("POST", RECORDS, {"records": [{}]}, named)
        assert refused.status == 400
        assert "Stockade-Message-Id" in refused.json["reason"]

    run(test)


def test_the_leader_is_named_on_answers_and_problems() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic()
            stored = await node.call("POST", RECORDS, {"records": [{}]})
            assert (stored.headers["Stockade-Leader"], stored.headers["Stockade-Leader-Term"]) == (node.url, "6")
            unread = await node.call("POST", RECORDS, b"", {"Content-Type": "application/json"})
            assert (unread.headers["Stockade-Leader"], unread.headers["Stockade-Leader-Term"]) == (node.url, "6")
            nobody = await node.call("GET", RECORDS + "?offset=x")
            assert (nobody.headers["Stockade-Leader"], nobody.headers["Stockade-Leader-Term"]) == ("", "0")
            unknown = await node.call("GET", "/v1/topics/nowhere")
            assert unknown.headers["Stockade-Leader"] == node.url

    asyncio.run(main())


def test_unanswered_appends_are_bounded() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic()
            shared = node.service.shared
            shared.may_store.clear()
            for _ in range(UNACKED_MAX):
                assert (await node.call("POST", RECORDS + "?acks=0", b"x\n", TEXT, valid=False)).status == 202
            refused = await node.call("POST", RECORDS + "?acks=0", b"x\n", TEXT)
            assert (refused.status, refused.json["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
            shared.may_store.set()
            waited = await node.call("GET", RECORDS + f"?max_wait_ms=5000&offset={UNACKED_MAX - 1}")
            assert len(waited.json["records"]) == 1

    asyncio.run(main())
