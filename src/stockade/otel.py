"""OpenTelemetry hooks of the client: ``pip install stockade[otel]``.

producer = Producer(URL, interceptors=[otel.inject])    # records carry their trace
otel.measure(producer)                                  # counts and durations of what is sent
with otel.processing(record): ...                       # a span that goes on with the record's trace
"""

from .client.telemetry import inject, measure, processing, sent_in

__all__ = ["inject", "measure", "processing", "sent_in"]
