"""A trace goes from a program through the node's disk to the answer."""

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from stockade import Client, ClientConfig, Producer, otel
from stockade.testing import Cluster

pytestmark = pytest.mark.processes


@pytest.fixture(params=[ALWAYS_ON, ALWAYS_OFF], ids=["sampled", "not sampled"])
def spans(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    sampler: Sampler = request.param
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def parent_of(span: ReadableSpan, spans: tuple[ReadableSpan, ...]) -> str | None:
    """The name of the span above."""
    names = {each.context.span_id: each.name for each in spans if each.context is not None}
    return None if span.parent is None else names[span.parent.span_id]


def test_a_trace_shows_the_request_its_commit_and_its_apply(spans: InMemorySpanExporter) -> None:
    async def run(config: ClientConfig) -> None:
        async with Producer(config) as producer:
            await (await otel.send(producer, "orders", b"paid"))
            await (await producer.send("orders", b"untraced"))
        async with Client(config) as client:
            with trace.get_tracer("test").start_as_current_span("setup"), otel.requests():
                await client.create_topic("more")

    with Cluster() as cluster:
        cluster.create_topic("orders")
        asyncio.run(run(ClientConfig(bootstrap=(cluster.url,))))
    found = spans.get_finished_spans()
    above = {span.name: parent_of(span, found) for span in found if span.name not in ("commit", "apply")}
    stages = {(span.name, parent_of(span, found)) for span in found if span.name in ("commit", "apply")}
    if not found:
        return  # nothing is collected, and all works the same
    assert above["send orders"] is None
    (append,) = [name for name, parent in above.items() if parent == "send orders"]
    assert append.startswith("POST ")
    assert above["POST /v1/topics"] == "setup"
    assert {("commit", append), ("apply", append), ("commit", "POST /v1/topics")} <= stages
    by_name = {span.name: span for span in found if parent_of(span, found) == append}
    commit, apply = by_name["commit"], by_name["apply"]
    times = [commit.start_time, commit.end_time, apply.start_time, apply.end_time]
    assert None not in times
    assert times == sorted(times, key=int)  # type: ignore[arg-type]
    assert times[1] == times[2]
