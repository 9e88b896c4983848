"""Nodes continue the trace that a request carries, and pass it on."""

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stockade.http_api.request import tracing

from ..conversation import RECORDS, TEXT, nodes
from ..samples import GOOD

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CARRIED = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
ROUTE = "POST /v1/topics/{topic}/partitions/{partition}/records"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def ids(span: ReadableSpan) -> tuple[str, str, str | None]:
    """Of the trace, the span and its parent."""
    assert span.context is not None
    parent = None if span.parent is None else f"{span.parent.span_id:016x}"
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}", parent


def test_each_node_on_the_way_has_a_span_below_the_one_before(spans: InMemorySpanExporter) -> None:
    async def main() -> None:
        async with nodes(2) as (leader, other):
            await leader.topic()
            assert (await other.call("POST", RECORDS, b"a", {**TEXT, **CARRIED})).status == 200
            assert await leader.values() == ["a"]

    asyncio.run(main())
    first, second = sorted(spans.get_finished_spans(), key=lambda span: ids(span)[2] != SPAN)
    assert [span.name for span in (first, second)] == [ROUTE, ROUTE]
    assert ids(first)[::2] == (TRACE, SPAN)
    assert ids(second)[::2] == (TRACE, ids(first)[1])
    assert (first.attributes or {})["http.response.status_code"] == 200
    assert first.kind is trace.SpanKind.SERVER


def test_a_request_without_a_trace_has_no_span_and_keeps_the_fast_path(spans: InMemorySpanExporter) -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic()
            assert (await node.call("POST", RECORDS, b"a", TEXT)).status == 200

    asyncio.run(main())
    assert spans.get_finished_spans() == ()


def test_a_refusal_is_no_error_of_the_node_and_a_bug_is(spans: InMemorySpanExporter) -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.call("GET", "/v1/topics/nowhere", None, CARRIED)
            node.service.bug = ZeroDivisionError()
            await node.call("POST", RECORDS, b"a", {**TEXT, **CARRIED})

    asyncio.run(main())
    refused, failed = spans.get_finished_spans()
    assert (refused.attributes or {})["http.response.status_code"] == 404
    assert refused.status.status_code is trace.StatusCode.UNSET
    assert failed.status.status_code is trace.StatusCode.ERROR


@pytest.mark.parametrize("has_api", [True, False])
def test_without_an_sdk_the_trace_is_passed_on_as_it_came(has_api: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_api:
        monkeypatch.setattr(tracing, "trace", None)

    async def main() -> None:
        async with nodes(2) as (leader, other):
            await leader.topic()
            assert (await other.call("POST", RECORDS, b"a", {**TEXT, **CARRIED})).status == 200

    asyncio.run(main())
    assert tracing.carried(CARRIED) == CARRIED
    assert tracing.carried({"traceparent": "\xfc"}) == {}


def test_the_parts_of_a_traced_request_are_stored_in_their_order(spans: InMemorySpanExporter) -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic("free")
            wanted = GOOD["append_parts"].filled({"pid": "1"})
            plain = await node.call(wanted.method, wanted.path, wanted.body, wanted.headers)
            traced = await node.call(wanted.method, wanted.path, wanted.body, {**wanted.headers, **CARRIED})
            assert (plain.status, traced.status) == (200, 200)
            assert plain.body.count(b"stored") == traced.body.count(b"stored") > 0

    asyncio.run(main())
    assert [span.name for span in spans.get_finished_spans()] == ["POST /v1/append"]


@pytest.mark.parametrize("name", ["renew_session", "renew_session_by_id", "close_session", "close_session_by_id"])
def test_no_span_has_the_id_of_a_session(spans: InMemorySpanExporter, name: str) -> None:
    async def main() -> str:
        async with nodes(2) as (leader, other):
            session: str = (await leader.call("POST", "/v1/sessions", {"client_id": "c"})).json["session"]
            asked = GOOD[name].filled({"session": session})
            assert (await other.call(asked.method, asked.path, None, {**asked.headers, **CARRIED})).status in (200, 204)
            return session

    session = asyncio.run(main())
    told = [span.to_json() for span in spans.get_finished_spans()]
    assert len(told) == 2
    assert not [each for each in told if session in each]
