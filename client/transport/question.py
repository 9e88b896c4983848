"""A query that a client sends to the cluster from time to time, beside the application's calls, one at a time."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from math import inf

from ...partition.errors import StockadeError
from ..errors import ClientClosed, with_fields
from ..retry import is_momentary

AGAIN_AFTER_FAILURE_S = 5.0
"""Least time between a question that the cluster failed to answer and the next one."""

_log = logging.getLogger(__name__)


class Question:
    """``ask`` asks, in a single attempt, and notes the answer. After a failure the client goes on with what it knows.

    ``what``: what the answer tells, for the log. ``again_s``: least time between an answer and the next question.
    The task that asks belongs neither to a call of the application nor to its trace, so a call that waits for the
    answer may be cancelled.
    """

    def __init__(self, what: str, ask: Callable[[], Awaitable[None]], again_s: float) -> None:
        self._what = what
        self._ask = ask
        self._again_s = again_s
        self._task: asyncio.Task[None] | None = None
        self._due_s = -inf
        self._asked_s = -inf

    def put_off(self) -> None:
        """Put the next question off for ``again_s``: the answer has come in another way."""
        self._due_s = time.monotonic() + self._again_s

    def if_due(self) -> None:
        """Begin to ask if a question is due; returns at once."""
        if time.monotonic() >= self._due_s:
            _ = self._begin()

    async def anew(self, pause_s: float = 0.0) -> None:
        """Ask now; returns when a question that began after this call is answered. Raises the refusal. A question that
        began less than ``pause_s`` seconds ago and has ended stands for a new one.
        """
        task = self._task
        if task is not None and not task.done():
            await asyncio.wait([task])
            task = self._begin()
        elif task is None or time.monotonic() >= self._asked_s + pause_s:
            task = self._begin()
        await asyncio.wait([task])
        if task.cancelled():
            raise ClientClosed("the client was closed")
        error = task.exception()
        if error is not None:
            raise with_fields(error) if isinstance(error, StockadeError) else error

    async def close(self) -> None:
        """Cancel the question that is under way."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    def _begin(self) -> "asyncio.Task[None]":
        """The question under way, or a new one."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._asked(), context=Context())
            self._task.add_done_callback(self._answered)
            self._asked_s = time.monotonic()
            self.put_off()
        return self._task

    async def _asked(self) -> None:
        await self._ask()
        self.put_off()

    def _answered(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if isinstance(error, StockadeError) and is_momentary(error):
            self._due_s = time.monotonic() + AGAIN_AFTER_FAILURE_S
        level = logging.INFO if isinstance(error, StockadeError) else logging.ERROR
        _log.log(level, "%s: not known anew: %s", self._what, error)
