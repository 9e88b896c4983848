"""The sender of checkpoints: it answers the questions (questions.py) of the nodes that copy checkpoints of this one.

The sender holds a checkpoint that is being copied by hard links of its files, so that newer checkpoints of the group do
not remove it: until every node that copies it has released it or has begun to copy another one of the group, or no node
has asked about it for IDLE_S. Nodes may copy different checkpoints of one group. Until IDLE_S after the last question
about a checkpoint, the log keeps the entries after it, unless it grows longer than ``wal_bytes_max``. Without these
entries, the copying node would need another checkpoint as soon as its copy is complete.
"""

import asyncio
import logging
import os
from functools import partial
from itertools import count
from pathlib import Path

from ...partition.log.fsutil import open_to_read
from ...partition.log.modes import FOLDER_MODE
from .group_storage import GroupStorage
from .questions import (
    CHECKPOINT,
    PIECE_BYTES,
    FetchCheckpoint,
    FetchDigest,
    FetchPiece,
    NothingHeld,
    Offered,
    Release,
    decode_question,
    encode,
)
from .rate_limiter import RateLimiter
from .store import Checkpoint, remove

IDLE_S = 30.0
"""A held checkpoint is dropped this long after the last question about it."""
HELD_MAX = 8
"""Most checkpoints that a sender holds at a time."""
DAMAGED = (
    "group %d: the checkpoint at %d came damaged to %s, which copied it from here. If that happens again, and to others"
    ", files of this node are damaged: let another node lead the group, then rebuild this one (stockade rebuild)"
)

_log = logging.getLogger(__name__)


class HeldCheckpoint:
    """A checkpoint that is held for other nodes: a folder of hard links to its files, and the nodes that copy it."""

    def __init__(self, folder: Path, checkpoint: Checkpoint, size: int) -> None:
        """``size`` is that of the checkpoint's own file, in bytes."""
        self.folder = folder
        self.index: int = checkpoint.index
        self.sizes: dict[str, int] = {CHECKPOINT: size} | {extent.name: extent.size for extent in checkpoint.files}
        self.used_at: float = 0.0
        self.nodes: set[str] = set()
        """The ids of the nodes that copy the checkpoint."""

    def path(self, name: str) -> Path:
        """The path of a file. Raises NothingHeld for an unknown name: names come from other nodes."""
        if name not in self.sizes:
            raise NothingHeld(f"no file of this checkpoint is called {name!r}")
        return self.folder / "files" / name if name else self.folder / "checkpoint"


