"""Faults of the wall clock of one node, by libfaketime: it is wrong, it jumps, it runs at a wrong rate.

A node must be started with ``prefix``; from then on a file beside its data folder says what its clock shows. The
monotonic clock stays right: no promise of the product rests on the wall clock, and that is what is to be seen. Needs no
root.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..fault import Arena, Broken
from .targets import one, running

LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
)
RIGHT = "+0"
OFFSETS_S = (-86_400, -3_600, -10, 10, 3_600, 86_400)
RATES = (0.2, 0.9, 1.1, 5.0)
JUMPS_S = (0.3, 1.0, 2.5)
"""How long a clock that jumps shows one time, drawn anew for each."""


def library() -> Path | None:
    """libfaketime, where a package has put it."""
    return next((path for path in map(Path, LIBRARIES) if path.exists()), None)


def why_not() -> str | None:
    """Why no node can have a clock of its own here; None if it can."""
    return None if library() else "missing: libfaketime (Debian: apt install libfaketime)"


def file_of(data: Path) -> Path:
    """What says which time a node with this data folder sees."""
    return data.with_name(f"{data.name}.clock")


def prefix(data: Path) -> list[str]:
    """The words that start a node whose clock can be set; it is right at first."""
    file = file_of(data)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(RIGHT)
    variables = {
        "LD_PRELOAD": str(library()),
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # that fix makes each wait for a lock of another thread take 40 ms
        "FAKETIME_TIMESTAMP_FILE": str(file.absolute()),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_RESET": "1",
    }
    return ["env", *(f"{name}={value}" for name, value in variables.items())]


def set_clock(data: Path, shown: str) -> None:
    """In libfaketime's words: "+3600" is an hour ahead, "+0 x2" twice as fast. Seen within a second or two."""
    scratch = file_of(data).with_suffix(".new")
    scratch.write_text(shown)
    scratch.replace(file_of(data))


def _with_clocks(arena: Arena) -> list[str]:
    """The running nodes whose clock can be set: those that have libfaketime in them."""
    return [node for node in running(arena) if _is_faked(arena.pid(node))]


def _is_faked(pid: int | None) -> bool:
    try:
        return "libfaketime" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


class WrongClock:
    """A clock that shows another time, or runs at another rate."""

    def __init__(self, name: str, about: str, draw: Callable[[random.Random], str]) -> None:
        self.name = name
        self.about = about
        self._draw = draw

    def why_not(self, arena: Arena) -> str | None:
        """It needs nodes that were started for it."""
        return _why_not(arena)

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Set one node's clock."""
        node, shown = one(_with_clocks(arena), chance), self._draw(chance)
        data = arena.data(node)
        set_clock(data, shown)

        async def heal() -> None:
            set_clock(data, RIGHT)

        return Broken(f"clock of {node} shows {shown}", heal)


class JumpingClock:
    """A clock that jumps forth and back."""

    name = "clock-jumps"
    about = "a node's wall clock jumps by up to a day, forth and back (libfaketime)"

    def why_not(self, arena: Arena) -> str | None:
        """It needs nodes that were started for it."""
        return _why_not(arena)

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Let one jump until healed."""
        node = one(_with_clocks(arena), chance)
        drawn, stop = random.Random(chance.random()), asyncio.Event()  # noqa: S311
        jumping = asyncio.create_task(_jump(arena.data(node), drawn, stop))

        async def heal() -> None:
            stop.set()
            await jumping

        return Broken(f"clock of {node} jumps", heal)


async def _jump(data: Path, drawn: random.Random, stop: asyncio.Event) -> None:
    try:
        while not stop.is_set():
            set_clock(data, f"{drawn.choice(OFFSETS_S):+d}")
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), drawn.choice(JUMPS_S))
    finally:
        set_clock(data, RIGHT)


def _why_not(arena: Arena) -> str | None:
    if not _with_clocks(arena):
        return why_not() or "no node was started under libfaketime"
    return None


CLOCK_FAULTS = (
    WrongClock(
        "clock-offset", "a node's wall clock is wrong by 10 s to a day", lambda chance: f"{chance.choice(OFFSETS_S):+d}"
    ),
    WrongClock(
        "clock-rate",
        "a node's wall clock runs at 0.2 to 5 times its rate",
        lambda chance: f"+0 x{chance.choice(RATES)}",
    ),
    JumpingClock(),
)
