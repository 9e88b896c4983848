"""Takes checkpoints, one at a time, and lets the log's files go that are not needed after them."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from .checkpoints import Checkpoint
from .group import Group
from .keeper import Keeper
from .origin import Captured
from .settings import RaftSettings

_log = logging.getLogger(__name__)


class Checkpointer:
    """A checkpoint of a group is due when it has applied ``checkpoint_bytes`` of commands since the last one, or when
    its entries keep the oldest file of a log that is longer than ``wal_bytes_max``.

    The state is captured on the loop; bytes are made durable in a thread, while the group goes on. A failing disk stops
    the node, by ``fail``; nothing is captured of a node that has stopped (``has_failed``).
    """

    def __init__(
        self,
        groups: Mapping[int, Group],
        settings: RaftSettings,
        fail: Callable[[BaseException], None],
        has_failed: Callable[[], bool],
    ) -> None:
        self._groups = groups
        self._wal_bytes_max = settings.wal_bytes_max
        self._fail = fail
        self._has_failed = has_failed
        self._wanted = asyncio.Event()
        self._seen_bytes = 0
        self._task: asyncio.Task[None] | None = None

    def start(self, keeper: Keeper) -> None:
        """Work for this keeper until stopped."""
        self._keeper = keeper
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Take no more. What is being written is written to its end."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def due(self) -> None:
        """There may be something to do."""
        self._wanted.set()

    def log_moved_on(self) -> None:
        """The log has grown: see whether it is too long. Looked into once for each of its files."""
        disk_bytes = self._keeper.log.disk_bytes
        if disk_bytes > self._wal_bytes_max and disk_bytes != self._seen_bytes:
            self._seen_bytes = disk_bytes
            self._wanted.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                passed: set[int] = set()
                while (group_id := self._next(passed)) is not None:
                    if not await self._take(group_id):
                        passed.add(group_id)
                await self._keeper.release()
        except Exception as error:
            self._fail(error)

    def _next(self, passed: set[int]) -> int | None:
        """The group to do next, None if none is due. Those passed over had nothing new."""
        kept_here = self._keeper.kept.items()
        due = [(kept.applied_bytes, key) for key, kept in kept_here if kept.is_due and key not in passed]
        if due:
            return max(due)[1]
        log = self._keeper.log
        oldest = log.pins_oldest() if log.disk_bytes > self._wal_bytes_max else None
        return None if oldest in passed else oldest

    async def _take(self, group_id: int) -> bool:
        """Take a checkpoint of a group; False if it has nothing new, or none can be taken of it."""
        keeper = self._keeper
        async with keeper.lock:
            captured = self._capture(group_id)
            if captured is None:
                return False
            checkpoint = Checkpoint(
                group_id,
                captured.index,
                captured.term,
                captured.configuration,
                keeper.kept[group_id].generation,
                captured.image.state,
                captured.image.files,
            )

            def write() -> None:
                captured.image.sync()
                keeper.store.write(checkpoint)

            await keeper.run(write)
            keeper.replaced(group_id, checkpoint.index)
            captured.image.stored()
        _log.info("group %d: checkpoint at %d, %d bytes", group_id, checkpoint.index, len(checkpoint.state))
        await keeper.release()
        return True

    def _capture(self, group_id: int) -> Captured | None:
        kept, group = self._keeper.kept.get(group_id), self._groups.get(group_id)
        if kept is None or group is None:
            _log.warning("group %d is not open here, so the log must keep all its entries", group_id)
            return None
        if self._has_failed():
            return None
        kept.applied_bytes = 0
        captured = group.capture() if hasattr(kept, "capture") else None
        return captured if captured is not None and captured.index > kept.journal.origin.index else None
