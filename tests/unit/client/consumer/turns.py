"""Counts how often the event loop runs beside what a test does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def turns_of_the_loop() -> AsyncIterator[list[int]]:
    """In the block, the only number of the list is how often another task has run."""
    turns = [0]

    async def other() -> None:
        while True:
            await asyncio.sleep(0)
            turns[0] += 1

    task = asyncio.create_task(other())
    try:
        yield turns
    finally:
        task.cancel()
