"""Which requests are repeated, after which pause, and when the cluster is not asked for a while (a circuit breaker).

Pure: the callers wait, and have the clock.
"""

from ..partition.errors import StockadeError
from .config import ClientConfig

_ABOUT_THE_MOMENT = (421, 429)
AT_ONCE_MS = 1
"""The ``patience_ms`` of a call that makes a single attempt: any pause before a second one is longer."""


def is_momentary(error: StockadeError) -> bool:
    """Whether the refusal concerns this moment (no leader, overload, no answer), not the request itself.

    Such a request is repeated where that is safe. Other retriable refusals (another session holds the slot, no such
    topic) are raised to the caller; only the delivery of a batch is repeated after them.
    """
    return error.retriable and (error.http_status in _ABOUT_THE_MOMENT or error.http_status >= 500)


def backoff_s(config: ClientConfig, attempts: int, error: StockadeError) -> float:
    """Seconds to wait after ``attempts`` (>= 1) failed attempts.

    ``retry_backoff_ms``, doubled each time up to ``retry_backoff_ms_max``; at least the error's ``retry_after_ms``.
    """
    doubled = config.retry_backoff_ms << min(attempts - 1, 16)
    wished: int = error.fields.get("retry_after_ms") or 0
    return max(min(doubled, config.retry_backoff_ms_max), wished) / 1000


def pause_before_next(config: ClientConfig, attempts: int, error: StockadeError, left_s: float) -> float:
    """Seconds to wait before the next attempt of a call. Raises ``error``, the last attempt's, if no attempt follows:
    the error concerns the request itself, or the pause is longer than the ``left_s`` seconds that the call has left.
    """
    pause_s = backoff_s(config, attempts, error)
    if not is_momentary(error) or pause_s > left_s:
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame: a reference cycle
    return pause_s


FAILURES_MAX = 3
"""Failures in a row that open the circuit breaker."""
OPEN_S = 10.0
"""How long the circuit breaker stays open."""


class Breaker:
    """Allows no attempt for OPEN_S after FAILURES_MAX failures in a row; then one attempt decides (SEMANTICS 9.13)."""

    def __init__(self) -> None:
        self._failures = 0
        self._opens_again_s = 0.0

    def closed_in_s(self, now_s: float) -> float:
        """Seconds until the next attempt is allowed; 0: now."""
        return max(0.0, self._opens_again_s - now_s) if self._failures >= FAILURES_MAX else 0.0

    def succeeded(self) -> None:
        """An attempt succeeded."""
        self._failures = 0

    def failed(self, now_s: float) -> None:
        """An attempt failed."""
        self._failures += 1
        self._opens_again_s = now_s + OPEN_S
