"""OpenTelemetry for applications that use it (the extra ``otel``): ``from stockade import otel``.

The application chooses hooks: a span for each record that it sends, or an interceptor that puts the current trace into
records; a span around the processing of a record; metrics of both. Names follow OpenTelemetry's conventions for
messaging. Without an SDK of the application they do nothing.
"""

import functools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from opentelemetry import context, metrics, propagate, trace

from ..partition.errors import StockadeError
from ..partition.records.batch import Header
from .blocking.facade import Producer as BlockingProducer
from .consumer.records import ConsumedRecord
from .producer.delivery import Delivery
from .producer.producer import Producer
from .producer.queue.batch import Receipt, Record
from .producer.results import Failure
from .transport.trace import TRACEPARENT, carrying

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Buckets of the histograms in seconds, from the conventions; the SDK's defaults are for milliseconds."""


def inject(topic: str, record: Record) -> Record:
    """An interceptor that puts the current trace into the record's headers (``traceparent`` and others).

    A record that carries a trace keeps it: an application passes on records with theirs.
    """
    headers = _carrying(record.headers)
    return record if headers is record.headers else record._replace(headers=headers)


async def send(
    producer: Producer,
    topic: str,
    value: bytes | None,
    *,
    key: bytes | None = None,
    partition: int | None = None,
    headers: Sequence[Header] | None = None,
    timestamp_ms: int | None = None,
) -> Delivery:
    """``producer.send`` in a span "send TOPIC", which the record carries, and which ends with the record's outcome.

    A recorded span costs more than sending its record: for many records use ``inject``, with which they carry the
    application's present trace.
    """
    span = trace.get_tracer("stockade").start_span(
        f"send {topic}", kind=trace.SpanKind.PRODUCER, attributes=_operation("send", topic)
    )
    try:
        with trace.use_span(span, end_on_exit=False):
            delivery = await producer.send(
                topic, value, key=key, partition=partition, headers=_carrying(headers), timestamp_ms=timestamp_ms
            )
    except BaseException as error:
        span.set_attribute("error.type", _error_type(error))
        span.end()  # use_span has recorded the exception
        raise
    delivery.add_done_callback(functools.partial(_end, span))
    return delivery


@contextmanager
def processing(record: ConsumedRecord, *, group: str | None = None) -> Iterator[trace.Span]:
    """A span "process TOPIC" around the processing of a record, a child of the span that the record carries, if any.

    ``group``: the consumer group of the application. The span records an exception of the block. Counts the record and
    measures the duration.
    """
    common = _operation("process", record.topic) | ({"messaging.consumer.group.name": group} if group else {})
    place = {"messaging.destination.partition.id": str(record.partition)}
    carried = sent_in(record)
    sent = trace.get_current_span(carried).get_span_context()
    instruments = _instruments(metrics.get_meter_provider())
    begun_s = time.monotonic()
    failed: dict[str, str] = {}
    try:
        with trace.get_tracer("stockade").start_as_current_span(
            f"process {record.topic}",
            carried,
            kind=trace.SpanKind.CONSUMER,
            attributes=common | place | {"messaging.stockade.offset": record.offset},
            links=[trace.Link(sent)] if sent.is_valid else (),
        ) as span:
            try:
                yield span
            except Exception as error:
                failed["error.type"] = _error_type(error)
                span.set_attributes(failed)
                raise
    finally:
        instruments.consumed.add(1, common | place | failed)
        instruments.processed.record(time.monotonic() - begun_s, common | failed)


def sent_in(record: ConsumedRecord) -> context.Context:
    """The trace that the record carries, as an OpenTelemetry context."""
    return propagate.extract({name: value.decode("ascii", "replace") for name, value in record.headers})


@contextmanager
def requests() -> Iterator[None]:
    """The requests that this task makes in the block, with `Client` or `Session`, carry the trace that is current at
    its beginning; nodes that trace continue it. A `Producer` needs no block: its requests carry the trace of the
    records in them.
    """
    carried: dict[str, str] = {}
    propagate.inject(carried)
    with carrying(carried.get(TRACEPARENT)):
        yield


def measure(producer: Producer | BlockingProducer) -> None:
    """Count the records of ``producer`` that were stored or failed (``error.type``), and measure its batches."""

    def settled(outcome: Receipt | Failure, seconds: float) -> None:
        instruments = _instruments(metrics.get_meter_provider())
        place = _operation("send", outcome.topic)
        place["messaging.destination.partition.id"] = str(outcome.partition)
        if isinstance(outcome, Failure):
            place["error.type"] = outcome.error.code
        instruments.sent.add(outcome.count, place)
        instruments.took.record(seconds, place)

    producer.on_outcome(settled)


class _Instruments(NamedTuple):
    sent: metrics.Counter
    took: metrics.Histogram
    consumed: metrics.Counter
    processed: metrics.Histogram


@functools.lru_cache(maxsize=2)
def _instruments(provider: metrics.MeterProvider) -> _Instruments:
    """The instruments of this provider, made once for each: the application may set its own provider at any time."""
    meter = provider.get_meter("stockade")
    timed: dict[str, Any] = {"unit": "s", "explicit_bucket_boundaries_advisory": _SECONDS}
    return _Instruments(
        meter.create_counter("messaging.client.sent.messages", "{message}", "Records that have their outcome"),
        meter.create_histogram(
            "messaging.client.operation.duration", description="From send to the outcome, by batch", **timed
        ),
        meter.create_counter("messaging.client.consumed.messages", "{message}", "Records handed to the application"),
        meter.create_histogram("messaging.process.duration", description="Work on one record", **timed),
    )


def _operation(name: str, topic: str) -> dict[str, str]:
    return {
        "messaging.system": "stockade",
        "messaging.operation.type": name,
        "messaging.operation.name": name,
        "messaging.destination.name": topic,
    }


def _carrying(headers: Sequence[Header] | None) -> Sequence[Header] | None:
    """The headers, with the current trace unless they carry one."""
    carried: dict[str, str] = {}
    propagate.inject(carried)
    if not carried or any(name in carried for name, _ in headers or ()):
        return headers
    return [*(headers or ()), *((name, value.encode()) for name, value in carried.items())]


def _end(span: trace.Span, delivery: Delivery) -> None:
    receipt, failure = delivery.receipt, delivery.failure
    if receipt is not None:
        span.set_attribute("messaging.destination.partition.id", str(receipt.partition))
        if receipt.offset is not None:
            span.set_attribute("messaging.stockade.offset", receipt.offset)
    if failure is not None:
        span.set_attribute("error.type", _error_type(failure))
        span.set_status(trace.StatusCode.ERROR, failure.detail)
    span.end()


def _error_type(error: BaseException) -> str:
    return error.code if isinstance(error, StockadeError) else type(error).__qualname__
