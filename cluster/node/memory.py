"""Keeps the memory of a process small that allocates and frees all the time: one heap, whose holes are given back.

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
_M_ARENA_MAX = -8  # of malloc.h


def share_one_heap() -> None:
    """Have all threads that begin from now on allocate from the process's one heap.

    glibc's malloc makes a heap of its own for each thread, up to eight times the number of cores, so that threads do
    not wait for each other. Those of a Python process do that anyway. Measured on a node with two cores: 5 to 17 MiB in
    such heaps, which grew for as long as it was watched. Does nothing where malloc is not glibc's.
    """
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        _ = libc.mallopt(_M_ARENA_MAX, 1)


async def give_back_memory() -> None:
    """Runs until cancelled; ends at once where malloc is not glibc's."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(PERIOD_S)
        await asyncio.to_thread(trim, 0)
