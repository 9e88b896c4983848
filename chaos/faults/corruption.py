"""Damaged disks of a minority: a flipped bit, or a file that was cut, while the node was away.

The node must refuse to start and say why; healing does what an operator would: ``stockade rebuild``, and a start with
an empty disk. The checkers judge what the node then copies. No root needed.
"""

import asyncio
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ..system.waiting import NotInTime, until
from .fault import Arena, Broken, NothingToBreak
from .targets import one, running

REFUSAL_TIMEOUT_S = 10.0
"""A node that has not ended this long after its start has accepted its files."""
REBUILD_TIMEOUT_S = 30.0
_FILE_HEADER_BYTES, _MARKER_AT = 36, 12
_RECORD = struct.Struct("<IIIIQQIB3x")
"""Marker, CRC, length, group, index, term, synced, kind: as raft/wal/records.py has it."""
_VOTE = 3

Find = Callable[[Path], Iterator[tuple[Path, int]]]
"""Yields, for a data folder, the files that may be damaged, each with the position of a byte that is in use."""


def _middle(pattern: str) -> Find:
    def find(data: Path) -> Iterator[tuple[Path, int]]:
        """The positions are early in the files, because the end of a file may be unused."""
        for path in sorted(data.glob(pattern)):
            size = path.stat().st_size
            if size > 1:
                yield path, min(300, size // 2)

    return find


def votes(data: Path) -> Iterator[tuple[Path, int]]:
    """The records of the write-ahead log that say for whom the node has voted: file, and position of the first byte
    behind the record's header.
    """
    for path in sorted(data.glob("wal/*.wal")):
        log = path.read_bytes()
        at, marker = _FILE_HEADER_BYTES, log[_MARKER_AT : _MARKER_AT + 4]
        while at + _RECORD.size <= len(log) and log[at : at + 4] == marker:
            _, _, length, *_, kind = _RECORD.unpack_from(log, at)
            if kind == _VOTE and length:
                yield path, at + _RECORD.size
            at += _RECORD.size + length


def flip(path: Path, at: int) -> None:
    """Flip the lowest bit of the byte at ``at``."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def cut(path: Path, at: int) -> None:
    """Truncate the file to ``at`` bytes."""
    with path.open("r+b") as file:
        file.truncate(at)


PLACES: dict[str, Find] = {
    "wal": _middle("wal/*.wal"),
    "vote": votes,
    "identity": _middle("wal/identity"),
    "checkpoint": _middle("groups/*/checkpoint"),
    "segment": _middle("groups/*/files-*/*.arrow"),
    "index": _middle("groups/*/files-*/*.index"),
}
"""What can be damaged, by name, and how it is found in a data folder."""


class Corruption:
    """One byte of one file is wrong, or the file is cut there."""

    def __init__(self, place: str) -> None:
        self.name: str = f"corrupt-{place}"
        self.about: str = (
            f"a bit of a node's {place} is flipped, or the file is cut; the node does without it, or is rebuilt"
        )
        self._find = PLACES[place]
        self._damages = [flip] if place == "vote" else [flip, cut]

    def why_not(self, arena: Arena) -> str | None:
        """It needs peers from which the node can be rebuilt."""
        return None if len(arena.nodes) > 2 else "a cluster of less than three nodes cannot be rebuilt"

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Kill a node, damage its disk, start it again, and note whether it refuses to start."""
        if len(running(arena)) < len(arena.nodes):
            raise NothingToBreak("another node is away: if two disks are lost, committed records may be, too")
        node = one([node for node in arena.nodes if next(self._find(arena.data(node)), None)], chance)
        arena.kill(node)
        path, at = chance.choice(await asyncio.to_thread(lambda: list(self._find(arena.data(node)))))
        damage = chance.choice(self._damages)
        await asyncio.to_thread(damage, path, at)
        arena.kill(node)  # another fault may have started it on the files as they were before the damage
        arena.start(node)
        has_refused = await _refuses(arena, node)
        did = "refused to start" if has_refused else "started: it does without that file"
        what = f"{node}: {path.relative_to(arena.data(node))} {'flipped' if damage is flip else 'cut'} at {at}; {did}"

        async def heal() -> None:
            if has_refused:
                await until(lambda: _is_rebuilt(arena, node), REBUILD_TIMEOUT_S, f"{node} cannot be rebuilt")
            arena.start(node)

        return Broken(what, heal, [node])


async def _refuses(arena: Arena, node: str) -> bool:
    async def is_decided() -> bool:
        return arena.pid(node) is None or await arena.raw(node).is_ready()

    try:
        await until(is_decided, REFUSAL_TIMEOUT_S, f"{node} neither ends nor gets ready")
    except NotInTime:
        return False
    return arena.pid(node) is None


async def _is_rebuilt(arena: Arena, node: str) -> bool:
    """Whether the damaged data could be moved aside; it cannot while another fault has just started the node again."""
    arena.kill(node)
    return await asyncio.to_thread(_rebuild, arena.data(node))


def _rebuild(data: Path) -> bool:
    """Run ``stockade rebuild``, and delete the data that it moves aside, since they were damaged on purpose. Returns
    whether it succeeded.
    """
    before = set(data.glob("damaged-*"))
    command = [sys.executable, "-m", "stockade", "rebuild", "--data", str(data), "--yes"]
    # A list of words, no shell.
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # nosec B603
    for path in set(data.glob("damaged-*")) - before:
        shutil.rmtree(path)
    return done.returncode == 0


CORRUPTION_FAULTS = tuple(Corruption(place) for place in PLACES)
