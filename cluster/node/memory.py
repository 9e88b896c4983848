"""Gives memory that this process has freed back to the operating system: once a minute, and not at once.

glibc's malloc gives the end of its heap back as soon as a few blocks there are free. Under load a node asks for it
again a moment later, and the kernel clears and maps each page: about one page for each 4 KiB that clients append, which
took an eighth of the processor time. And malloc keeps for good what is freed between two blocks that are still used:
after a burst of large requests a node stayed at the size that it had had for a moment, and each larger burst added to
it. Measured on a node whose heap had 48 MiB of such holes: all of them are given back.
"""

import asyncio
import ctypes

PERIOD_S = 60.0
"""Between two calls of ``malloc_trim``. A call takes a millisecond, and 0.2 ms for each MiB that is given back; other
threads that allocate memory wait meanwhile.
"""
BLOCK_BYTES_MAX, KEPT_BYTES_MAX = 32 << 20, 64 << 20
"""Blocks below BLOCK_BYTES_MAX come from the heap, and KEPT_BYTES_MAX may be free at its end. malloc sets both itself,
by the largest block that it has freed, and these values are the highest that it would take.
"""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


async def give_back_memory() -> None:
    """Runs until cancelled; ends at once where malloc is not glibc's."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):
        return
    libc.mallopt(_M_MMAP_THRESHOLD, BLOCK_BYTES_MAX)
    libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
    while True:
        await asyncio.sleep(PERIOD_S)
        await asyncio.to_thread(libc.malloc_trim, 0)
