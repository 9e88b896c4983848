"""The lease clock of the controller's leader (SEMANTICS 8). Replicas never read it; they obey what it stamped on
commands.
"""

from collections.abc import Callable


class LeaseClock:
    """Now = the replicated clock when this leader first asked in its term, plus its own monotonic time since.

    A time without a leader therefore costs the holders of leases nothing.
    """

    def __init__(self, replicated_ms: Callable[[], int], monotonic: Callable[[], float]) -> None:
        """``replicated_ms`` reads the machine's lease clock, ``monotonic`` is a clock in seconds."""
        self._replicated_ms = replicated_ms
        self._monotonic = monotonic
        self._term = -1
        self._base_ms = 0
        self._started_s = 0.0

    def now_ms(self, term: int) -> int:
        """The lease clock in the term that this node leads."""
        if term != self._term:
            self._term, self._base_ms, self._started_s = term, self._replicated_ms(), self._monotonic()
        return self._base_ms + int((self._monotonic() - self._started_s) * 1000)
