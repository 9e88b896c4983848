"""OpenTelemetry, for those who have it (the extra ``otel``): ``from stockade import otel``.

Everything here is a hook that the application puts in: an interceptor that lets a record carry the trace it belongs to,
a span around the work on a record that was read, and metrics of what a producer's batches came to. Names are those of
OpenTelemetry's conventions for messaging. Without the application's own SDK all of it does nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context, metrics, propagate, trace

from .batches import Receipt, Record
from .outcomes import Failure
from .pieces import ConsumedRecord
from .producer import Producer

_SYSTEM = {"messaging.system": "stockade"}


def inject(topic: str, record: Record) -> Record:
    """An interceptor: puts the current trace into the record's headers (``traceparent`` and its like)."""
    carried: dict[str, str] = {}
    propagate.inject(carried)
    added = [(name, value.encode()) for name, value in carried.items()]
    return record._replace(headers=[*(record.headers or ()), *added]) if added else record


@contextmanager
def processing(record: ConsumedRecord) -> Iterator[trace.Span]:
    """A span around the work on a record; a child of the span in which the record was sent, if it carries that.

    What the work raises is written down in the span, and raised.
    """
    place: Mapping[str, str | int] = _SYSTEM | {
        "messaging.operation.type": "process",
        "messaging.destination.name": record.topic,
        "messaging.destination.partition.id": str(record.partition),
        "messaging.stockade.offset": record.offset,
    }
    tracer = trace.get_tracer("stockade")
    kind = trace.SpanKind.CONSUMER
    with tracer.start_as_current_span(f"process {record.topic}", sent_in(record), kind=kind, attributes=place) as span:
        yield span


def sent_in(record: ConsumedRecord) -> context.Context:
    """The trace that the record carries."""
    carried = {name: value.decode("ascii", "replace") for name, value in record.headers}
    return propagate.extract(carried)


def measure(producer: Producer) -> None:
    """Count records of ``producer`` that were stored or failed (``error.type``), and time its batches."""
    meter = metrics.get_meter("stockade")
    sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Records that have their outcome")
    took = meter.create_histogram("messaging.client.operation.duration", "s", "From send to the outcome, by batch")

    def settled(outcome: Receipt | Failure, seconds: float) -> None:
        place = _SYSTEM | {
            "messaging.operation.name": "send",
            "messaging.destination.name": outcome.topic,
            "messaging.destination.partition.id": str(outcome.partition),
        }
        if isinstance(outcome, Failure):
            place["error.type"] = outcome.error.code
        sent.add(outcome.count, place)
        took.record(seconds, place)

    producer.on_outcome(settled)
