"""The thread on which the asynchronous twins of blocking objects live, and calls to it from other threads."""

import asyncio
import atexit
import functools
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, TypeVarTuple
from weakref import WeakSet

from ..loop_affinity import LoopAffinity

CALLBACKS_MAX = 64
"""Callbacks that may block, on threads of their own, at a time; further ones wait until one has returned."""
END_TIMEOUT_S = 3.0
"""How long the end of the program waits for all objects that were not closed."""

_log = logging.getLogger(__name__)

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
Args = TypeVarTuple("Args")


class _Call(Generic[T]):
    """A call on the loop's thread, for a caller that may be interrupted at any moment, also while it hands the work
    over. After the handover only the loop's thread knows whether the work has begun, so that thread alone ends it.
    """

    def __init__(
        self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, put_back: Callable[[T], None] | None
    ) -> None:
        self._work = work
        self._loop = loop
        self._put_back = put_back
        self._future: Future[T] = Future()
        self._task: asyncio.Task[T] | None = None
        self._is_given_up = False
        self._ended = threading.Event()
        """Set when the caller has given up, and nothing of the work is left."""

    def result(self, timeout_s: float | None) -> T:
        """Wait for the result of the work. When the wait is interrupted, the work is cancelled."""
        try:
            self._loop.call_soon_threadsafe(self._begin)
            return self._future.result(timeout_s)
        except BaseException:
            self._loop.call_soon_threadsafe(self._give_up)
            if self._put_back is not None:
                self._ended.wait()
            raise

    def _begin(self) -> None:
        if not self._is_given_up:
            self._task = self._loop.create_task(self._work)
            self._task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[T]") -> None:
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            self._future.cancel()
        elif error is not None:
            self._future.set_exception(error)
        else:
            self._future.set_result(task.result())
        if self._is_given_up:
            self._clear(task)

    def _give_up(self) -> None:
        self._is_given_up = True
        if self._task is None:
            self._work.close()
            self._ended.set()
        elif not self._future.done():
            self._task.cancel()
        else:
            self._clear(self._task)

    def _clear(self, task: "asyncio.Task[T]") -> None:
        try:
            if self._put_back is not None and not task.cancelled() and task.exception() is None:
                self._put_back(task.result())
        finally:
            self._ended.set()


class Abortable(Protocol):
    """An asynchronous object that can be stopped at once; one that was stopped before stays as it is."""

    def abort(self) -> Awaitable[None]:
        """Stop."""


