"""A circuit breaker: after some failures in a row nothing is tried for a while. Pure; the caller has the clock."""

FAILURES_MAX = 3
OPEN_S = 10.0


class Breaker:
    """Open after FAILURES_MAX failures in a row, for OPEN_S; then one try decides (SEMANTICS 9.13)."""

    def __init__(self) -> None:
        self._failures = 0
        self._opens_again_s = 0.0

    def closed_in_s(self, now_s: float) -> float:
        """Seconds until the next try is allowed; 0 when it is allowed now."""
        return max(0.0, self._opens_again_s - now_s) if self._failures >= FAILURES_MAX else 0.0

    def succeeded(self) -> None:
        """A try went well: closed."""
        self._failures = 0

    def failed(self, now_s: float) -> None:
        """A try failed."""
        self._failures += 1
        self._opens_again_s = now_s + OPEN_S
