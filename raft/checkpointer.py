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

RECORDS = 16 * 1024
"""After so many records of the log it is seen whether the groups have applied too much together."""
SHARE = 16
"""What has applied less than this part of ``checkpoint_bytes`` is little: with many such groups, checkpoints would cost
more than they save.
"""

_log = logging.getLogger(__name__)


class Checkpointer:
    """A checkpoint of a group is due when it has applied ``checkpoint_bytes`` of commands since the last one, 16 times
    its state if that is more, or when its entries keep the oldest file of a log that is longer than ``wal_bytes_max``.
    When the groups together have applied more than that since their last ones, it is the turn of whichever has applied
    most: so a restart is short, however small their entries. Groups that have applied little neither count for that nor
    are taken.

    Between two checkpoints it syncs what the machines write, a few MiB at a time: one sync of all of it would hold up
    those of the log, and so all appends.

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
        self._heavy_bytes = settings.checkpoint_bytes // SHARE
        self._fail = fail
        self._has_failed = has_failed
        self._wanted = asyncio.Event()
        self._seen_bytes = 0
        self._seen_lsn = 0
        self._warned: set[int] = set()
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
        """The log has grown: see whether it is too long, once for each of its files, and what was applied."""
        log = self._keeper.log
        is_too_long = log.disk_bytes > self._wal_bytes_max and log.disk_bytes != self._seen_bytes
        if is_too_long or log.lsn - self._seen_lsn >= RECORDS:
            self._seen_bytes, self._seen_lsn = log.disk_bytes, log.lsn
            self._wanted.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                passed: set[int] = set()
                while (group_id := self._next(passed)) is not None:
                    passed.add(group_id)  # its turn comes again when the others had theirs
                    await self._take(group_id)
                    await self._sync_early()
                await self._sync_early()
                await self._keeper.release()
        except Exception as error:
            self._fail(error)

    async def _sync_early(self) -> None:
        """Sync what machines have written, so that their checkpoints, and those of others, find little to do."""
        for kept in list(self._keeper.kept.values()):
            if kept.is_unsynced and (sync := kept.begin_sync()) is not None:
                await self._keeper.run(sync)

    def _next(self, passed: set[int]) -> int | None:
        """The group to do next, None if none is due. Those in ``passed`` had their turn."""
        kept_here = [(kept.applied_bytes, key) for key, kept in self._keeper.kept.items() if key not in passed]
        heavy = [(size, key) for size, key in kept_here if size >= self._heavy_bytes]
        is_too_much = sum(size for size, _ in heavy) > self._wal_bytes_max
        due = heavy if is_too_much else [it for it in kept_here if self._keeper.kept[it[1]].is_due]
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
            keeper.replaced(group_id, checkpoint)
            captured.image.stored()
        _log.info("group %d: checkpoint at %d, %d bytes", group_id, checkpoint.index, len(checkpoint.state))
        await keeper.release()
        return True

    def _capture(self, group_id: int) -> Captured | None:
        kept, group = self._keeper.kept.get(group_id), self._groups.get(group_id)
        if kept is None or group is None:
            if group_id not in self._warned:
                _log.warning("group %d is not open here, so the log must keep all its entries", group_id)
                self._warned.add(group_id)
            return None
        if self._has_failed():
            return None
        kept.applied_bytes = 0
        is_new = group.applied_index > kept.journal.origin.index
        return group.capture() if is_new and hasattr(kept, "capture") else None
