"""Python modules of ours that run as child processes, so that SIGSTOP can stall them while this process goes on.

The parent writes an order as the first line of the child's standard input, and may write more lines; the child writes
its history to standard output, an event a line, which the parent takes over into its own. The end of standard
input asks the child to end: the parent has closed it, or is gone.
"""

import asyncio
import io
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Self, TypeVar

import msgspec

from ..history.history import Event, History
from ..system.undo import is_stopped
from ..system.waiting import until

LINE_BYTES_MAX = 1 << 20
"""Longest line of a child's history."""
STALL_TIMEOUT_S = 10.0
"""The kernel must have stopped a process this long after SIGSTOP."""
LISTEN_TIMEOUT_S = 5.0
"""The history of a process must have been read to its end this long after the process was killed."""
STDERR_SHOWN_MAX = 2000
"""Characters of a child's standard error in the message about its failure."""

_Order = TypeVar("_Order")


class ChildFailed(Exception):
    """A child ended with an exit code other than 0; the message has the end of its standard error."""


class ChildProcess:
    """A child process, as its parent sees it. ``on_event`` is called with each event of the child, numbered as in the
    parent's history.
    """

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, history: History, on_event: Callable[[Event], None]
    ) -> None:
        self.name: str = name
        self._process = process
        self._history = history
        self._on_event = on_event
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls,
        module: ModuleType,
        name: str,
        order: msgspec.Struct,
        history: History,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> Self:
        """Start ``python -m module`` and send ``order`` to it. ``name`` is for messages."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module.__name__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        started = cls(name, process, history, on_event)
        started.send(msgspec.json.encode(order).decode())
        return started

    @property
    def pid(self) -> int | None:
        """The process id; None once the child has ended."""
        return self._process.pid if self._process.returncode is None else None

    def send(self, line: str) -> None:
        """Write a line to the child's standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    def close_input(self) -> None:
        """Close the child's standard input, which asks the child to finish what it has begun and to end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def stall(self) -> None:
        """Send SIGSTOP; return once the process is stopped. Raises NotInTime."""
        os.kill(self._process.pid, signal.SIGSTOP)

        async def stands_still() -> bool:
            return is_stopped(self._process.pid)

        await until(stands_still, STALL_TIMEOUT_S, f"{self.name} is not stopped")

    def resume(self) -> None:
        """Send SIGCONT, unless the process is gone."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGCONT)

    async def ended(self, timeout_s: float | None = None) -> None:
        """Return when the child has ended with exit code 0. Raises ChildFailed on another code, TimeoutError after
        ``timeout_s``; None waits without limit.
        """
        assert self._process.stderr is not None
        async with asyncio.timeout(timeout_s):
            errors = await self._process.stderr.read()
            await self._listener
            code = await self._process.wait()
        if code:
            shown = errors.decode(errors="replace")[-STDERR_SHOWN_MAX:]
            raise ChildFailed(f"{self.name} ended with code {code}: {shown}")

    async def kill(self) -> None:
        """Send SIGKILL, unless the child has ended; return when it is gone."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await asyncio.wait([self._listener], timeout=LISTEN_TIMEOUT_S)  # events from before are still in the pipe
        self._listener.cancel()

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._on_event(self._history.absorb(msgspec.json.decode(line, type=Event)))


async def take_order(kind: type[_Order]) -> tuple[_Order, History, asyncio.StreamReader]:
    """For the child: its order, a history that goes to standard output, and the lines that may follow the order."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    order = msgspec.json.decode(await lines.readline(), type=kind)
    # Unbuffered: the parent must know what happened before a stall while the stall lasts.
    return order, History(io.FileIO(sys.stdout.fileno(), "wb", closefd=False)), lines
