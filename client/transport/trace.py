"""The trace that requests carry (W3C Trace Context): nodes continue it, from the request to the disk and the answer.

Nothing here needs OpenTelemetry; client/telemetry.py puts traces in.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

TRACEPARENT = "traceparent"
_SAMPLED = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]\Z")
"""A traceparent with the flag *sampled*: its trace is collected. A node takes longer with a traced request."""

_carried: ContextVar[str | None] = ContextVar("traceparent", default=None)


@contextmanager
def carrying(traceparent: str | None) -> Iterator[None]:
    """The requests that this task makes in the block carry this trace; None: that of the block around, if any."""
    token = _carried.set(traceparent or _carried.get())
    try:
        yield
    finally:
        _carried.reset(token)


def trace_headers() -> dict[str, str]:
    """The header of a request that is made now; none without a trace that is collected."""
    traceparent = _carried.get()
    return {} if traceparent is None else {TRACEPARENT: traceparent}


def trace_of(headers: Sequence[Sequence[tuple[str, bytes]] | None] | None) -> str | None:
    """The trace of the first of these records that carries one which is collected; ``headers``: of each record."""
    for row in headers or ():
        for name, value in row or ():
            if name == TRACEPARENT and _SAMPLED.match(text := value.decode("ascii", "replace")):
                return text
    return None
