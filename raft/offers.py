"""Checkpoints held ready for other nodes to copy: by hard links, so nothing that happens here takes them away.

A checkpoint is held until the nodes that copy it say that they are done, or nobody has asked for it for a while.
"""

import asyncio
import hashlib
import os
from functools import partial
from itertools import count
from pathlib import Path

from .checkpoints import Checkpoint, remove
from .keeper import Keeper
from .pulls import (
    CHECKPOINT,
    PIECE_BYTES,
    Ask,
    AskDigest,
    AskPiece,
    NothingHeld,
    Offered,
    Release,
    decode_question,
    encode,
)

IDLE_S = 30.0
"""An offer is given up when nobody has asked for a piece of it for so long."""
OFFERS_MAX = 8
"""Groups of which a checkpoint is held ready at a time."""


class _Offer:
    def __init__(self, folder: Path, checkpoint: Checkpoint, size: int) -> None:
        self.folder = folder
        self.index = checkpoint.index
        self.sizes = {CHECKPOINT: size} | {extent.name: extent.size for extent in checkpoint.files}
        self.used_at = 0.0
        self.nodes: set[str] = set()
        """Those that copy it."""

    def path(self, name: str) -> Path:
        if name not in self.sizes:
            raise NothingHeld(f"no file of this checkpoint is called {name!r}")
        return self.folder / "files" / name if name else self.folder / "checkpoint"


class Offers:
    """Answers the questions of pulls.py."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._offers: dict[int, _Offer] = {}
        self._asking = asyncio.Lock()
        self._numbers = count()

    async def answer(self, node_id: str, payload: bytes) -> bytes:
        """Answer a question of ``node_id``. Raises NothingHeld, or OSError from the disk; the other node is told."""
        question = decode_question(payload)
        match question:
            case Ask(group_id, index):
                return encode(await self._hold(node_id, group_id, index))
            case AskPiece(group_id, index, name, position):
                offer = self._held(group_id, index)
                size = min(PIECE_BYTES, offer.sizes.get(name, 0) - position)
                return await self._keeper.run(partial(read_piece, offer.path(name), position, size))
            case AskDigest(group_id, index, name):
                offer = self._held(group_id, index)
                return await self._keeper.run(partial(digest, offer.path(name), offer.sizes[name]))
            case Release(group_id, index):
                self._release(node_id, group_id, index)
                return b""

    async def _hold(self, node_id: str, group_id: int, index: int) -> Offered:
        async with self._asking:
            offer = self._offers.get(group_id)
            if offer is None or offer.index < index:
                if offer is None and len(self._offers) >= OFFERS_MAX:
                    raise NothingHeld(f"checkpoints of {OFFERS_MAX} groups are being copied already")
                async with self._keeper.lock:
                    offer = await self._keeper.run(partial(self._link, group_id, index, next(self._numbers)))
                self._offers[group_id] = offer
                asyncio.get_running_loop().call_later(IDLE_S, self._look, group_id, offer)
            offer.used_at = asyncio.get_running_loop().time()
            offer.nodes.add(node_id)
            return Offered(offer.index, offer.sizes[CHECKPOINT])

    def _held(self, group_id: int, index: int) -> _Offer:
        offer = self._offers.get(group_id)
        if offer is None or offer.index != index:
            raise NothingHeld(f"the checkpoint of group {group_id} at {index} is not held any more")
        offer.used_at = asyncio.get_running_loop().time()
        return offer

    def _release(self, node_id: str, group_id: int, index: int) -> None:
        offer = self._offers.get(group_id)
        if offer is not None and offer.index == index:
            offer.nodes.discard(node_id)
            if not offer.nodes:
                self._give_up(group_id, offer)

    def _link(self, group_id: int, index: int, number: int) -> _Offer:
        """Link all files of the group's checkpoint, in a folder of its own: another one may be just being removed."""
        store = self._keeper.store
        checkpoint = store.read(group_id)
        if checkpoint is None or checkpoint.index < index:
            raise NothingHeld(f"there is no checkpoint of group {group_id} at {index} or beyond")
        folder = store.folder(group_id) / f"offer-{checkpoint.index}-{number}"
        if folder.exists():  # of a process that died
            remove(folder)
        (folder / "files").mkdir(parents=True)
        os.link(store.path(group_id), folder / "checkpoint")
        files = store.files(group_id, checkpoint.generation)
        for extent in checkpoint.files:
            os.link(files / extent.name, folder / "files" / extent.name)
        return _Offer(folder, checkpoint, store.path(group_id).stat().st_size)

    def _look(self, group_id: int, offer: _Offer) -> None:
        """Give an offer up if nobody has asked for it lately, or a newer one took its place."""
        loop = asyncio.get_running_loop()
        due = offer.used_at + IDLE_S
        if self._offers.get(group_id) is offer and loop.time() < due:
            loop.call_at(due, self._look, group_id, offer)
        else:
            self._give_up(group_id, offer)

    def _give_up(self, group_id: int, offer: _Offer) -> None:
        """Also of one that was given up already: its folder is its own, and gone then."""
        if self._offers.get(group_id) is offer:
            del self._offers[group_id]
        self._keeper.discard(offer.folder)


def read_piece(path: Path, position: int, size: int) -> bytes:
    """Bytes of a file."""
    with path.open("rb") as file:
        file.seek(position)
        return file.read(max(0, size))


def digest(path: Path, size: int) -> bytes:
    """Tells the first ``size`` bytes of a file from any others."""
    hasher = hashlib.blake2b(digest_size=32)
    with path.open("rb") as file:
        while size > 0 and (chunk := file.read(min(size, PIECE_BYTES))):
            hasher.update(chunk)
            size -= len(chunk)
    return hasher.digest()