class CheckpointSender:
    """Answers the questions of other nodes about this node's checkpoints, and holds those that they copy."""

    def __init__(self, storage: GroupStorage) -> None:
        self.rate_limiter: RateLimiter = RateLimiter()
        self._storage = storage
        self._held: dict[tuple[int, int], HeldCheckpoint] = {}  # by group and index
        self._used_at: dict[tuple[int, int], float] = {}  # when the last question about a checkpoint came, held or not
        storage.copied = self._copied
        self._holding = asyncio.Lock()
        self._numbers = count()

    async def answer(self, node_id: str, payload: bytes) -> bytes:
        """The answer to a question of ``node_id``. Raises NothingHeld or OSError, whose text goes to the other node."""
        question = decode_question(payload)
        match question:
            case FetchCheckpoint(group_id, index):
                return encode(await self._hold(node_id, group_id, index))
            case FetchPiece(group_id, index, name, position):
                held = self._find(group_id, index)
                size = min(PIECE_BYTES, held.sizes.get(name, 0) - position)
                await self.rate_limiter.take(max(0, size))
                return await self._storage.run(partial(read_piece, held.path(name), position, size))
            case FetchDigest(group_id, index, name):
                held = self._find(group_id, index)
                return await self._storage.run(partial(self._storage.digests.of, held.path(name), held.sizes[name]))
            case Release(group_id, index, is_damaged):
                if (group_id, index) in self._held:
                    self._use(group_id, self._held[group_id, index])
                    self._release(node_id, group_id, self._held[group_id, index])
                if is_damaged:
                    _log.warning(DAMAGED, group_id, index, node_id)
                return b""

    async def _hold(self, node_id: str, group_id: int, index: int) -> Offered:
        async with self._holding:
            of_group = [each for (group, _), each in self._held.items() if group == group_id]
            held = next((each for each in reversed(of_group) if each.index >= index), None)
            for given_up in of_group:
                if given_up is not held:
                    self._release(node_id, group_id, given_up)
            if held is None:
                if len(self._held) >= HELD_MAX:
                    raise NothingHeld(f"{HELD_MAX} checkpoints are being copied already")
                async with self._storage.lock:
                    held = await self._storage.run(partial(self._link, group_id, index, next(self._numbers)))
                self._held[group_id, held.index] = held
                asyncio.get_running_loop().call_later(IDLE_S, self._drop_if_idle, group_id, held)
                self._copied()  # forgets old questions, should no release of the log do so
            self._use(group_id, held)
            held.nodes.add(node_id)
            return Offered(held.index, held.sizes[CHECKPOINT])

    def _release(self, node_id: str, group_id: int, held: HeldCheckpoint) -> None:
        """Note that a node does not copy this checkpoint any more; drop it if no other node does."""
        held.nodes.discard(node_id)
        if not held.nodes:
            self._drop(group_id, held)

    def _find(self, group_id: int, index: int) -> HeldCheckpoint:
        held = self._held.get((group_id, index))
        if held is None:
            raise NothingHeld(f"the checkpoint of group {group_id} at {index} is not held any more")
        self._use(group_id, held)
        return held

    def _use(self, group_id: int, held: HeldCheckpoint) -> None:
        held.used_at = self._used_at[group_id, held.index] = asyncio.get_running_loop().time()

    def _copied(self) -> dict[int, int]:
        """By group, the index of the oldest checkpoint about which a question came within IDLE_S."""
        since = asyncio.get_running_loop().time() - IDLE_S
        for key in [key for key, used_at in self._used_at.items() if used_at < since]:
            del self._used_at[key]
        return dict(sorted(self._used_at, reverse=True))

    def _link(self, group_id: int, index: int, number: int) -> HeldCheckpoint:
        """Link the files of the group's checkpoint into a new folder, whose name no folder under removal can have.
        Raises NothingHeld if the group has no checkpoint at ``index`` or beyond. Blocks.
        """
        store = self._storage.store
        checkpoint = store.read(group_id)
        if checkpoint is None or checkpoint.index < index:
            raise NothingHeld(f"there is no checkpoint of group {group_id} at {index} or beyond")
        folder = store.folder(group_id) / f"offer-{checkpoint.index}-{number}"
        if folder.exists():  # a process that died has left it
            remove(folder)
        files = store.files(group_id, checkpoint.generation)
        try:
            folder.mkdir(FOLDER_MODE)
            (folder / "files").mkdir(FOLDER_MODE)
            os.link(store.path(group_id), folder / "checkpoint")
            for extent in checkpoint.files:
                os.link(files / extent.name, folder / "files" / extent.name)
            return HeldCheckpoint(folder, checkpoint, store.path(group_id).stat().st_size)
        except OSError:  # links left in the folder would keep the bytes of removed segments on disk
            remove(folder)
            raise

    def _drop_if_idle(self, group_id: int, held: HeldCheckpoint) -> None:
        """Drop the checkpoint if it was released, or no node has asked about it for IDLE_S; else look again later."""
        loop = asyncio.get_running_loop()
        due = held.used_at + IDLE_S
        if self._held.get((group_id, held.index)) is held and loop.time() < due:
            loop.call_at(due, self._drop_if_idle, group_id, held)
        else:
            self._drop(group_id, held)

    def _drop(self, group_id: int, held: HeldCheckpoint) -> None:
        """Hold the checkpoint no longer, and remove its folder, whose name is not used again. May be called again."""
        if self._held.get((group_id, held.index)) is held:
            del self._held[group_id, held.index]
        self._storage.discard(held.folder)


def read_piece(path: Path, position: int, size: int) -> bytes:
    """``size`` bytes of a file from ``position`` on. Blocks."""
    with open_to_read(path) as file:
        file.seek(position)
        return file.read(max(0, size))
