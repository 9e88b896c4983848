"""Waits, by polling, for what no event tells: a thread, another process, or any state of a node."""

import asyncio
import time
from collections.abc import Callable

POLL_S = 0.005


async def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Return once the condition holds. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


def wait_until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """As ``until``, without an event loop."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s} s")
        time.sleep(POLL_S)
