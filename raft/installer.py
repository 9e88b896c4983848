"""Copies checkpoints from other nodes, for groups that lack entries which are gone everywhere.

Nothing counts before all of it is here, checked and on disk: until then the group stays what it was, and goes on. What
fails is begun anew when the leader offers its checkpoint again.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from .calls import CallFailed, CallUnknown
from .checkpoints import Checkpoint, decode
from .group import Group
from .keeper import Keeper, Kept
from .machine import CheckpointedMachine, FileExtent, ImageDamaged
from .offers import digest
from .pulls import CHECKPOINT, PIECE_BYTES, Ask, AskDigest, AskPiece, Offered, Question, Release, decode_offered, encode
from .wal_files import sync_directory, write_all

PIECES_IN_FLIGHT = 4
COPIES_MAX = 2
"""Groups copied at a time. So a node never holds more than COPIES_MAX * PIECES_IN_FLIGHT pieces."""
STATE_BYTES_MAX = 1 << 30
"""Longest file of a checkpoint, which has to be in memory as a whole."""
CALL_TIMEOUT_S = 10.0
TRIES = 3
PAUSE_S = 0.5
"""Between a failure and the next attempt."""

_log = logging.getLogger(__name__)
Call = Callable[[str, bytes, float], Awaitable[bytes]]


class CopyFailed(Exception):
    """What came is not what was asked for, or is of no use any more."""


class Installer:
    """``call`` asks another node's Offers. A failing disk stops the node, by ``fail``."""

    def __init__(
        self, keeper: Keeper, groups: Mapping[int, Group], call: Call, fail: Callable[[BaseException], None]
    ) -> None:
        self._keeper = keeper
        self._groups = groups
        self._call = call
        self._fail = fail
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(COPIES_MAX)

    def fetch(self, group_id: int, node_id: str, index: int) -> None:
        """Begin to copy a group's checkpoint, at ``index`` or beyond, unless that is under way."""
        if group_id not in self._tasks:
            task = self._tasks[group_id] = asyncio.create_task(self._fetch(group_id, node_id, index))
            task.add_done_callback(lambda _: self._tasks.pop(group_id))

    async def give_up(self, group_id: int) -> None:
        """Copy nothing for this group any more."""
        task = self._tasks.get(group_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def stop(self) -> None:
        """Give up whatever is under way."""
        for group_id in list(self._tasks):
            await self.give_up(group_id)

    async def _fetch(self, group_id: int, node_id: str, index: int) -> None:
        try:
            async with self._slots:
                group, kept = self._groups.get(group_id), self._keeper.kept.get(group_id)
                if group is not None and kept is not None:
                    await _Copy(self._keeper, group, kept, partial(self._ask, node_id)).run(index)
        except (ConnectionError, TimeoutError, CallFailed, CopyFailed, ImageDamaged, msgspec.MsgspecError) as error:
            _log.warning("group %d: copying a checkpoint of %s failed: %s", group_id, node_id, error)
            await asyncio.sleep(PAUSE_S)
        except Exception as error:
            self._fail(error)

    async def _ask(self, node_id: str, question: Question) -> bytes:
        for _ in range(0 if isinstance(question, Release) else TRIES - 1):
            try:
                return await self._call(node_id, encode(question), CALL_TIMEOUT_S)
            except CallUnknown:
                continue
        return await self._call(node_id, encode(question), CALL_TIMEOUT_S)


class _Copy:
    """One attempt."""

    def __init__(self, keeper: Keeper, group: Group, kept: Kept, ask: Callable[[Question], Awaitable[bytes]]) -> None:
        assert isinstance(kept.machine, CheckpointedMachine)
        self._keeper = keeper
        self._group = group
        self._kept = kept
        self._machine = kept.machine
        self._ask = ask
        self._may_count = False

    async def run(self, index: int) -> None:
        """Copy, check, install."""
        offered = decode_offered(await self._ask(Ask(self._group.group_id, index)))
        try:
            if offered.index < index or offered.size > STATE_BYTES_MAX:
                raise CopyFailed(f"a checkpoint at {offered.index} of {offered.size} bytes was offered")
            await self._take(await self._checkpoint(offered))
        except Exception:
            await self._release(offered.index)
            raise
        await self._release(offered.index)

    async def _release(self, index: int) -> None:
        """Others wait for what is held for this copy. If it cannot be said, it is given up when nobody asks."""
        with suppress(ConnectionError, TimeoutError, CallFailed):
            await self._ask(Release(self._group.group_id, index))

    async def _take(self, checkpoint: Checkpoint) -> None:
        group_id, store = self._group.group_id, self._keeper.store
        generation = self._kept.next_generation()
        directory = await self._keeper.run(partial(store.begin, group_id, generation))
        try:
            for extent in checkpoint.files:
                await self._file(checkpoint, extent, directory)
            await self._keeper.run(partial(self._verify, checkpoint, directory))
            async with self._keeper.lock:
                await self._install(msgspec.structs.replace(checkpoint, generation=generation), directory)
        finally:
            if not self._may_count:  # the next attempt has a folder of its own
                await self._keeper.run(partial(shutil.rmtree, directory, ignore_errors=True))
        _log.info("group %d: took in a checkpoint at %d", group_id, checkpoint.index)

    async def _checkpoint(self, offered: Offered) -> Checkpoint:
        group_id = self._group.group_id
        content = bytearray(offered.size)

        async def put(position: int, data: bytes) -> None:
            content[position : position + len(data)] = data

        await self._pieces(offered.index, FileExtent(CHECKPOINT, offered.size), put)
        try:
            checkpoint = decode(content)
        except (ValueError, msgspec.DecodeError) as error:
            raise CopyFailed(f"the checkpoint came damaged: {error}") from error
        names = [extent.name for extent in checkpoint.files]
        is_fine = (checkpoint.group_id, checkpoint.index) == (group_id, offered.index)
        if not is_fine or any(Path(name).name != name for name in names):
            raise CopyFailed(f"the checkpoint is one of group {checkpoint.group_id} at {checkpoint.index}")
        return checkpoint

    async def _file(self, checkpoint: Checkpoint, extent: FileExtent, directory: Path) -> None:
        """Have a file in ``directory``: the very bytes that are here already, or those of the other node."""
        here = self._keeper.store.files(self._group.group_id, self._kept.generation) / extent.name
        if extent.is_sealed and await self._keeper.run(partial(_has_size, here, extent.size)):
            theirs = await self._ask(AskDigest(checkpoint.group_id, checkpoint.index, extent.name))
            if await self._keeper.run(partial(_link_if_same, here, extent.size, theirs, directory / extent.name)):
                return
        fd = os.open(directory / extent.name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:

            async def put(position: int, data: bytes) -> None:
                await self._keeper.run(partial(write_all, fd, [data], position))

            await self._pieces(checkpoint.index, extent, put)
        finally:
            await self._keeper.run(partial(os.close, fd))

    async def _pieces(self, index: int, extent: FileExtent, put: Callable[[int, bytes], Awaitable[None]]) -> None:
        """Fetch all bytes of a file, few at a time, and ``put`` them where they belong."""
        positions = iter(range(0, extent.size, PIECE_BYTES))

        async def fetch() -> None:
            for position in positions:
                data = await self._ask(AskPiece(self._group.group_id, index, extent.name, position))
                if len(data) != min(PIECE_BYTES, extent.size - position):
                    raise CopyFailed(f"{len(data)} bytes of {extent.name!r} came at {position}")
                await put(position, data)

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(PIECES_IN_FLIGHT):
                    tasks.create_task(fetch())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    def _verify(self, checkpoint: Checkpoint, directory: Path) -> None:
        """Check all bytes, and make them durable. Raises ImageDamaged or OSError."""
        self._machine.inspect(directory, checkpoint.state, checkpoint.files)
        for extent in checkpoint.files:
            fd = os.open(directory / extent.name, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        sync_directory(directory)

    async def _install(self, checkpoint: Checkpoint, directory: Path) -> None:
        """Let it count: on disk first, then in the group. The keeper's lock is held."""
        keeper, group_id = self._keeper, self._group.group_id
        await keeper.log.all_durable()  # a checkpoint beside a log that never held anything is refused
        if keeper.kept.get(group_id) is not self._kept or checkpoint.index <= self._group.commit_index:
            raise CopyFailed("the group went on without it")
        self._may_count = True
        await keeper.run(partial(keeper.store.write, checkpoint))
        if not self._group.install(checkpoint, directory):
            # The group got there by itself meanwhile. The files that it works on have to be those that count.
            self._kept.stale.append(directory)
            self._kept.make_due()
            return
        self._kept.stale.append(keeper.store.files(group_id, self._kept.generation))
        keeper.counts(group_id, checkpoint)


def _has_size(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size == size


def _link_if_same(here: Path, size: int, theirs: bytes, there: Path) -> bool:
    try:
        if digest(here, size) != theirs:
            return False
        os.link(here, there)
    except FileNotFoundError:  # the running machine has removed it meanwhile
        return False
    return True
