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

from stockade import ClientConfig, ConsumedRecord, Consumer, Producer, otel
from stockade.errors import InvalidRecord, MessageTooLarge

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
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    yield collected
    provider.shutdown()


def test_a_record_carries_its_trace_to_its_reader(cluster: FakeCluster, spans: InMemorySpanExporter) -> None:
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


def test_stored_and_failed_records_are_counted(cluster: FakeCluster, reader: InMemoryMetricReader) -> None:
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
    points = points_of(reader)
    sent = points["messaging.client.sent.messages"]
    assert {error: point.value for error, point in sent.items()} == {None: 2, "MESSAGE_TOO_LARGE": 1}
    took = points["messaging.client.operation.duration"][None]
    assert (took.count, took.explicit_bounds[0]) == (1, 0.005)  # seconds; an SDK's own bounds are for milliseconds


def points_of(reader: InMemoryMetricReader) -> dict[str, dict[object, Any]]:
    """By metric, then by error.type."""
    collected = reader.get_metrics_data()
    assert collected is not None
    return {
        metric.name: {(point.attributes or {}).get("error.type"): point for point in metric.data.data_points}
        for metric in collected.resource_metrics[0].scope_metrics[0].metrics
    }


def test_a_record_sent_in_a_span_of_its_own_ends_it_with_its_outcome(
    cluster: FakeCluster, spans: InMemorySpanExporter
) -> None:
    cluster.create("t")
    cluster.faults = [None, Fault.TOO_LARGE]

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), inflight_batches_max=1, on_error="continue")
        async with Producer(config) as producer, Consumer(config) as consumer:
            await (await otel.send(producer, "t", b"v"))
            with pytest.raises(MessageTooLarge):
                await (await otel.send(producer, "t", b"w"))
            with pytest.raises(InvalidRecord):
                _ = await otel.send(producer, "t", "no bytes")  # type: ignore[arg-type]
            async for record in consumer.read("t"):
                with otel.processing(record, group="g"):
                    pass

    asyncio.run(run())
    stored, refused, invalid, work = spans.get_finished_spans()
    common = {"messaging.system": "stockade", "messaging.destination.name": "t"}
    place = {"messaging.destination.partition.id": "0", "messaging.stockade.offset": 0}
    send = common | dict.fromkeys(("messaging.operation.name", "messaging.operation.type"), "send")
    process = common | dict.fromkeys(("messaging.operation.name", "messaging.operation.type"), "process")
    assert [(span.name, span.kind) for span in (stored, work)] == [
        ("send t", trace.SpanKind.PRODUCER),
        ("process t", trace.SpanKind.CONSUMER),
    ]
    assert stored.attributes == send | place
    assert refused.attributes == send | {"error.type": "MESSAGE_TOO_LARGE"}
    assert invalid.attributes == send | {"error.type": "INVALID_RECORD"}
    assert [span.status.status_code for span in (stored, refused, invalid)] == [
        trace.StatusCode.UNSET,
        *[trace.StatusCode.ERROR] * 2,
    ]
    assert work.attributes == process | place | {"messaging.consumer.group.name": "g"}
    assert stored.context is not None
    assert work.parent is not None
    assert {link.context.span_id for link in work.links} == {work.parent.span_id} == {stored.context.span_id}


def test_a_record_that_is_passed_on_keeps_the_trace_that_it_carries(
    cluster: FakeCluster, spans: InMemorySpanExporter
) -> None:
    cluster.create("t")
    carried = [("traceparent", b"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")]

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes))
        async with Producer(config, interceptors=[otel.inject]) as producer, Consumer(config) as consumer:
            with trace.get_tracer("test").start_as_current_span("mirror"):
                await (await producer.send("t", b"v", headers=carried))
                await (await otel.send(producer, "t", b"v", headers=carried))
            assert [record.headers async for record in consumer.read("t")] == [tuple(carried)] * 2

    asyncio.run(run())


def test_work_on_records_is_counted_and_timed(
    cluster: FakeCluster, spans: InMemorySpanExporter, reader: InMemoryMetricReader
) -> None:
    record = ConsumedRecord("t", 0, 7, 0, None, b"v")
    with otel.processing(record):
        pass
    with pytest.raises(KeyError), otel.processing(record):
        raise KeyError("work")
    points = points_of(reader)
    assert {error: point.value for error, point in points["messaging.client.consumed.messages"].items()} == {
        None: 1,
        "KeyError": 1,
    }
    assert {error: point.count for error, point in points["messaging.process.duration"].items()} == {
        None: 1,
        "KeyError": 1,
    }
    assert [(span.attributes or {}).get("error.type") for span in spans.get_finished_spans()] == [None, "KeyError"]
