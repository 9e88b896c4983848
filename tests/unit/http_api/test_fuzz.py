"""Whatever is sent, the answer is one that the contract documents, and never a bug."""

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .conversation import ARROW, JSON, NDJSON, TEXT, Conversation, check, nodes
from .records.test_append import arrow_stream
from .samples import PARTS_FORM, parts_body

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    "name",
    "partitions",
    "replication_factor",
    "config",
    "client_id",
    "ttl_ms",
    "mode",
    "producer_name",
    "resume_epoch",
    "topic_id",
    "wait_ms",
    "nonce",
    "ticket_ttl_ms",
    "producer_id",
    "producer_epoch",
    "timeout_ms",
    "records",
    "key",
    "value",
    "key_base64",
    "value_base64",
    "value_json",
    "headers",
    "timestamp_ms",
    "max_batch_bytes",
    "retention_ms",
    "claims",
    "resource",
    "generation",
    "sealed",
    "before",
    "offset",
    "metadata",
    "fence_epoch",
    "action",
    "node_id",
    "keep",
    "delete",
]
OBJECTS = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=4), VALUES, max_size=4)
BODIES = (
    st.binary(max_size=64)
    | st.builds(lambda value: json.dumps(value).encode(), VALUES | OBJECTS)
    | st.builds(lambda rows: json.dumps({"records": rows}).encode(), st.lists(OBJECTS, max_size=3))
    | st.builds(
        lambda place, noise: arrow_stream([b"a", None])[:place] + noise,
        st.integers(0, 2000),
        st.binary(max_size=16),
    )
)
ENTRIES = st.dictionaries(
    st.sampled_from([*FIELDS, *("topic", "partition", "bytes", "producer", "fence")]), VALUES, max_size=3
)
BODIES |= st.builds(
    lambda entries, version, behind: parts_body(
        *((entry, arrow_stream([b"a"])) for entry in entries), version=version, behind=behind
    ),
    st.lists(ENTRIES, max_size=3),
    st.just(1) | VALUES,
    st.binary(max_size=2),
)
NUMBERS = st.sampled_from(["0", "1", "-1", "", "x", "9223372036854775807", "9223372036854775808", "٣"])
WORDS = NUMBERS | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=6)
QUERIES = st.dictionaries(
    st.sampled_from(
        [
            "offset",
            "max_bytes",
            "min_bytes",
            "max_wait_ms",
            "meta",
            "origins",
            "local",
            "topic_id",
            "acks",
            "n",
            "at",
            "wait_ms",
            "group",
            "fence_epoch",
            "prefix",
            "ttl_ms",
            "resource",
            "zz",
        ]
    ),
    WORDS | st.sampled_from(["true", "false", "earliest", "latest", "all", "max_timestamp"]),
    max_size=3,
)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "Stockade-Producer-Id",
            "Stockade-Producer-Epoch",
            "Stockade-Producer-Seq",
            "Stockade-Fence-Grant",
            "Stockade-Fence-Epoch",
            "Stockade-Session",
            "Stockade-If-Log-End",
            "Stockade-Message-Id",
            "Accept",
            "Content-Encoding",
            "Last-Event-ID",
        ]
    ),
    WORDS | st.sampled_from(["application/json", "*/*", "identity", "s-1"]),
    max_size=4,
)
TYPES = st.sampled_from([JSON, NDJSON, TEXT, ARROW, PARTS_FORM, {}])
NAMES = st.sampled_from(["orders", "nowhere", "0", "1", "a b", "ä", ".", "{", "%"]).map(
    lambda name: quote(name, safe="")
)
OPERATIONS = st.sampled_from(
    [
        ("GET", "/v1/topics"),
        ("POST", "/v1/topics"),
        ("GET", "/v1/topics/{}"),
        ("GET", "/v1/topics/{}/partitions/{}/records"),
        ("POST", "/v1/topics/{}/partitions/{}/records"),
        ("POST", "/v1/topics/{}/records"),
        ("POST", "/v1/append"),
        ("POST", "/v1/topics/{}/news"),
        ("GET", "/v1/topics/{}/partitions/{}/offsets"),
        ("GET", "/v1/topics/{}/partitions/{}/tail"),
        ("POST", "/v1/sessions"),
        ("PUT", "/v1/session"),
        ("DELETE", "/v1/session"),
        ("PUT", "/v1/sessions/{}"),
        ("DELETE", "/v1/sessions/{}"),
        ("POST", "/v1/topics/{}/grants"),
        ("GET", "/v1/tickets/{}"),
        ("DELETE", "/v1/tickets/{}"),
        ("PATCH", "/v1/topics/{}"),
        ("POST", "/v1/topics/{}/fence"),
        ("POST", "/v1/topics/{}/partitions/{}/trim"),
        ("GET", "/v1/topics/{}/partitions/{}/fences"),
        ("PUT", "/v1/topics/{}/partitions/{}/stages/s"),
        ("GET", "/v1/topics/{}/partitions/{}/stages"),
        ("PATCH", "/v1/topics/{}/partitions/{}/stages"),
        ("POST", "/v1/topics/{}/partitions/{}/stages/s/append"),
        ("POST", "/v1/groups/{}/own"),
        ("DELETE", "/v1/groups/{}/own"),
        ("GET", "/v1/groups/{}/resources"),
        ("GET", "/v1/groups/g/positions/{}/{}"),
        ("PUT", "/v1/groups/g/positions/{}/{}"),
        ("GET", "/v1/producers/{}"),
        ("POST", "/v1/cluster/producer_fences"),
        ("POST", "/v1/cluster/members"),
        ("GET", "/v1/refused_writes"),
        ("GET", "/v1/stalls"),
        ("DELETE", "/v1/grants/{}"),
        ("POST", "/v1/producers"),
        ("GET", "/v1/cluster"),
    ]
)


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[asyncio.Runner, Conversation]]:
    with asyncio.Runner() as runner:
        context = nodes(1)
        (node,) = runner.run(context.__aenter__())
        runner.run(node.topic(partitions=2))
        yield runner, node
        runner.run(context.__aexit__(None, None, None))


@settings(max_examples=300 * int(os.environ.get("FUZZ_FACTOR", "1")), deadline=None)
@given(
    operation=OPERATIONS,
    names=st.tuples(NAMES | st.just("orders"), NAMES | st.just("0")),
    query=QUERIES,
    headers=HEADERS,
    kind=TYPES,
    body=BODIES,
)
def test_every_request_has_a_documented_answer(
    running: tuple[asyncio.Runner, Conversation],
    operation: tuple[str, str],
    names: tuple[str, str],
    query: dict[str, str],
    headers: dict[str, str],
    kind: dict[str, str],
    body: bytes,
) -> None:
    runner, node = running
    method, template = operation
    if query.get("max_wait_ms") == "9223372036854775807" or headers.get("Accept") == "text/event-stream":
        return
    path = template.format(*names)
    asked = path + "".join(f"{'&' if place else '?'}{k}={quote(v)}" for place, (k, v) in enumerate(query.items()))
    answer = runner.run(
        node.call(method, asked, body if method in ("POST", "PUT", "PATCH") else None, headers | kind, valid=False)
    )
    assert answer.status != 500, (method, asked, headers, body, answer.body)
    check(method, path, answer)
