"""The receiver of checkpoints: it copies those of other nodes, by questions (questions.py), and installs them.

A node copies a checkpoint for a group that lacks entries which the leader's log no longer holds: the checkpoint's own
file first, then those of the machine, in pieces. A copy is installed after all of it is here, verified and on disk;
until then the group goes on with its old state. After a failure, and a pause, the leader's next offer begins a new
copy.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...partition.log.fsutil import open_file, sync, sync_directory, write_all_at
from ...partition.log.space import with_space
from ..core.group import Group
from ..machine import FileExtent, ImageDamaged
from ..net.rpc import CallFailed, CallUnknown
from ..threads import to_its_end
from .digests import Digests
from .group_storage import GroupStorage, OpenGroup
from .questions import (
    CHECKPOINT,
    FOR_COPIES,
    PIECE_BYTES,
    FetchCheckpoint,
    FetchDigest,
    FetchPiece,
    Offered,
    Question,
    Release,
    decode_offered,
    encode,
)
from .rate_limiter import RateLimiter
from .store import Checkpoint, decode

PIECES_IN_FLIGHT = 4
COPIES_MAX = 2
"""Most groups that a node copies at a time. So it has COPIES_MAX * PIECES_IN_FLIGHT pieces in memory at most."""
STATE_BYTES_MAX = 1 << 30
"""Longest own file of a checkpoint, which a node has in memory as a whole."""
CALL_TIMEOUT_S = 10.0
TRIES = 3
PAUSE_S = 0.5
"""Time after a failed copy of a group in which no new one of it begins."""
NO_ROOM_PAUSE_S = 30.0
"""The same time after a copy that the disk had no room for."""
DAMAGED_PAUSE_S_MAX = 300.0
"""The longest pause after damaged copies from one node. The pause begins with PAUSE_S and doubles with each damaged
copy in a row: most often that node's own files are damaged.
"""

_log = logging.getLogger(__name__)
Call = Callable[[str, bytes, bytes, float], Awaitable[bytes]]
"""Transport.call."""


class CopyFailed(Exception):
    """A copy failed: a question was not answered, an answer does not fit its question, or the group does not need the
    checkpoint any more. Another attempt may succeed.
    """


class NoRoom(CopyFailed):
    """The disk has no room for the files of a checkpoint."""


class Damaged(NamedTuple):
    """The number of copies of a group's checkpoint from ``node_id`` that arrived damaged in a row. No further copy from
    this node begins before ``until`` (loop time).
    """

    node_id: str
    times: int
    until: float


NONE_DAMAGED = Damaged("", 0, 0.0)


class CheckpointReceiver:
    """Copies checkpoints of other nodes, at most one of each group and COPIES_MAX at a time.

    ``call`` asks another node's CheckpointSender. ``fail`` stops the node when its disk fails. ``room`` returns how
    many bytes copies may take: a copy that does not fit would fill the disk, be given up, and begin again.
    """

    def __init__(
        self,
        storage: GroupStorage,
        groups: Mapping[int, Group],
        call: Call,
        room: Callable[[], float],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._storage = storage
        self._groups = groups
        self._call = call
        self._room = room
        self._fail = fail
        self._is_full = self._is_stopped = False
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(COPIES_MAX)
        self.rate_limiter: RateLimiter = RateLimiter()
        self._taken: dict[int, int] = {}  # bytes of the copies under way, by group
        self._damaged: dict[int, Damaged] = {}  # by group

    def fetch(self, group_id: int, node_id: str, index: int) -> None:
        """Begin to copy a group's checkpoint, at ``index`` or beyond, from ``node_id``. Does nothing while a copy of
        the group is under way, while the disk is full, in the pause after a damaged copy from this node, and after
        ``stop``.
        """
        damaged = self._damaged.get(group_id, NONE_DAMAGED)
        is_pausing = damaged.node_id == node_id and asyncio.get_running_loop().time() < damaged.until
        if group_id not in self._tasks and not (self._is_full or self._is_stopped or is_pausing):
            task = self._tasks[group_id] = asyncio.create_task(self._fetch(group_id, node_id, index))
            task.add_done_callback(lambda _: self._tasks.pop(group_id))

    async def cancel(self, group_id: int) -> None:
        """Cancel the copy of this group, and wait for its end."""
        self._damaged.pop(group_id, None)
        task = self._tasks.get(group_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def stop(self) -> None:
        """Cancel all copies, and begin none from now on: leaders go on to offer theirs."""
        self._is_stopped = True
        for group_id in list(self._tasks):
            await self.cancel(group_id)

    def set_full(self, *, is_full: bool) -> None:
        """Set whether the disk has no room for copies. If so, the copies under way are cancelled and their files
        removed, except those of a copy that is being installed: it takes no more room, and frees older files. May be
        called repeatedly.
        """
        self._is_full = is_full
        for task in self._tasks.values() if is_full else ():
            if not task.cancelling():  # a second cancellation would interrupt its cleaning up
                task.cancel()

    async def _fetch(self, group_id: int, node_id: str, index: int) -> None:
        try:
            async with self._slots:
                group, open_group = self._groups.get(group_id), self._storage.open_groups.get(group_id)
                if group is not None and open_group is not None:
                    ask, take = partial(self._ask, node_id), partial(self._take, group_id)
                    await CheckpointCopy(self._storage, group, open_group, ask, take).run(index)
            self._damaged.pop(group_id, None)
        except ImageDamaged as error:
            pause_s = self._came_damaged(group_id, node_id)
            text = "group %d: the copy of a checkpoint of %s is damaged: %s. The next one from there begins in %g s"
            _log.error(text, group_id, node_id, error, pause_s)
        except (CopyFailed, msgspec.MsgspecError) as error:
            _log.warning("group %d: copying a checkpoint of %s failed: %s", group_id, node_id, error)
            await asyncio.sleep(NO_ROOM_PAUSE_S if isinstance(error, NoRoom) else PAUSE_S)
        except Exception as error:
            self._fail(error)
        finally:
            self._taken.pop(group_id, None)

    def _came_damaged(self, group_id: int, node_id: str) -> float:
        """Note that a copy from a node arrived damaged. Returns the seconds in which no further copy from that node
        begins.
        """
        before = self._damaged.get(group_id, NONE_DAMAGED)
        times = before.times + 1 if before.node_id == node_id else 1
        pause_s = min(PAUSE_S * 2.0 ** min(times - 1, 30), DAMAGED_PAUSE_S_MAX)
        self._damaged[group_id] = Damaged(node_id, times, asyncio.get_running_loop().time() + pause_s)
        return pause_s

    def _take(self, group_id: int, size: int) -> None:
        """Reserve ``size`` bytes for a copy. Raises NoRoom unless the disk has them, beside the copies under way."""
        room = self._room() - sum(self._taken.values())
        if size > room:
            raise NoRoom(f"it takes {size} bytes, and the disk has room for {max(0, int(room))}")
        self._taken[group_id] = size

    async def _ask(self, node_id: str, question: Question) -> bytes:
        """The answer to a question. Raises CopyFailed, also where a call times out: a TimeoutError would look like an
        error of this node's disk (ETIMEDOUT).
        """
        if isinstance(question, FetchPiece):
            await self.rate_limiter.take(PIECE_BYTES)
        tries_left = 1 if isinstance(question, Release) else TRIES
        while True:
            tries_left -= 1
            try:
                return await self._call(node_id, FOR_COPIES, encode(question), CALL_TIMEOUT_S)
            except (ConnectionError, TimeoutError, CallFailed) as error:
                if not tries_left or not isinstance(error, CallUnknown):
                    raise CopyFailed(str(error)) from error


class CheckpointCopy:
    """One attempt to copy and install a checkpoint. ``take`` is called with the bytes that the copy adds to the disk,
    and raises NoRoom if they do not fit.
    """

    def __init__(
        self,
        storage: GroupStorage,
        group: Group,
        open_group: OpenGroup,
        ask: Callable[[Question], Awaitable[bytes]],
        take: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._storage = storage
        self._group = group
        self._open_group = open_group
        self._machine = open_group.machine
        self._ask = ask
        self._take = take

    async def run(self, index: int) -> None:
        """Copy the checkpoint at ``index``, or a newer one, and install it."""
        group_id, failure = self._group.group_id, None
        offered = decode_offered(await self._ask(FetchCheckpoint(group_id, index)))
        try:
            if offered.index < index or offered.size > STATE_BYTES_MAX:
                raise CopyFailed(f"a checkpoint at {offered.index} of {offered.size} bytes was offered")
            await self.complete(await self._fetch_checkpoint(offered))
        except Exception as error:
            failure = error
        # Make room at the sender, which holds few checkpoints at a time. Otherwise it drops them when idle.
        with suppress(CopyFailed):
            await self._ask(Release(group_id, offered.index, isinstance(failure, ImageDamaged)))
        if failure is not None:
            raise failure

    async def complete(self, checkpoint: Checkpoint) -> None:
        """Copy the checkpoint's files, verify and install it: on disk first, then in the group."""
        group_id, storage, open_group = self._group.group_id, self._storage, self._open_group
        here = storage.store.files(group_id, open_group.generation)  # the folder that the running machine works on
        self._take(await storage.run(partial(_new_bytes, checkpoint.files, here)))
        open_group.newest_generation = generation = max(open_group.newest_generation, open_group.generation) + 1
        directory = storage.store.files(group_id, generation)
        is_written = False  # from then on the checkpoint on disk may name this copy's files, so they must stay
        try:
            await storage.run(partial(storage.store.begin, group_id, generation))
            for extent in checkpoint.files:
                await self._fetch_file(checkpoint, extent, here / extent.name, directory)
            await storage.run(partial(self._verify, checkpoint, directory))
            async with storage.lock:
                await storage.log.all_durable()  # a start refuses a checkpoint beside a log that never held a record
                is_open = storage.open_groups.get(group_id) is open_group
                if not is_open or checkpoint.index <= self._group.commit_index:
                    raise CopyFailed("the group went on without it")
                checkpoint = msgspec.structs.replace(checkpoint, generation=generation)
                is_written = True
                await to_its_end(asyncio.ensure_future(self._install(checkpoint, directory)))
        finally:
            if not is_written:  # nothing names this folder, and the next attempt makes another one
                await storage.run(partial(shutil.rmtree, directory, ignore_errors=True))
        _log.info("group %d: installed a checkpoint at %d", group_id, checkpoint.index)

    async def _install(self, checkpoint: Checkpoint, directory: Path) -> None:
        """Install the checkpoint on disk, then in the group. A cancellation does not interrupt it: between the two, the
        checkpoint's files would stay on disk beside those that the group works on.
        """
        group_id, storage, open_group = self._group.group_id, self._storage, self._open_group
        is_installed = False
        try:
            await storage.run(partial(storage.store.write, checkpoint))
            is_installed = self._group.install(checkpoint, directory)
        finally:
            if not is_installed:
                # The write failed, or the group has applied these entries by itself meanwhile. Its machine works on
                # other files than the checkpoint on disk may name now, so the group has to take a checkpoint of its
                # own.
                open_group.stale.append(directory)
                open_group.make_due()
        if is_installed:
            open_group.stale.append(storage.store.files(group_id, open_group.generation))
            storage.in_force(group_id, checkpoint)

    async def _fetch_checkpoint(self, offered: Offered) -> Checkpoint:
        group_id = self._group.group_id
        content = bytearray(offered.size)
        await self._fetch_pieces(offered.index, FileExtent(CHECKPOINT, offered.size), content)
        try:
            checkpoint = decode(content)
        except (ValueError, msgspec.DecodeError) as error:
            raise ImageDamaged(f"the checkpoint's own file: {error}") from error
        if (checkpoint.group_id, checkpoint.index) != (group_id, offered.index):
            raise CopyFailed(f"the checkpoint is one of group {checkpoint.group_id} at {checkpoint.index}")
        for name in (extent.name for extent in checkpoint.files):
            if Path(name).name != name or name in (CHECKPOINT, ".."):
                raise CopyFailed(f"the checkpoint names a file {name!r}")
        return checkpoint

    async def _fetch_file(self, checkpoint: Checkpoint, extent: FileExtent, here: Path, directory: Path) -> None:
        """Get a file into ``directory``: as a hard link if the file ``here`` has the same bytes, else by a copy."""
        if extent.is_sealed and await self._storage.run(partial(_has_size, here, extent.size)):
            theirs = await self._ask(FetchDigest(checkpoint.group_id, checkpoint.index, extent.name))
            there, digests = directory / extent.name, self._storage.digests
            if await self._storage.run(partial(_link_if_same, digests, here, extent.size, theirs, there)):
                return
        fd = open_file(directory / extent.name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            await self._fetch_pieces(checkpoint.index, extent, fd)
        finally:
            await self._storage.run(partial(os.close, fd))

    async def _fetch_pieces(self, index: int, extent: FileExtent, there: bytearray | int) -> None:
        """Fetch all bytes of a file, PIECES_IN_FLIGHT pieces at a time, into memory or a file (its descriptor)."""
        positions = iter(range(0, extent.size, PIECE_BYTES))

        async def fetch() -> None:
            for position in positions:
                data = await self._ask(FetchPiece(self._group.group_id, index, extent.name, position))
                if len(data) != min(PIECE_BYTES, extent.size - position):
                    raise CopyFailed(f"{len(data)} bytes of {extent.name!r} came at {position}")
                if isinstance(there, int):
                    await self._storage.run(partial(write_all_at, there, data, position))
                else:
                    there[position : position + len(data)] = data

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(PIECES_IN_FLIGHT):
                    tasks.create_task(fetch())
        except ExceptionGroup as failed:
            own = (error for error in failed.exceptions if not isinstance(error, CopyFailed))  # of this node's disk
            raise next(own, failed.exceptions[0]) from None

    def _verify(self, checkpoint: Checkpoint, directory: Path) -> None:
        """Verify the state and all files of a copy, and make them durable. Blocks. Raises ImageDamaged or OSError."""
        self._machine.inspect(directory, checkpoint.state, checkpoint.files)
        for extent in checkpoint.files:
            fd = open_file(directory / extent.name, os.O_RDONLY)
            try:
                sync(fd)
            finally:
                os.close(fd)
        sync_directory(directory)


def _new_bytes(files: Sequence[FileExtent], here: Path) -> int:
    """The bytes of those files that cannot be hard links to files in ``here``. Blocks."""
    return sum(each.size for each in files if not (each.is_sealed and _has_size(here / each.name, each.size)))


def _has_size(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size == size


def _link_if_same(digests: Digests, here: Path, size: int, theirs: bytes, there: Path) -> bool:
    try:
        if digests.of(here, size) != theirs:
            return False
        with_space(partial(os.link, here, there))
    except FileNotFoundError:  # the running machine has removed the file meanwhile
        return False
    return True
