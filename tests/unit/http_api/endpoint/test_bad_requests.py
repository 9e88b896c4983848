"""Requests that are not well-formed: status, code, and a reason that names what is wrong."""

import asyncio
import json
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from ..conversation import ARROW, JSON, NDJSON, RECORDS, TEXT, Conversation, nodes, run

TOPICS = "/v1/topics"
KEYED = "/v1/topics/orders/records"
GRANTS = "/v1/topics/orders/grants"
OWN = "/v1/groups/g/own"
POSITION = "/v1/groups/g/positions/orders/0"
SESSION = {"Stockade-Session": "s-1"}
GRANT = {"partitions": [0], "mode": "Exclusive", "producer_name": "p"}
RECORD = {"records": [{"value": "x"}]}
TRIO = {"Stockade-Producer-Id": "2", "Stockade-Producer-Epoch": "0", "Stockade-Producer-Seq": "0"}
FENCE = {"Stockade-Fence-Grant": "g-1-1", "Stockade-Fence-Epoch": "1", "Stockade-Session": "s-1"}
BIG = str(1 << 63)


class Bad(NamedTuple):
    method: str
    path: str
    body: Any = None
    headers: Any = None
    status: int = 400
    code: str = "INVALID_REQUEST"
    names: str = ""


PARAMETERS = [
    Bad("GET", "/v1/topics?x=1", names="x:"),
    Bad("GET", "/v1/topics?topic_id=1", names="topic_id:"),
    Bad("GET", "/v1/topics/a%20b", names="topic:"),
    Bad("GET", "/v1/topics/%7Bx%7D", names="topic:"),
    Bad("GET", "/v1/topics/" + "x" * 250, names="topic:"),
    Bad("GET", "/v1/topics/%C3%A4", names="topic:"),
    Bad("DELETE", "/v1/topics/orders?topic_id=-1", names="topic_id:"),
    Bad("DELETE", f"/v1/topics/orders?topic_id={BIG}", names="topic_id:"),
    Bad("DELETE", "/v1/topics/orders?topic_id=1&topic_id=1", names="topic_id:"),
    Bad("GET", "/v1/topics/orders/partitions/x/records", names="partition:"),
    Bad("GET", "/v1/topics/orders/partitions/-1/records", names="partition:"),
    Bad("GET", "/v1/topics/orders/partitions/+0/records", names="partition:"),
    Bad("GET", "/v1/topics/orders/partitions/0.0/records", names="partition:"),
    Bad("GET", "/v1/topics/orders/partitions/%D9%A0/records", names="partition:"),
    Bad("GET", "/v1/topics/orders/partitions/2147483648/records", names="partition:"),
    Bad("GET", "/v1/topics/orders/partitions/" + "9" * 300 + "/records", names="partition:"),
    Bad("GET", RECORDS + "?offset=-1", names="offset:"),
    Bad("GET", RECORDS + "?offset=1e3", names="offset:"),
    Bad("GET", RECORDS + "?offset=1.0", names="offset:"),
    Bad("GET", RECORDS + "?offset=", names="offset:"),
    Bad("GET", RECORDS + "?offset", names="offset:"),
    Bad("GET", RECORDS + "?offset=%201", names="offset:"),
    Bad("GET", RECORDS + "?offset=%D9%A1", names="offset:"),
    Bad("GET", RECORDS + "?offset=first", names="offset:"),
    Bad("GET", RECORDS + f"?offset={BIG}", names="offset:"),
    Bad("GET", RECORDS + "?offset=0&offset=0", names="offset:"),
    Bad("GET", RECORDS + "?max_bytes=0", names="max_bytes:"),
    Bad("GET", RECORDS + "?max_bytes=67108865", names="max_bytes:"),
    Bad("GET", RECORDS + "?min_bytes=67108865", names="min_bytes:"),
    Bad("GET", RECORDS + "?max_wait_ms=60001", names="max_wait_ms:"),
    Bad("GET", RECORDS + "?follow=1", names="follow:"),
    Bad("GET", RECORDS + "?follow=True", names="follow:"),
    Bad("GET", RECORDS + "?meta=yes", names="meta:"),
    Bad("GET", RECORDS + "?local=", names="local:"),
    Bad("GET", RECORDS + "?meta=true", None, {"Accept": ARROW["Content-Type"]}, names="meta:"),
    Bad("GET", RECORDS + "?meta=true&follow=true", None, {"Accept": ARROW["Content-Type"]}, names="meta:"),
    Bad("GET", RECORDS + "?origins=true&follow=true", None, {"Accept": ARROW["Content-Type"]}, names="origins:"),
    Bad("GET", RECORDS + "?origins=true", names="origins:"),
    Bad("GET", RECORDS, None, {"Accept": "text/event-stream", "Last-Event-ID": "x"}, names="Last-Event-ID:"),
    Bad(
        "GET",
        RECORDS,
        None,
        [("Accept", "text/event-stream"), ("Last-Event-ID", "1"), ("Last-Event-ID", "2")],
        names="Last-Event-ID: occurs 2 times",
    ),
    Bad("GET", "/v1/topics/orders/partitions/0/offsets?at=now", names="at:"),
    Bad("GET", "/v1/topics/orders/partitions/0/offsets?at=-1", names="at:"),
    Bad("GET", "/v1/topics/orders/partitions/0/tail?n=0", names="n:"),
    Bad("GET", "/v1/topics/orders/partitions/0/tail?n=10001", names="n:"),
    Bad("POST", RECORDS + "?acks=1", RECORD, names="acks:"),
    Bad("GET", "/v1/tickets/t-1?wait_ms=60001", None, SESSION, names="wait_ms:"),
]

