"""OpenTelemetry hooks of the client: ``pip install stockade[otel]``.

await otel.send(producer, "orders", b"paid")            # a span that ends with the record's outcome
producer = Producer(URL, interceptors=[otel.inject])    # or: each record carries the trace in which it is sent
otel.measure(producer)                                  # counts records, measures batches
with otel.processing(record): ...                       # a span that continues the record's trace
with otel.requests(): ...                               # requests of a Client carry the current trace to the nodes
"""

from .client.telemetry import inject, measure, processing, requests, send, sent_in

__all__ = ["inject", "measure", "processing", "requests", "send", "sent_in"]
