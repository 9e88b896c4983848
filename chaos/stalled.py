"""The parent's side of a writer in another process: let it go, stall it, resume it, and take in its history."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from . import writer
from .history import Event, History
from .waiting import until

END_TIMEOUT_S = 120.0
"""A resumed writer must have tried everything, and ended, after this time."""


class WriterFailed(Exception):
    """The process ended otherwise than it should; the message has what it said last."""


class StalledWriter:
    """A running ``chaos.writer``. ``on_event`` sees each of its events, taken over into ``history``."""

    def __init__(
        self, process: asyncio.subprocess.Process, history: History, on_event: Callable[[Event], None]
    ) -> None:
        self._process = process
        self._history = history
        self._on_event = on_event
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, order: writer.Order, history: History, on_event: Callable[[Event], None]) -> Self:
        """Start the process with its order."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            writer.__name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        started = cls(process, history, on_event)
        started._say(msgspec.json.encode(order).decode())
        return started

    def allow(self, records: int) -> None:
        """Let it write up to so many records of its stream."""
        self._say(str(records))

    async def stall(self) -> None:
        """SIGSTOP; returns once the process stands still."""
        os.kill(self._process.pid, signal.SIGSTOP)
        await until(self._stands_still, END_TIMEOUT_S, "the writer does not stand still")

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self._process.pid, signal.SIGCONT)

    async def ended(self) -> None:
        """Return when the process has ended well. Raises WriterFailed, TimeoutError."""
        assert self._process.stderr is not None
        async with asyncio.timeout(END_TIMEOUT_S):
            said = await self._process.stderr.read()
            await self._listener
            code = await self._process.wait()
        if code:
            raise WriterFailed(f"the writer ended with code {code}: {said.decode(errors='replace')[-2000:]}")

    async def kill(self) -> None:
        """End it whatever it does; safe when it has ended."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._listener.cancel()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def _stands_still(self) -> bool:
        return _is_stopped(self._process.pid)

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._on_event(self._history.absorb(msgspec.json.decode(line, type=Event)))


def _is_stopped(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return state.rpartition(")")[2].split()[0] == "T"