HEADERS = [
    *(
        Bad("POST", RECORDS, RECORD, {name: value for name, value in TRIO.items() if name != missing}, names=missing)
        for missing in TRIO
    ),
    Bad("POST", RECORDS, RECORD, TRIO | {"Stockade-Producer-Id": "+1"}, names="Stockade-Producer-Id"),
    Bad("POST", RECORDS, RECORD, TRIO | {"Stockade-Producer-Id": BIG}, names="Stockade-Producer-Id"),
    Bad("POST", RECORDS, RECORD, TRIO | {"Stockade-Producer-Id": "٣"}, names="Stockade-Producer-Id"),
    Bad("POST", RECORDS, RECORD, TRIO | {"Stockade-Producer-Epoch": "32767"}, names="Stockade-Producer-Epoch"),
    Bad("POST", RECORDS, RECORD, TRIO | {"Stockade-Producer-Seq": "2147483648"}, names="Stockade-Producer-Seq"),
    Bad("POST", RECORDS, RECORD, TRIO | {"Stockade-Producer-Seq": "1.0"}, names="Stockade-Producer-Seq"),
    Bad("POST", RECORDS, RECORD, TRIO | {"Stockade-Producer-Seq": ""}, names="Stockade-Producer-Seq"),
    Bad("POST", RECORDS + "?acks=0", RECORD, TRIO, names="Stockade-Producer-Id"),
    Bad("POST", RECORDS + "?acks=0", RECORD, {"Stockade-If-Log-End": "0"}, names="Stockade-If-Log-End"),
    Bad("POST", RECORDS + "?acks=0", RECORD, {"Stockade-Message-Id": "m"}, names="Stockade-Message-Id"),
    Bad("POST", RECORDS, RECORD, {"Stockade-If-Log-End": "-1"}, names="Stockade-If-Log-End"),
    Bad("POST", RECORDS, RECORD, {"Stockade-If-Log-End": BIG}, names="Stockade-If-Log-End"),
    Bad("POST", RECORDS, RECORD, {"Stockade-Message-Id": "m"}, names="Stockade-Message-Id"),
    Bad("POST", RECORDS, RECORD, {"Stockade-Message-Id": "m" * 129}, names="Stockade-Message-Id"),
    Bad("POST", RECORDS, RECORD, SESSION, names="Stockade-Fence-Grant"),
    Bad("POST", RECORDS, RECORD, SESSION | {"Stockade-Fence-Grant": "g"}, names="Stockade-Fence-Epoch"),
    Bad(
        "POST",
        RECORDS,
        RECORD,
        SESSION | {"Stockade-Fence-Grant": "g", "Stockade-Fence-Epoch": str(1 << 64)},
        names="Stockade-Fence-Epoch",
    ),
    Bad(
        "POST",
        RECORDS,
        RECORD,
        [("Stockade-If-Log-End", "0"), ("Stockade-If-Log-End", "0")],
        names="Stockade-If-Log-End",
    ),
    Bad("POST", KEYED, RECORD, TRIO, names="Stockade-Producer-Id"),
    Bad("POST", KEYED, RECORD, {"Stockade-If-Log-End": "0"}, names="Stockade-If-Log-End"),
    Bad("POST", KEYED, RECORD, {"Stockade-Message-Id": "m"}, names="Stockade-Message-Id"),
    Bad("POST", RECORDS, RECORD, FENCE | {"Stockade-Fence-Grant": "g" * 250}, names="Stockade-Fence-Grant"),
    Bad("POST", RECORDS, RECORD, FENCE | {"Stockade-Session": "s" * 250}, names="Stockade-Session"),
    Bad("POST", RECORDS, RECORD, FENCE | {"Stockade-Fence-Grant": "g" * 249}, 400, "INVALID_FENCING_TOKEN"),
    Bad("POST", KEYED + "?fence_epoch=1", RECORD, names="fence_epoch"),
    Bad("POST", GRANTS, GRANT, names="Stockade-Session"),
    Bad("POST", GRANTS, GRANT, {"Stockade-Session": ""}, 404, "UNKNOWN_SESSION"),
    Bad("POST", RECORDS, RECORD, {"Stockade-Message-Id": ""}, names="Stockade-Message-Id"),
    Bad("POST", GRANTS, GRANT, [("Stockade-Session", "a"), ("Stockade-Session", "a")], names="Stockade-Session"),
    Bad("DELETE", "/v1/grants/g-1-1", names="Stockade-Session"),
    Bad("GET", "/v1/tickets/t-1", names="Stockade-Session"),
]

