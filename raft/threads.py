"""Work that a cancelled caller waits for: a thread goes on when the task that waits for it is cancelled."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, TypeVarTuple

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")


async def to_its_end(work: asyncio.Future[_Result]) -> _Result:
    """The result of ``work``. A cancelled caller waits until the work is done, however often it is cancelled: the
    caller holds what the work needs, such as a lock.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        raise


async def in_thread(work: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
    """The result of ``work``, which runs in a thread. A cancelled caller waits for its end: when a node has stopped,
    nothing of it may write to its folder any more, since its next process may run.
    """
    return await to_its_end(asyncio.ensure_future(asyncio.to_thread(work, *arguments)))
