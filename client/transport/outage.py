"""Warns in the log that calls are not done: which nodes were asked, what they answered, how long the client goes on.

Without the warning an application without a cluster is silent until ``delivery_timeout_ms`` (two minutes) is over.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from ...partition.errors import StockadeError
from ..errors import ClusterUnreachable
from .alarm import Alarm

WARN_AFTER_S = 1.0
"""How long a call waits before the warning, beside the time that it asks the cluster to wait."""
WARN_AGAIN_S = 10.0
"""Least time between two warnings of one client."""
NODES_NAMED_MAX = 10
"""How many nodes a warning names."""

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Call:
    """A call that waits. Times are the loop's. ``error``: why its last attempt failed. ``nodes``: by base URL, what the
    last attempt at each node met with.
    """

    what: str
    begun_s: float
    ends_s: float
    due_s: float
    error: StockadeError | None = None
    is_told: bool = False
    nodes: dict[str, str] = field(default_factory=dict)


_present: ContextVar[Call | None] = ContextVar("present", default=None)
"""The call for which this task sends requests; another call of the client may meet with another answer at a node."""


@contextmanager
def on_behalf_of(call: Call | None) -> Iterator[None]:
    """Requests in the block are made for this call; None: for no call."""
    token = _present.set(call)
    try:
        yield
    finally:
        _present.reset(token)


def asked(node: str) -> None:
    """Note that the present call asks a node. What the node answered this call before stays noted meanwhile."""
    call = _present.get()
    if call is not None:
        call.nodes.setdefault(node, "no answer yet")


def met(node: str, reason: str) -> None:
    """Note that the present call was refused by a node, or got no answer there."""
    call = _present.get()
    if call is not None:
        call.nodes[node] = reason


class Outage:
    """The calls of one client that wait."""

    def __init__(self) -> None:
        self._alarm: Alarm[Call] = Alarm(self._ring)
        self._silent_until_s = 0.0

    def begin(self, what: str, patience_s: float, quiet_s: float = 0.0) -> Call:
        """Note that a call waits from now on, and fails after ``patience_s``. ``quiet_s``: a wait without a warning."""
        now_s = asyncio.get_running_loop().time()
        call = Call(what, now_s, now_s + patience_s, now_s + quiet_s + WARN_AFTER_S)
        self._alarm.add(call)
        return call

    def moved(self, call: Call, patience_s: float) -> None:
        """Part of what the call waits for has come: its wait begins anew."""
        now_s = asyncio.get_running_loop().time()
        if call.is_told:
            _log.info(answered_late(call, now_s))
        call.begun_s, call.ends_s, call.due_s = now_s, now_s + patience_s, max(call.due_s, now_s + WARN_AFTER_S)
        call.error, call.is_told, call.nodes = None, False, {}

    def end(self, call: Call, *, is_answered: bool) -> None:
        """The call waits no more."""
        self._alarm.discard(call)
        call.error = None  # its traceback has frames that refer to the call
        if call.is_told and is_answered:
            _log.info(answered_late(call, asyncio.get_running_loop().time()))

    @contextmanager
    def over(self, what: str, patience_s: float, quiet_s: float = 0.0) -> Iterator[Call]:
        """Inside the block, a call waits; arguments as `begin`."""
        call = self.begin(what, patience_s, quiet_s)
        is_answered = False
        try:
            with on_behalf_of(call):
                yield call
            is_answered = True
        finally:
            self.end(call, is_answered=is_answered)

    def close(self) -> None:
        """Warn no more."""
        self._alarm.close()

    def _ring(self, due: list[Call]) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._silent_until_s:
            for call in due:
                call.due_s = self._silent_until_s
            return
        for call in due:
            call.due_s = now_s + WARN_AGAIN_S
        news = [call for call in due if not call.is_told]
        if news:
            self._silent_until_s = now_s + WARN_AGAIN_S
            _log.warning(warning(min(news, key=lambda call: call.begun_s), len(news) - 1, now_s))
            for call in news:
                call.is_told = True


def warning(call: Call, others: int, now_s: float) -> str:
    """The text for one call; ``others``: how many more calls wait."""
    named = [f"{node} ({why})" for node, why in list(call.nodes.items())[:NODES_NAMED_MAX]]
    more = f" and {len(call.nodes) - len(named)} more nodes" if len(call.nodes) > len(named) else ""
    nodes = f": {', '.join(named)}{more}" if named else ""
    also = f"; {others} more {'call waits' if others == 1 else 'calls wait'}" if others else ""
    last = "" if call.error is None else f"{call.error.code}: {call.error.detail}"
    is_known = last in call.nodes.values() or (named and isinstance(call.error, ClusterUnreachable))
    last = f"; the last attempt: {last}" if last and not is_known else ""
    rest_s = max(call.ends_s - now_s, 0.0)
    return (
        f"{call.what} is not done after {now_s - call.begun_s:.1f} s{nodes}{also}{last}."
        f" The client goes on for {rest_s:.0f} s, then the call fails"
    )


def answered_late(call: Call, now_s: float) -> str:
    """The text for a call that was warned of and has its answer."""
    return f"{call.what} was done after {now_s - call.begun_s:.1f} s"