BODIES = [
    Bad("POST", TOPICS, b"", JSON, names="body"),
    Bad("POST", TOPICS, b"{", JSON, names="body"),
    Bad("POST", TOPICS, b"[]", JSON, names="body"),
    Bad("POST", TOPICS, b'{"name":"a","name":"a"}', JSON, names="body"),
    Bad("POST", TOPICS, b'{"name":"\xff"}', JSON, names="body"),
    Bad("POST", TOPICS, b'{"name":"\\ud800"}', JSON, names="body"),
    Bad("POST", TOPICS, b'{"name":NaN}', JSON, names="body"),
    Bad("POST", TOPICS, b'{"name":' + b"[" * 64 + b"]" * 64 + b"}", JSON, names="body"),
    Bad("POST", TOPICS, b"[" * 100_000, JSON, names="body"),
    Bad("POST", TOPICS, {}, names="name"),
    Bad("POST", TOPICS, {"name": 1}, names="name"),
    Bad("POST", TOPICS, {"name": None}, names="name"),
    Bad("POST", TOPICS, {"name": ""}, names="name"),
    Bad("POST", TOPICS, {"name": "a b"}, names="name"),
    Bad("POST", TOPICS, {"name": "a\n"}, names="name"),
    Bad("POST", TOPICS, {"name": "."}, names="name"),
    Bad("POST", TOPICS, {"name": ".."}, names="name"),
    Bad("POST", TOPICS, {"name": "x" * 250}, names="name"),
    Bad("POST", TOPICS, {"name": "a", "x": 1}, names="`x`"),
    Bad("POST", TOPICS, {"name": "a", "partitions": 0}, names="partitions"),
    Bad("POST", TOPICS, {"name": "a", "partitions": 10_001}, names="partitions"),
    Bad("POST", TOPICS, b'{"name":"a","partitions":1.0}', JSON, names="partitions"),
    Bad("POST", TOPICS, b'{"name":"a","partitions":1e0}', JSON, names="partitions"),
    Bad("POST", TOPICS, b'{"name":"a","partitions":99999999999999999999999}', JSON, names="partitions"),
    Bad("POST", TOPICS, {"name": "a", "partitions": "1"}, names="partitions"),
    Bad("POST", TOPICS, {"name": "a", "partitions": True}, names="partitions"),
    Bad("POST", TOPICS, {"name": "a", "partitions": None}, names="partitions"),
    Bad("POST", TOPICS, {"name": "a", "replication_factor": 2}, names="replication_factor"),
    Bad("POST", TOPICS, {"name": "a", "replication_factor": 9}, names="replication_factor"),
    Bad("POST", TOPICS, {"name": "a", "config": None}, names="config"),
    Bad("POST", TOPICS, {"name": "a", "config": {"x": 1}}, names="`x`"),
    Bad("POST", TOPICS, {"name": "a", "config": {"durability": "disk"}}, names="`durability`"),
    Bad("POST", TOPICS, {"name": "a", "config": {"writer_group": "g h"}}, names="config.writer_group"),
    Bad("POST", TOPICS, {"name": "a", "config": {"retention_ms": -2}}, names="config.retention_ms"),
    Bad("POST", TOPICS, {"name": "a", "config": {"retention_bytes": 1.5}}, names="config.retention_bytes"),
    Bad("POST", TOPICS, {"name": "a", "config": {"max_batch_bytes": 1023}}, names="config.max_batch_bytes"),
    Bad("POST", TOPICS, {"name": "a", "config": {"max_batch_bytes": 16_777_217}}, names="config.max_batch_bytes"),
    Bad("POST", TOPICS, {"name": "a", "config": {"producer_ttl_ms": 999}}, names="config.producer_ttl_ms"),
    Bad("POST", TOPICS, {"name": "a", "config": {"max_producers": 0}}, names="config.max_producers"),
    Bad("POST", "/v1/sessions", {}, names="client_id"),
    Bad("POST", "/v1/sessions", {"client_id": ""}, names="client_id"),
    Bad("POST", "/v1/sessions", {"client_id": "x" * 250}, names="client_id"),
    Bad("POST", "/v1/sessions", {"client_id": "x\ny"}, names="client_id: must not have control characters"),
    Bad("POST", "/v1/sessions", {"client_id": "\x9b2J"}, names="client_id: must not have control characters"),
    Bad("POST", "/v1/sessions", {"client_id": "x", "ttl_ms": 0}, names="ttl_ms"),
    Bad("POST", "/v1/sessions", {"client_id": "x", "ttl_ms": 1 << 63}, names="ttl_ms"),
    Bad("POST", GRANTS, GRANT | {"mode": "exclusive"}, SESSION, names="mode"),
    Bad("POST", GRANTS, GRANT | {"partitions": []}, SESSION, names="partitions"),
    Bad("POST", GRANTS, GRANT | {"partitions": [0, 0]}, SESSION, names="partitions"),
    Bad("POST", GRANTS, GRANT | {"partitions": "some"}, SESSION, names="partitions"),
    Bad("POST", GRANTS, GRANT | {"partitions": [2147483648]}, SESSION, names="partitions"),
    Bad("POST", GRANTS, GRANT | {"partitions": 0}, SESSION, names="partitions"),
    Bad("POST", GRANTS, GRANT | {"producer_name": ""}, SESSION, names="producer_name"),
    Bad("POST", GRANTS, GRANT | {"producer_name": "p\x1b[2J"}, SESSION, names="producer_name: must not have control"),
    Bad("POST", "/v1/topics/orders/fence", {"partitions": "all", "reason": "a\nb"}, names="reason: must not have"),
    Bad(
        "POST",
        "/v1/cluster/session_fences",
        {"handle": "0" * 16, "reason": "a\rb"},
        names="reason: must not have control",
    ),
    Bad("POST", GRANTS, GRANT | {"resume_epoch": -1}, SESSION, names="resume_epoch"),
    Bad("POST", GRANTS, GRANT | {"resume_epoch": 1 << 64}, SESSION, names="resume_epoch"),
    Bad("POST", GRANTS, GRANT | {"wait_ms": 60_001}, SESSION, names="wait_ms"),
    Bad("POST", GRANTS, GRANT | {"ticket_ttl_ms": 0}, SESSION, names="ticket_ttl_ms"),
    Bad("POST", GRANTS, GRANT | {"x": 0}, SESSION, names="`x`"),
    Bad("POST", "/v1/producers", {"name": ""}, names="name"),
    Bad("POST", "/v1/producers", {"name": "12"}, names="name"),
    Bad("POST", "/v1/producers", {"name": "a/b"}, names="name"),
    Bad("POST", "/v1/producers", {"name": "a\u0007"}, names="name"),
    Bad("POST", "/v1/producers", {"producer_id": 2}, names="producer_epoch"),
    Bad("POST", "/v1/producers", {"producer_epoch": 2}, names="producer_id"),
    Bad("POST", "/v1/producers", {"producer_id": 2, "producer_epoch": 32767}, names="producer_epoch"),
    Bad("POST", "/v1/producers", {"producer_id": None, "producer_epoch": None}, names="producer_id"),
    Bad("POST", "/v1/producers", {"timeout_ms": "1"}, names="timeout_ms"),
    Bad("POST", "/v1/producers", {"timeout_ms": 60_000}, names="`timeout_ms`"),
    Bad("POST", "/v1/producers", {"nonce": ""}, names="nonce"),
    Bad("POST", "/v1/producers", {"nonce": "x" * 65}, names="nonce"),
    Bad("POST", TOPICS, b" " * (1024 * 1024 + 1), JSON, 413, "MESSAGE_TOO_LARGE"),
]

