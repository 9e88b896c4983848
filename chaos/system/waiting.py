"""Waits for a condition in another process by polling, because there is no event to await."""

import asyncio
from collections.abc import Awaitable, Callable

POLL_S = 0.02


class NotInTime(Exception):
    """A condition did not become true in time; the message says which."""


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float, what: str) -> None:
    """Return as soon as ``condition`` holds. Raises NotInTime; ``what`` reads like "n1 is not back"."""
    try:
        async with asyncio.timeout(timeout_s):
            while not await condition():  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise NotInTime(f"{what} within {timeout_s:.0f} s") from None
