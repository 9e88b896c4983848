"""OpenTelemetry hooks of the client: ``pip install stockade[otel]``.

await otel.send(producer, "orders", b"paid")            # a span that ends with the record's outcome
producer = Producer(URL, interceptors=[otel.inject])    # or: records just carry the trace in which they are sent
otel.measure(producer)                                  # counts and durations of what is sent
with otel.processing(record): ...                       # a span that goes on with the record's trace
"""

from .client.telemetry import inject, measure, processing, send, sent_in

__all__ = ["inject", "measure", "processing", "send", "sent_in"]
