"""OpenTelemetry in a node: spans of the requests whose client traces them (the extra ``otel``).

A request with a ``traceparent`` header gets a span, and each command that it proposes gets two child spans: ``commit``,
until its entry is on the disks of a majority, and ``apply``. A forwarded request carries the span of the node that
forwards it. The SDK that the process was started with decides what happens to spans; without an SDK, or without the
extra, a node forwards the header as it came. A request without the header costs nothing more; one with it does not take
the fast path.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from ...cluster.groups import WATCH

if TYPE_CHECKING:
    from opentelemetry import context, propagate, trace
else:
    try:
        from opentelemetry import context, propagate, trace
    except ImportError:
        context = propagate = trace = None

TRACEPARENT = "traceparent"
NAMES = (TRACEPARENT, "tracestate")
"""The headers of W3C Trace Context."""
_NS = 1_000_000_000


async def traced(
    headers: Mapping[str, str], method: str, route: str, work: Awaitable[web.StreamResponse]
) -> web.StreamResponse:
    """Await ``work`` in a span, as a child of the request's traceparent; return its answer."""
    if trace is None:
        return await work
    tracer = trace.get_tracer("stockade")
    parent = propagate.extract({name: headers[name] for name in NAMES if name in headers})
    attributes = {"http.request.method": method, "http.route": route}
    with tracer.start_as_current_span(
        f"{method} {route}", parent, kind=trace.SpanKind.SERVER, attributes=attributes
    ) as span:
        token = WATCH.set(partial(_stages, tracer, trace.set_span_in_context(span)) if span.is_recording() else None)
        try:
            response = await work
        finally:
            WATCH.reset(token)
        span.set_attribute("http.response.status_code", response.status)
        if response.status >= web.HTTPInternalServerError.status_code:
            span.set_status(trace.StatusCode.ERROR)
        return response


def carried(headers: Mapping[str, str]) -> dict[str, str]:
    """The trace headers for a request that this one causes at another node: of this node's span, or as they came."""
    found = {name: headers[name] for name in NAMES if name in headers and headers[name].isascii()}
    if trace is not None and found:
        propagate.inject(found)
    return found


def _stages(
    tracer: "trace.Tracer", parent: "context.Context", proposed_s: float, committed_s: float, applied_s: float
) -> None:
    """Report the spans ``commit`` and ``apply`` of a command as children of ``parent``; times are in loop time."""
    zero_ns = time.time_ns() - int(asyncio.get_running_loop().time() * _NS)
    committed_s = min(max(committed_s, proposed_s), applied_s)
    for name, begun_s, ended_s in (("commit", proposed_s, committed_s), ("apply", committed_s, applied_s)):
        span = tracer.start_span(name, parent, start_time=zero_ns + int(begun_s * _NS))
        span.end(zero_ns + int(ended_s * _NS))
