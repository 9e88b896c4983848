"""A node that serves from a thread of its own, for tests that are not asynchronous."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stockade.cluster.access.principals import Access

from .conversation import Conversation, nodes


@contextmanager
def serving(
    prepare: Callable[[Conversation], Awaitable[Any]], access: Access | None = None
) -> Iterator[tuple[Conversation, Any]]:
    """A node, and what ``prepare`` made of it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Awaitable[Any]) -> Any:
        async def waited() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(waited(), loop).result(30)

    context = nodes(1, access)
    (node,) = run(context.__aenter__())
    try:
        yield node, run(prepare(node))
    finally:
        run(context.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
