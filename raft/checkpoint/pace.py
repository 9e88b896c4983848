"""The pace of copies: a bound on the bytes that they take in a second, so that a node has time for its clients."""

import asyncio

PACED_S_MAX = 5.0
"""The longest wait of a piece for its turn: the asking node must not take the answer for lost. So the bound of a Pace
always holds only if it lets through, in this time, all pieces that the copies of a few nodes ask for at once.
"""


class Pace:
    """Bounds the bytes of pieces that a node sends, or receives, in a second. Pieces take turns."""

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