GROUPS = [
    Bad("GET", RECORDS + "?group=g", names="fence_epoch:"),
    Bad("GET", RECORDS + "?fence_epoch=1", names="group:"),
    Bad("GET", RECORDS + "?group=a%20b&fence_epoch=1", names="group:"),
    Bad("GET", RECORDS + f"?group=g&fence_epoch={1 << 64}", names="fence_epoch:"),
    Bad("POST", RECORDS + "?fence_epoch=x", RECORD, names="fence_epoch:"),
    Bad("POST", OWN, {"claims": []}, SESSION, names="claims"),
    Bad("POST", OWN, {"claims": [{}]}, SESSION, names="claims[0]"),
    Bad("POST", OWN, {"claims": [{"resource": ""}]}, SESSION, names="claims[0].resource"),
    Bad("POST", OWN, {"claims": [{"resource": "x" * 1025}]}, SESSION, names="claims[0].resource"),
    Bad("POST", OWN, {"claims": [{"resource": "ä" * 600}]}, SESSION, names="claims"),
    Bad("POST", OWN, {"claims": [{"resource": "a"}] * 2}, SESSION, names="claims"),
    Bad("POST", OWN, {"claims": [{"resource": "a", "generation": -1}]}, SESSION, names="claims[0].generation"),
    Bad("POST", OWN, {"claims": [{"resource": "a"}], "sever": "all"}, SESSION, names="sever"),
    Bad("POST", OWN, {"claims": [{"resource": "a"}]}, names="Stockade-Session"),
    Bad("POST", "/v1/groups/a%20b/own", {"claims": [{"resource": "a"}]}, SESSION, names="group:"),
    Bad("DELETE", OWN, None, SESSION, names="resource:"),
    Bad("DELETE", OWN + "?resource=", None, SESSION, names="resource:"),
    Bad("DELETE", OWN + "?resource=a&resource=a", None, SESSION, names="resource:"),
    Bad("DELETE", OWN + "?resource=%ff", None, SESSION, names="resource: not UTF-8"),
    Bad("DELETE", OWN + "?resource=%ED%A0%80", None, SESSION, names="resource: not UTF-8"),
    Bad("GET", "/v1/groups?prefix=a%C3%28", names="prefix: not UTF-8"),
    Bad("GET", "/v1/producers/Zo%EB", names="path: not UTF-8"),
    Bad("PUT", "/v1/principals/Zo%EB", {"rights": ["read topic:*"]}, names="path: not UTF-8"),
    Bad("GET", "/v1/producers/Zo%25EB", status=404, code="NOT_FOUND"),
    Bad("PUT", POSITION, {}, names="offset"),
    Bad("PUT", POSITION, {"offset": -1}, names="offset"),
    Bad("PUT", POSITION, {"offset": 0, "metadata": "x" * 4097}, names="metadata"),
    Bad("PUT", "/v1/groups/g/positions/orders/x", {"offset": 0}, names="partition:"),
    Bad("PUT", "/v1/groups/g/positions/orders/9", {"offset": 0}, None, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
]

CHANGES = [
    Bad("PATCH", "/v1/topics/orders", {}, names="body"),
    Bad("PATCH", "/v1/topics/orders", {"sealed": False}, names="sealed"),
    Bad("PATCH", "/v1/topics/orders", {"partitions": 0}, names="partitions"),
    Bad("PATCH", "/v1/topics/orders", {"name": "b"}, names="`name`"),
    Bad("PATCH", "/v1/topics/orders", {"config": {"x": 1}}, names="`x`"),
    Bad("PATCH", "/v1/topics/orders", {"config": {"retention_ms": None}}, names="config.retention_ms"),
    Bad("POST", "/v1/topics/orders/partitions/0/trim", {}, names="before"),
    Bad("POST", "/v1/topics/orders/partitions/0/trim", {"before": -2}, names="before"),
    Bad("POST", "/v1/topics/orders/fence", {}, names="partitions"),
    Bad("POST", "/v1/topics/orders/fence", {"partitions": [0, 0]}, names="partitions"),
    Bad("POST", "/v1/topics/orders/fence", {"partitions": "some"}, names="partitions"),
    Bad("GET", "/v1/producers/" + "x" * 250, names="producer:"),
    Bad("GET", "/v1/producers/99999999999999999999", names="producer:"),
    Bad("GET", "/v1/producers/nobody", status=404, code="NOT_FOUND"),
    Bad("POST", "/v1/cluster/producer_fences", {"name": "12"}, names="name"),
    Bad("GET", "/v1/refused_writes?n=1001", names="n:"),
]

UNTYPED = [
    Bad("POST", path, b"{}", headers, 415, "UNSUPPORTED_MEDIA_TYPE")
    for path in (TOPICS, RECORDS, KEYED, "/v1/sessions", "/v1/producers")
    for headers in (
        {},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": ""},
        {"Content-Type": "application/json; charset=latin-1"},
        JSON | {"Content-Encoding": "gzip"},
        JSON | {"Content-Encoding": "identity, gzip"},
        [*JSON.items(), ("Content-Encoding", "identity"), ("Content-Encoding", "gzip")],
    )
]

UNACCEPTABLE = [
    Bad("GET", TOPICS, None, {"Accept": "text/html"}, 406, "NOT_ACCEPTABLE"),
    Bad("GET", TOPICS, None, {"Accept": "application/json;q=0"}, 406, "NOT_ACCEPTABLE"),
    Bad("GET", RECORDS, None, {"Accept": "text/html, image/*"}, 406, "NOT_ACCEPTABLE"),
    Bad("GET", RECORDS + "?follow=true", None, {"Accept": "application/json"}, 406, "NOT_ACCEPTABLE"),
    Bad("POST", RECORDS, RECORD, {"Accept": "application/x-ndjson"}, 406, "NOT_ACCEPTABLE"),
]

ELSEWHERE = [
    Bad("GET", "/v2/topics", status=404, code="NOT_FOUND"),
    Bad("GET", "/v1/topics/", status=404, code="NOT_FOUND"),
    Bad("GET", "/v1/topics//partitions/0/records", status=404, code="NOT_FOUND"),
    Bad("POST", "/v1/cluster/brokers", {}, status=404, code="NOT_FOUND"),
    Bad("PUT", RECORDS, status=405, code="METHOD_NOT_ALLOWED"),
    Bad("OPTIONS", RECORDS, status=405, code="METHOD_NOT_ALLOWED"),
    Bad("POST", "/metrics", status=405, code="METHOD_NOT_ALLOWED"),
    Bad("GET", "/v1/topics/nowhere", status=404, code="UNKNOWN_TOPIC_OR_PARTITION"),
    Bad("GET", "/v1/topics/orders/partitions/1/records", status=404, code="UNKNOWN_TOPIC_OR_PARTITION"),
    Bad("POST", "/v1/topics/nowhere/records", RECORD, status=404, code="UNKNOWN_TOPIC_OR_PARTITION"),
    Bad("POST", RECORDS + "?topic_id=999", RECORD, status=409, code="INCONSISTENT_TOPIC_ID"),
    Bad("POST", KEYED + "?topic_id=999", RECORD, status=409, code="INCONSISTENT_TOPIC_ID"),
    Bad("PUT", "/v1/sessions/s-nobody", status=404, code="UNKNOWN_SESSION"),
    Bad("PUT", "/v1/session", names="Stockade-Session"),
    Bad("DELETE", "/v1/session", names="Stockade-Session"),
]


@pytest.mark.parametrize(
    "bad",
    PARAMETERS + HEADERS + BODIES + GROUPS + CHANGES + UNTYPED + UNACCEPTABLE + ELSEWHERE,
    ids=lambda bad: repr(bad)[:120],
)
def test_a_bad_request_is_refused_by_name(bad: Bad) -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call(bad.method, bad.path, bad.body, bad.headers)
        assert (answer.status, answer.json["code"]) == (bad.status, bad.code), answer.body
        assert bad.names in answer.json.get("reason", "")
        assert answer.json["instance"]

    run(test)


RECORD_FAULTS: list[tuple[Any, str, str]] = [
    ({"key": 1}, "INVALID_RECORD", "key"),
    ({"value": {}}, "INVALID_RECORD", "value"),
    ({"value_base64": None}, "INVALID_RECORD", "value_base64"),
    ({"key": "a", "key_base64": "AA=="}, "INVALID_RECORD", "key_base64"),
    ({"key": None, "key_base64": "AA=="}, "INVALID_RECORD", "key_base64"),
    ({"value": "a", "value_base64": "AA=="}, "INVALID_RECORD", "value_base64"),
    ({"value": None, "value_json": 1}, "INVALID_RECORD", "value_json"),
    ({"value_base64": "AA==", "value_json": 1}, "INVALID_RECORD", "value_json"),
    ({"value_base64": "AA"}, "INVALID_RECORD", "value_base64"),
    ({"value_base64": "A A="}, "INVALID_RECORD", "value_base64"),
    ({"value_base64": "_w=="}, "INVALID_RECORD", "value_base64"),
    ({"value_base64": "ü==="}, "INVALID_RECORD", "value_base64"),
    ({"timestamp_ms": -1}, "INVALID_RECORD", "timestamp_ms"),
    ({"timestamp_ms": "1"}, "INVALID_RECORD", "timestamp_ms"),
    ({"timestamp_ms": 1.5}, "INVALID_RECORD", "timestamp_ms"),
    ({"timestamp_ms": None}, "INVALID_RECORD", "timestamp_ms"),
    ({"timestamp_ms": 1 << 63}, "INVALID_RECORD", "timestamp_ms"),
    ({"headers": {}}, "INVALID_RECORD", "headers"),
    ({"headers": [{"key": "a"}]}, "INVALID_RECORD", "header"),
    ({"headers": [{"value": "a"}]}, "INVALID_RECORD", "key"),
    ({"headers": [{"key": "a", "value": None}]}, "INVALID_RECORD", "value"),
    ({"headers": [{"key": "a", "value": "a", "value_base64": "AA=="}]}, "INVALID_RECORD", "value_base64"),
    ({"headers": [{"key": "a", "value": ""}] * 1001}, "INVALID_RECORD", "headers"),
    (1, "INVALID_RECORD", ""),
    (None, "INVALID_RECORD", ""),
    ({"headers": [{"key": "a", "value": "", "x": 1}]}, "INVALID_REQUEST", "`x`"),
    ({"x": 1}, "INVALID_REQUEST", "`x`"),
]


@pytest.mark.parametrize(("record", "code", "names"), RECORD_FAULTS, ids=lambda value: repr(value)[:60])
@pytest.mark.parametrize("path", [RECORDS, KEYED])
def test_a_bad_record_is_refused_with_its_index(record: Any, code: str, names: str, path: str) -> None:
    async def test(node: Conversation) -> None:
        records = [{"value": "good"}, record]
        in_json = await node.call("POST", path, {"records": records})
        in_lines = await node.call("POST", path, b"\n\n".join(json.dumps(r).encode() for r in records), NDJSON)
        for answer in (in_json, in_lines):
            assert (answer.status, answer.json["code"]) == (400, code), answer.body
            assert names in answer.json["reason"]
            if code == "INVALID_RECORD":
                assert answer.json["index"] == 1
        assert await node.values() == []

    run(test)


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        ({"records": []}, JSON, "INVALID_RECORD"),
        (b"", NDJSON, "INVALID_RECORD"),
        (b" \n\r\n", NDJSON, "INVALID_RECORD"),
        (b"{}\n{\n", NDJSON, "INVALID_RECORD"),
        (b"", TEXT, "INVALID_RECORD"),
        (b"", ARROW, "CORRUPT_MESSAGE"),
        (b"nonsense", ARROW, "CORRUPT_MESSAGE"),
        (
            pa.schema([pa.field("x", pa.int8())]).serialize().to_pybytes() + b"\xff\xff\xff\xff\0\0\0\0",
            ARROW,
            "INVALID_RECORD",
        ),
        ({"records": {}}, JSON, "INVALID_REQUEST"),
        ({"records": [{}], "x": 1}, JSON, "INVALID_REQUEST"),
        ({}, JSON, "INVALID_REQUEST"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("path", [RECORDS, KEYED])
def test_a_body_without_a_valid_batch_is_refused(body: Any, headers: dict[str, str], code: str, path: str) -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("POST", path, body, headers)
        assert (answer.status, answer.json["code"]) == (400, code)

    run(test)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/"])
def test_a_monitor_that_asks_with_head_is_answered_as_with_get(path: str) -> None:
    async def test(node: Conversation) -> None:
        full, head = await node.call("GET", path), await node.call("HEAD", path, valid=False)
        assert (head.status, head.body) == (full.status, b"")
        assert head.headers["Content-Type"] == full.headers["Content-Type"]
        assert (await node.call("GET", path)).status == full.status, "the connection goes on"

    run(test)


def test_the_methods_of_a_route_are_named() -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("PUT", "/v1/topics/orders", {})
        assert answer.headers["Allow"] == "DELETE, GET, PATCH"
        head = await node.call("HEAD", "/v1/topics", valid=False)
        assert (head.status, head.body, head.headers["Allow"]) == (405, b"", "GET, POST")

    run(test)


@pytest.mark.parametrize("kind", [ZeroDivisionError, ConnectionRefusedError, TimeoutError])
def test_a_bug_is_answered_as_an_unknown_outcome_without_its_text(kind: type[Exception]) -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic()
            node.service.bug = kind("secret")
            answer = await node.call("POST", RECORDS, RECORD)
            assert (answer.status, answer.json["no_side_effects"]) == (500, False)
            assert b"secret" not in answer.body

    asyncio.run(main())
