"""The rate limit of copies: a bound on their bytes per second, so that a node has time for its clients."""

import asyncio

PACED_S_MAX = 5.0
"""The longest wait of a piece, so that the asking node does not take the answer for lost. The limit is therefore
exceeded if more pieces are asked for at once than it lets through in this time.
"""


class RateLimiter:
    """Limits the bytes per second of the pieces that a node sends, or receives. Pieces go in the order of ``take``."""

    def __init__(self) -> None:
        self.bytes_per_s: int = 0
        """The bound; 0: none."""
        self._free_at = 0.0

    async def take(self, size: int) -> None:
        """Return when a piece of ``size`` bytes may be sent or asked for: after PACED_S_MAX at the latest."""
        if not self.bytes_per_s:
            return
        now = asyncio.get_running_loop().time()
        wait_s = min(max(0.0, self._free_at - now), PACED_S_MAX)
        self._free_at = now + wait_s + size / self.bytes_per_s
        if wait_s:
            await asyncio.sleep(wait_s)
