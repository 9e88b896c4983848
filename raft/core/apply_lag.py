"""How far a follower's machine may be behind: with many groups on a node a run of applies costs more than an apply."""

ENTRIES_MAX = 16
BYTES_MAX = 64 << 10
LAG_S = 0.25


class ApplyLag:
    """A follower whose machine may lag (machine.py) applies what is committed when ENTRIES_MAX entries, or BYTES_MAX
    bytes of them, came since it applied last, or LAG_S seconds have passed by the next one. It also applies with every
    message that has no entries, so within a heartbeat of the last ones. A leader applies at once.
    """

    def __init__(self, now: float) -> None:
        self._entries = 0
        self._bytes = 0
        self._applied_at = now

    def add(self, entries: int, size: int) -> None:
        """So many entries, of so many bytes, came."""
        self._entries += entries
        self._bytes += size

    def end(self, now: float) -> None:
        """A run of applies is over."""
        self._entries = self._bytes = 0
        self._applied_at = now

    def is_enough(self, now: float) -> bool:
        """Whether it is time to apply."""
        return self._entries >= ENTRIES_MAX or self._bytes >= BYTES_MAX or now >= self._applied_at + LAG_S
