"""A call of a blocking client that is repeated: for how long, after which pauses, and with which lines in the log.

The caller sends and sleeps. The log has the warning of the asynchronous client (transport/outage.py), once for each
call: after the first failed attempt that ends WARN_AFTER_S or more after the call began.
"""

import logging
import time

from ...partition.errors import StockadeError
from ..config import ClientConfig
from ..retry import pause_before_next
from ..transport.outage import WARN_AFTER_S, Call, answered_late, warning

_log = logging.getLogger(__name__)


class Waiting:
    """One call. ``what``: its name in the log. ``patience_s``: no attempt begins later than this."""

    def __init__(self, what: str, patience_s: float, config: ClientConfig) -> None:
        now_s = time.monotonic()
        self._call = Call(what, now_s, now_s + patience_s, now_s + WARN_AFTER_S)
        self._config = config
        self._attempts = 0

    @property
    def nodes(self) -> dict[str, str]:
        """How the last attempt at each node failed, by base URL."""
        return self._call.nodes

    def failed(self, node: str, error: StockadeError) -> None:
        """Note that an attempt failed at a node."""
        begins = f"{node}: "  # so begins the detail of an attempt without an answer
        is_silent = error.detail.startswith(begins)
        self._call.nodes[node] = error.detail.removeprefix(begins) if is_silent else f"{error.code}: {error.detail}"

    def pause_s(self, error: StockadeError) -> float:
        """Seconds to sleep before the next attempt. Raises ``error``, the last attempt's, if no attempt follows: the
        refusal concerns the request itself, or the patience ends before the next attempt.
        """
        self._attempts += 1
        now_s = time.monotonic()
        try:
            pause_s = pause_before_next(self._config, self._attempts, error, self._call.ends_s - now_s)
        finally:
            del error  # if it is raised, its traceback refers to this frame: a reference cycle
        if not self._call.is_told and now_s >= self._call.due_s:
            self._call.is_told = True
            _log.warning(warning(self._call, 0, now_s))
        return pause_s

    def answered(self) -> None:
        """Note that the call has its answer; the log says so if it has the warning."""
        if self._call.is_told:
            _log.info(answered_late(self._call, time.monotonic()))
