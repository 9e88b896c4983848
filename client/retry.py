"""When to repeat, and after how long a pause. Pure; the waiting is done by the callers."""

from ..partition.errors import StockadeError
from .config import ClientConfig

_ABOUT_THE_MOMENT = (421, 429)


def is_momentary(error: StockadeError) -> bool:
    """Whether the refusal is about this moment (no leader, too busy, no answer), not about what was asked.

    Such a request may be repeated, when repeating it is safe. Other retriable refusals (somebody else has the slot, no
    such topic) are answers, for the caller to decide about; only the delivery of a batch waits for them to pass.
    """
    return error.retriable and (error.http_status in _ABOUT_THE_MOMENT or error.http_status >= 500)


def backoff_s(config: ClientConfig, attempts: int, error: StockadeError) -> float:
    """Seconds to wait after ``attempts`` (1 or more) failed: doubled each time up to the maximum, or as asked for."""
    doubled = config.retry_backoff_ms << min(attempts - 1, 16)
    wished: int = error.fields.get("retry_after_ms") or 0
    return max(min(doubled, config.retry_backoff_ms_max), wished) / 1000
