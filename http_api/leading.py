"""Finds the node that leads: here, there, or, while there is none, as soon as there is one.

A leadership that changes, planned or not, costs a request time and not its answer. Only what was surely not proposed is
tried again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..partition.errors import LeaderNotAvailable, NotLeaderOrFollower
from .call import Call, unless_ended

RECHECK_S = 0.1
"""What other nodes learn about leaders, this one is not told: it asks again so often."""
TRIES_PER_S = 2000
"""All waiting requests of a node together try again about so often, but for the first time at once when there is news:
leaders are elected on the same processor.
"""

_T = TypeVar("_T")


async def where_it_is_led(
    call: Call, here: Callable[[], Awaitable[_T]], there: Callable[[NotLeaderOrFollower], Awaitable[_T]]
) -> _T:
    """What ``here`` answers, or ``there`` when another node leads.

    ``here`` raises NotLeaderOrFollower, ``there`` LeaderNotAvailable, only when surely nothing was proposed. Raises
    NotLeaderOrFollower for a request that may not be passed on, and LeaderNotAvailable when the wait was in vain.
    """
    deadline: float | None = None
    pace_s = 0.0
    while True:
        news = call.service.leadership_news
        try:
            return await here()
        except NotLeaderOrFollower as moved:
            if call.is_forwarded or call.stream is not None:
                raise
            elsewhere = moved
        try:
            return await there(elsewhere)
        except LeaderNotAvailable:
            now = asyncio.get_running_loop().time()
            deadline = now + call.context.leader_wait_s if deadline is None else deadline
            if now >= deadline or call.stream is not None or call.context.stopping.done():
                raise
        await unless_ended(call, _pause(call, news, pace_s, deadline - now))
        pace_s = 2 * random.random() * (call.context.waiting + 1) / TRIES_PER_S  # noqa: S311 (spreads)


async def _pause(call: Call, news: int, pace_s: float, left_s: float) -> None:
    call.context.waiting += 1
    try:
        await asyncio.sleep(min(left_s, pace_s))
        await call.service.await_leadership_news(news, min(left_s, RECHECK_S))
    finally:
        call.context.waiting -= 1
