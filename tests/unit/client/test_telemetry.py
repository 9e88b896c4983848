"""The OpenTelemetry hooks, with the SDK's own collectors in memory."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stockade import ClientConfig, Consumer, Producer, otel

from .fake_cluster import FakeCluster, Fault


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    collected = InMemoryMetricReader()
    provider = MeterProvider([collected])
    monkeypatch.setattr(metrics, "get_meter", provider.get_meter)
    yield collected
    provider.shutdown()


def test_a_record_carries_its_trace_to_whoever_works_on_it(cluster: FakeCluster, spans: InMemorySpanExporter) -> None:
    cluster.create("t")

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes))
        async with Producer(config, interceptors=[otel.inject]) as producer, Consumer(config) as consumer:
            with trace.get_tracer("test").start_as_current_span("order"):
                await (await producer.send("t", b"v", headers=[("own", b"1")]))
            async for record in consumer.read("t"):
                assert [name for name, _ in record.headers] == ["own", "traceparent"]
                with pytest.raises(ValueError, match="work"), otel.processing(record):
                    raise ValueError("work")

    asyncio.run(run())
    work, order = sorted(spans.get_finished_spans(), key=lambda span: -len(span.name))
    assert (work.name, order.name) == ("process t", "order")
    assert work.parent is not None
    assert order.context is not None
    assert work.parent.span_id == order.context.span_id
    assert [event.name for event in work.events] == ["exception"]
    assert (work.attributes or {})["messaging.stockade.offset"] == 0


def test_without_a_trace_a_record_stays_as_it_is(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes))
        async with Producer(config, interceptors=[otel.inject]) as producer, Consumer(config) as consumer:
            await (await producer.send("t", b"v"))
            assert [record.headers async for record in consumer.read("t")] == [()]

    asyncio.run(run())


def test_what_is_stored_and_what_fails_is_counted(cluster: FakeCluster, reader: InMemoryMetricReader) -> None:
    cluster.create("t")
    cluster.faults = [None, Fault.TOO_LARGE]

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), inflight_batches_max=1)
        async with Producer(config) as producer:
            otel.measure(producer)
            await (await producer.send_batch("t", 0, [b"a", b"b"]))
            refused = await producer.send_batch("t", 0, [b"c"])
            with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
                await refused

    asyncio.run(run())
    points: dict[str, Any] = {}
    collected = reader.get_metrics_data()
    assert collected is not None
    for metric in collected.resource_metrics[0].scope_metrics[0].metrics:
        points[metric.name] = {(point.attributes or {}).get("error.type"): point for point in metric.data.data_points}
    sent = points["messaging.client.sent.messages"]
    assert {error: point.value for error, point in sent.items()} == {None: 2, "MESSAGE_TOO_LARGE": 1}
    assert points["messaging.client.operation.duration"][None].count == 1
