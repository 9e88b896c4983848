"""Waiting for what another process does: there is no event to wait for, so it is asked again, up to a bound."""

import asyncio
from collections.abc import Awaitable, Callable

POLL_S = 0.02


class NotInTime(Exception):
    """What was waited for did not come; the message says what."""


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float, what: str) -> None:
    """Return as soon as ``condition`` holds. Raises NotInTime; ``what`` reads like "n1 is not back"."""
    try:
        async with asyncio.timeout(timeout_s):
            while not await condition():  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise NotInTime(f"{what} within {timeout_s:.0f} s") from None
