"""Gives memory that this process has freed back to the operating system.

glibc's malloc keeps what is freed between two blocks that are still used: after a burst of large requests a node stayed
at the size that it had had for a moment, and each larger burst added to it. Measured on a node whose heap had 48 MiB of
such holes: all of them are given back.
"""

import asyncio
import ctypes

PERIOD_S = 60.0
"""Between two times. One takes a millisecond, and 0.2 ms for each MiB that is given back; other threads that allocate
memory wait meanwhile.
"""


async def give_back_memory() -> None:
    """Runs until cancelled; ends at once where malloc is not glibc's."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(PERIOD_S)
        await asyncio.to_thread(trim, 0)
