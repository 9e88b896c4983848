"""Says in the log, once, that calls get no answer: which nodes were asked, why they do not answer, how long it goes on.

Without it an application without a cluster is silent until its patience (``delivery_timeout_ms``, two minutes) ends.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ...partition.errors import StockadeError
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
    """A call that waits. Times are the loop's. ``error``: why its last attempt failed."""

    what: str
    begun_s: float
    ends_s: float
    due_s: float
    error: StockadeError | None = None
    is_told: bool = False


class Outage:
    """The calls of one client that wait. ``reasons`` answers, by node, why it gives no answer at the moment."""

    def __init__(self, reasons: Callable[[], Mapping[str, str]]) -> None:
        self._reasons = reasons
        self._alarm: Alarm[Call] = Alarm(self._ring)
        self._silent_until_s = 0.0

    def begin(self, what: str, patience_s: float, quiet_s: float = 0.0) -> Call:
        """A call waits from now on. ``patience_s``: after so long it fails. ``quiet_s``: a wait that is no trouble."""
        now_s = asyncio.get_running_loop().time()
        call = Call(what, now_s, now_s + patience_s, now_s + quiet_s + WARN_AFTER_S)
        self._alarm.add(call)
        return call

    def moved(self, call: Call, patience_s: float) -> None:
        """Part of what the call waits for has come: it begins to wait anew."""
        now_s = asyncio.get_running_loop().time()
        if call.is_told:
            _log.info(answered_late(call, now_s))
        call.begun_s, call.ends_s, call.due_s = now_s, now_s + patience_s, max(call.due_s, now_s + WARN_AFTER_S)
        call.error, call.is_told = None, False

    def end(self, call: Call, *, is_answered: bool) -> None:
        """The call waits no more."""
        self._alarm.discard(call)
        if call.is_told and is_answered:
            _log.info(answered_late(call, asyncio.get_running_loop().time()))

    @contextmanager
    def over(self, what: str, patience_s: float, quiet_s: float = 0.0) -> Iterator[Call]:
        """The block waits."""
        call = self.begin(what, patience_s, quiet_s)
        is_answered = False
        try:
            yield call
            is_answered = True
        finally:
            self.end(call, is_answered=is_answered)

    def close(self) -> None:
        """Say nothing more."""
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
            _log.warning(warning(min(news, key=lambda call: call.begun_s), len(news) - 1, self._reasons(), now_s))
            for call in news:
                call.is_told = True


def warning(call: Call, others: int, reasons: Mapping[str, str], now_s: float) -> str:
    """The text for one call; ``others``: how many more calls wait. ``reasons``: by node, why it gives no answer."""
    named = [f"{node} ({why})" for node, why in list(reasons.items())[:NODES_NAMED_MAX]]
    more = f" and {len(reasons) - len(named)} more nodes" if len(reasons) > len(named) else ""
    asked = f": {', '.join(named)}{more}" if named else ""
    also = f"; {others} more calls wait" if others else ""
    last = f"; the last attempt: {call.error.code}: {call.error.detail}" if call.error is not None else ""
    rest_s = max(call.ends_s - now_s, 0.0)
    return (
        f"{call.what} has had no answer for {now_s - call.begun_s:.1f} s{asked}{also}{last}."
        f" The client goes on for {rest_s:.0f} s, then the call fails"
    )


def answered_late(call: Call, now_s: float) -> str:
    """The text for a call that was warned of and has its answer."""
    return f"{call.what} was answered after {now_s - call.begun_s:.1f} s"
