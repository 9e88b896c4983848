"""Leases, which a session holds until they are lost: the base of fences (session.py), and ownerships of resources."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Generic, Self, TypeVar

from ...partition.api.ownership import OwnResult, Resource
from ...partition.errors import InvalidRequest, NotOwner, StockadeError

_log = logging.getLogger(__name__)


class HeldLease:
    """A lease that a session holds until ``lost`` is set; then ``error`` says why. A lost lease stays lost."""

    def __init__(self) -> None:
        self.lost: asyncio.Event = asyncio.Event()
        self.error: StockadeError | None = None
        self._watchers: list[Callable[[StockadeError], None]] = []
        self._decided: asyncio.Event | None = None
        self._successor: Self | None = None
        self._end: StockadeError | None = None

    async def again(self) -> Self:
        """Wait until the lease is lost and acquired again (``reacquire``); returns the lease that replaces it.

        Raises the reason when that is impossible, and InvalidRequest without ``reacquire``.
        """
        if self._decided is None:
            raise InvalidRequest("reacquire: not given, so a lost lease is not acquired again")
        await self._decided.wait()
        if self._successor is None:
            assert self._end is not None
            raise self._end
        return self._successor

    @property
    def end(self) -> StockadeError | None:
        """Why neither this lease nor one that has replaced it is in force; None while one is, or may be acquired."""
        lease = self
        while lease._successor is not None:
            lease = lease._successor
        return lease.error if lease._decided is None else lease._end

    def expect_successor(self) -> None:
        """Note that the lease will be acquired again when it is lost: ``again`` waits for that."""
        self._decided = asyncio.Event()

    def succeeded(self, successor: Self | None, end: StockadeError | None) -> None:
        """Note that ``successor`` replaces the lost lease; None: none will, for the reason ``end``."""
        assert self._decided is not None
        self._successor, self._end = successor, end
        self._decided.set()

    def on_lost(self, watcher: Callable[[StockadeError], None]) -> None:
        """Call ``watcher`` with the error, once, when the lease is lost; at once if it is lost already. Exceptions of
        the watcher are logged.
        """
        if self.error is None:
            self._watchers.append(watcher)
        else:
            self._tell(watcher, self.error)

    def forget(self, watcher: Callable[[StockadeError], None]) -> None:
        """Undo one ``on_lost``; does nothing after the loss."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def lose(self, error: StockadeError) -> None:
        """Set ``lost`` and call the watchers. Only the first call has an effect."""
        if self.error is not None:
            return
        self.error = error
        self.lost.set()
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            self._tell(watcher, error)

    def _tell(self, watcher: Callable[[StockadeError], None], error: StockadeError) -> None:
        try:
            watcher(error)
        except (Exception, asyncio.CancelledError):  # a future that the watcher reads was cancelled, not this task
            _log.exception("a watcher of %r failed; it is lost all the same", self)

    async def release(self) -> None:
        """Give the lease up; another session can have it then."""
        raise NotImplementedError

    def guard(self) -> "HeldGuard[Self]":
        """``async with fence.guard():`` cancels the block when the lease is lost, and raises the reason."""
        return HeldGuard(self)


H = TypeVar("H", bound=HeldLease)


class HeldGuard(Generic[H]):
    """A block of work that ends when a lease is lost, as ``asyncio.timeout`` ends one when time is over.

    The cancellation only saves work that would be refused: safety comes from the log, or another store that gets the
    fencing token, which refuses an old one.
    """

    def __init__(self, lease: H) -> None:
        self._lease = lease
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._is_hit = False

    async def __aenter__(self) -> H:
        self._task = asyncio.current_task()
        assert self._task is not None
        if self._lease.error is not None:
            raise self._lease.error
        self._cancelling = self._task.cancelling()
        self._lease.on_lost(self._cancel)
        return self._lease

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        task, self._task = self._task, None
        self._lease.forget(self._cancel)
        if not self._is_hit:
            return
        assert task is not None
        if kind is not asyncio.CancelledError:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # the block ended before the cancellation arrived: let it arrive here
        is_ours = task.uncancel() <= self._cancelling
        if is_ours and (kind is None or kind is asyncio.CancelledError):
            assert self._lease.error is not None
            raise self._lease.error from error

    def _cancel(self, _: StockadeError) -> None:
        if self._task is not None:
            self._is_hit = True
            self._task.cancel()


ASK_AGAIN_S = 0.5
"""Pause between two claims while another session owns the resource, in seconds."""


class Ownership(HeldLease):
    """A resource of a group that a session owns, until ``lost`` is set; then ``error`` says why.

    ``fence_epoch`` is a fencing token for other stores: it grows with every owner. ``generation``: the resource's
    generation after the claim. ``async with owned.guard():`` ends the block with the ownership.
    """

    def __init__(self, group: str, owned: OwnResult, release: "Callable[[Ownership], Awaitable[None]]") -> None:
        super().__init__()
        self.group: str = group
        self.resource: str = owned.resource
        self.generation: int = owned.generation
        self.fence_epoch: int = owned.fence_epoch
        self._release = release

    def __repr__(self) -> str:
        state = "owned" if self.error is None else f"lost: {self.error.code}"
        return f"<Ownership: {self.group}/{self.resource}, fence epoch {self.fence_epoch}, {state}>"

    def compare(self, resources: Mapping[str, Resource]) -> None:
        """Lose the ownership when the group's ``resources``, by name, show another owner, now or since the claim."""
        row = resources.get(self.resource)
        if row is None or not row.owned or row.fence_epoch != self.fence_epoch:
            now = row.fence_epoch if row is not None else None
            detail = "another session owns it, or has owned it since"
            self.lose(NotOwner(detail, fence_epoch=now, resource=self.resource, group=self.group))

    async def release(self) -> None:
        """Give the resource up; another session can own it then."""
        await self._release(self)