class LoopThread:
    """The thread with the event loop: a daemon, started at the first use. It stays in the process that made it.

    ``started``: what the end of the program aborts, since a daemon ends without a word. Only the loop's tasks use it.
    """

    def __init__(self) -> None:
        self.affinity: LoopAffinity = LoopAffinity()
        self.started: WeakSet[Abortable] = WeakSet()
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._callbacks = asyncio.Semaphore(CALLBACKS_MAX)

    def run(
        self, work: Coroutine[Any, Any, T], timeout_s: float | None = None, put_back: Callable[[T], None] | None = None
    ) -> T:
        """The result of ``work``. When the caller is interrupted (Ctrl-C, timeout), ``work`` is cancelled. If a result
        came at that moment, ``put_back`` gets it on this thread before the caller goes on, which never sees it.

        Raises UsedAfterFork in a forked child, where the thread does not run, and RuntimeError on this thread itself,
        which would wait for itself: in a callback, or where an abandoned iterator is collected.
        """
        try:
            self.affinity.check_process()
            if threading.current_thread() is self._thread:
                raise RuntimeError("a callback on the background thread cannot wait for it: use a thread of your own")
            call = _Call(work, self._running(), put_back)
        except BaseException:
            work.close()
            raise
        return call.result(timeout_s)

    async def apart(self, function: Callable[[*Args], object], *args: *Args) -> None:
        """Call a function of the application, which may block, on a daemon thread of its own; raises what it raises.

        Not on the loop's own pool, which has few threads: the look-up of a node's name needs one of them, and a call
        that blocks in each of them would wait for that look-up.
        """
        loop, callbacks = asyncio.get_running_loop(), self._callbacks
        await callbacks.acquire()
        returned: asyncio.Future[None] = loop.create_future()

        def end(error: Exception | None) -> None:
            callbacks.release()
            if returned.done():
                return  # the wait for it was cancelled
            if error is None:
                returned.set_result(None)
            else:
                returned.set_exception(error)

        def work() -> None:
            error: Exception | None = None
            try:
                function(*args)
            except BaseException as raised:
                error = _of_a_callback(raised)
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(end, error)

        try:
            threading.Thread(target=copy_context().run, args=(work,), name="stockade callback", daemon=True).start()
        except BaseException:
            callbacks.release()
            raise
        await returned

    def stop(self) -> None:
        """End the thread; the next ``run`` starts another one. Tasks that still run there never end."""
        with self._starting:
            loop, self._loop = self._loop, None
            if loop is not None and self._thread is not None:
                loop.call_soon_threadsafe(loop.stop)
                self._thread.join()
                loop.close()

    def end(self) -> None:
        """Abort what was started and not closed, since the program ends: the log tells what it leaves undone."""
        if self._loop is None:
            return

        async def abort() -> None:
            await asyncio.gather(*(each.abort() for each in list(self.started)), return_exceptions=True)

        with suppress(Exception):  # the program ends all the same
            self.run(abort(), END_TIMEOUT_S)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._callbacks = asyncio.Semaphore(CALLBACKS_MAX)
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="stockade.sync", daemon=True)
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped. SystemExit and KeyboardInterrupt in a task end the loop; it is run again then,
    because otherwise every call of the process would wait for ever.
    """
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            _log.exception("the application's code tried to end the background thread, which goes on")
        else:
            return


@dataclass(frozen=True, slots=True)
class Callback:
    """A function of the application that is called on the background thread. `sys.exit` in it counts as any other
    exception, which the twin logs. Two Callbacks are equal when their functions are.
    """

    function: Callable[..., object]

    def __call__(self, *args: object) -> None:
        """Call the function."""
        try:
            self.function(*args)
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError("a callback cannot end the background thread") from error


def _of_a_callback(error: BaseException) -> Exception:
    """An error that a future can take, and that ends no thread and no task."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    taken = RuntimeError(f"a callback raised {error!r}")
    taken.__cause__ = error
    return taken


_shared = LoopThread()


def _forked() -> None:
    global _shared  # noqa: PLW0603  # the parent's thread does not run in the child
    _shared = LoopThread()


os.register_at_fork(after_in_child=_forked)


@atexit.register
def _program_ends() -> None:
    _shared.end()


class Blocking(Generic[A]):
    """An object whose asynchronous twin lives on the thread that all objects of this process share. Thread-safe."""

    def __init__(self, twin: A) -> None:
        self._twin = twin
        self._thread = _shared

    @property
    def twin(self) -> A:
        """The asynchronous twin. Raises UsedAfterFork in a forked child, where no thread runs it."""
        self._thread.affinity.check_process()
        return self._twin

    def _run(
        self, work: Coroutine[Any, Any, T], timeout_s: float | None = None, put_back: Callable[[T], None] | None = None
    ) -> T:
        return self._thread.run(work, timeout_s, put_back)

    def _call(self, work: Callable[[], T]) -> T:
        """Call a function that does not wait, on the thread where the twin lives."""

        async def there() -> T:
            return work()

        return self._run(there())

    def _each(self, items: AsyncIterator[T], put_back: Callable[[T], None] | None = None) -> Iterator[T]:
        """The items, each awaited on the background thread; ``put_back`` gets one that came during an interruption."""

        def put(item: T | object) -> None:
            if put_back is not None and item is not over:
                put_back(item)  # type: ignore[arg-type]  # it is not `over`

        over = object()
        while (item := self._run(_next(items, over), put_back=put)) is not over:
            yield item  # type: ignore[misc]  # it is not `over`

    @property
    def _is_parents(self) -> bool:
        """Whether this object was made in the parent, before a fork: here it can be neither used nor closed."""
        return self._thread.affinity.is_forked


def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Blocking[A], P], T]:
    """The twin's method with its name, parameters, documentation and errors; the call blocks until it is answered."""

    @functools.wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self.twin, *args, **kwargs))

    return call


async def _next(items: AsyncIterator[T], over: object) -> T | object:
    return await anext(items, over)
