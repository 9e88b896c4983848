"""Faults of the wall clock of one node, with libfaketime: a wrong time, jumps, a wrong rate.

A node must be started with ``prefix``; from then on a file beside its data folder sets its wall clock. The monotonic
clock stays right. The faults test the claim that no guarantee of the product depends on the wall clock. No root needed.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .fault import Arena, Broken
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
"""Seconds between two jumps of a clock, drawn for each."""


def library() -> Path | None:
    """Path of libfaketime; None if it is not installed."""
    return next((path for path in map(Path, LIBRARIES) if path.exists()), None)


def why_not() -> str | None:
    """Why nodes cannot have clocks of their own here; None if they can."""
    return None if library() else "missing: libfaketime (Debian: apt install libfaketime)"


def file_of(data: Path) -> Path:
    """The file that sets the clock of the node with this data folder."""
    return data.with_name(f"{data.name}.clock")


def prefix(data: Path) -> list[str]:
    """The words to put before the command of a node, so that its clock can be set. Writes the file that sets it: the
    clock is right at first.
    """
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
    """Set a node's clock. ``shown`` is in libfaketime's notation: "+3600" an hour ahead, "+0 x2" twice as fast. Takes
    effect within 2 s.
    """
    scratch = file_of(data).with_suffix(".new")
    scratch.write_text(shown)
    scratch.replace(file_of(data))


def _with_clocks(arena: Arena) -> list[str]:
    """The running nodes that have loaded libfaketime."""
    return [node for node in running(arena) if _is_faked(arena.pid(node))]


def _is_faked(pid: int | None) -> bool:
    try:
        return "libfaketime" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


class WrongClock:
    """A clock with a wrong time, or a wrong rate."""

    def __init__(self, name: str, about: str, draw: Callable[[random.Random], str]) -> None:
        self.name = name
        self.about = about
        self._draw = draw

    def why_not(self, arena: Arena) -> str | None:
        return _why_not(arena)

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        node, shown = one(_with_clocks(arena), chance), self._draw(chance)
        data = arena.data(node)
        set_clock(data, shown)

        async def heal() -> None:
            set_clock(data, RIGHT)

        return Broken(f"clock of {node} shows {shown}", heal)


class JumpingClock:
    """A clock that jumps forward and back."""

    name = "clock-jumps"
    about = "a node's wall clock jumps by up to a day, forward and back (libfaketime)"

    def why_not(self, arena: Arena) -> str | None:
        return _why_not(arena)

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        node = one(_with_clocks(arena), chance)
        drawn, stop = random.Random(chance.random()), asyncio.Event()  # a seed replays it  # noqa: S311  # nosec B311
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
