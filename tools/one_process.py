"""A cluster in one process and one thread, on a clock of its own, that knows of each call what caused it.

Nodes are real (``Node`` and its HTTP interface), and so are their files. Replaced are, each below the product:

- the network: connections are pipes in memory; what one end writes the other end receives in a later turn of the loop;
- the clock: when nothing can run, it jumps to the next timer, so no walk depends on how busy the machine is;
- thread pools, and the log's thread: a job runs where it is submitted, as if the disk needed no time; its result
  arrives in a later turn;
- chance: elections draw from a seeded generator.

Each turn of the loop inherits the cause of the turn that scheduled it, also over connections and thread pools and
through futures: what sets a future is the cause of the turn in which its waiter goes on. Only a timer inherits nothing:
heartbeats, signs of life and renewals belong to no request.
"""

import asyncio
import random
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

from stockade.raft.wal.writer import FlushThread

Address = tuple[str, int]
Factory = Callable[[], asyncio.Protocol]
DRIVER = "driver"
"""Name of the "node" that asks: the walk itself."""

_NODE = ContextVar("node", default=DRIVER)
"""The node on which a task runs. The cause is not kept here, since it changes each time the task goes on."""


@dataclass(frozen=True)
class Turn:
    """One turn of the loop: on which node, started by what, and whether the request that is followed caused it."""

    node: str = DRIVER
    started_by: str = "start"
    is_caused: bool = False
    source: str | None = None
    """The node at the other end, of a turn that a connection started."""


class VirtualSelector(selectors.DefaultSelector):
    """A selector that never waits: where another selector would wait, the virtual clock jumps to the timeout's end."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The files that are ready now."""
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        assert ready or timeout is not None, "nothing is scheduled: the cluster stands still for ever"
        if not ready and timeout:
            self.now_s += timeout
        return ready


class CausalLoop(asyncio.SelectorEventLoop):
    """The event loop of the whole cluster."""

    def __init__(self) -> None:
        self.turn: Turn = Turn()
        self.found: dict[CodeType, Turn] = {}
        """Code called in turns that the request caused, each with the turn of its first call, in the order of those."""
        self.calls: set[tuple[CodeType | None, CodeType]] = set()
        """Pairs of caller and callee in these turns; a caller None is the loop, or a thread pool."""
        self.ends_at: Pipe | None = None
        """The walk ends with the turn, caused by the request, that writes to this pipe."""
        self.moving: str | None = None
        """The node all of whose turns are followed, whichever event starts them."""
        self.has_ended: bool = False
        self._is_last = False
        self.listening: dict[Address, Listener] = {}
        self._clock = VirtualSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        """Seconds of the virtual clock."""
        return self._clock.now_s

    @contextmanager
    def within(self, turn: Turn) -> Iterator[None]:
        """Run the block as part of this turn."""
        before, self.turn = self.turn, turn
        token = _NODE.set(turn.node)
        try:
            yield
        finally:
            _NODE.reset(token)
            self.turn = before

    @contextmanager
    def following(self, folder: str) -> Iterator[None]:
        """Inside the block, note in ``found`` and ``calls`` the code of ``folder`` that is called in caused turns, in
        this thread and in any thread begun inside.
        """

        def called(frame: FrameType, event: str, _: object) -> None:
            if event != "call" or not self.turn.is_caused or self.has_ended:
                return
            if frame.f_code.co_filename.startswith(folder):
                self.found.setdefault(frame.f_code, self.turn)
                caller = frame.f_back
                while caller is not None and not caller.f_code.co_filename.startswith(folder):
                    caller = caller.f_back
                self.calls.add((caller and caller.f_code, frame.f_code))

        sys.setprofile(called)
        threading.setprofile(called)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def wrote(self, pipe: "Pipe") -> None:
        """Note that a pipe was written to in this turn, which may be the last one of the walk."""
        self._is_last = self._is_last or (pipe is self.ends_at and self.turn.is_caused)

    def _turning(
        self, started_by: str, callback: Callable[..., object], *, is_caused: bool, source: str | None = None
    ) -> Callable[..., object]:
        def run(*arguments: object) -> None:
            node = _NODE.get()
            with self.within(Turn(node, started_by, is_caused or node == self.moving, source)):
                callback(*arguments)
            self.has_ended = self.has_ended or self._is_last

        return run

    def call_soon(self, callback: Any, *arguments: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """As in asyncio; the callback's turn inherits the cause of this turn."""
        run = self._turning("turn of the loop", callback, is_caused=self.turn.is_caused)
        return super().call_soon(run, *arguments, context=context)

    def call_soon_threadsafe(self, callback: Any, *arguments: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """As in asyncio; the callback's turn inherits the cause of the thread's job that calls this."""
        run = self._turning("the thread is done", callback, is_caused=self.turn.is_caused)
        return super().call_soon_threadsafe(run, *arguments, context=context)

    def call_at(self, when: float, callback: Any, *arguments: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        """As in asyncio; the callback's turn inherits no cause."""
        run = self._turning("a timer", callback, is_caused=False)
        return super().call_at(when, run, *arguments, context=context)

    def arrive(self, node: str, what: str, source: str, callback: Callable[..., object], *arguments: object) -> None:
        """Run ``callback`` on ``node``, soon, in a turn of its own, which inherits the cause of this turn."""
        context = copy_context()
        context.run(_NODE.set, node)
        run = self._turning(what, callback, is_caused=self.turn.is_caused, source=source)
        super().call_soon(run, *arguments, context=context)

    async def create_server(self, protocol_factory: Factory, host: str, port: int, **_: object) -> "Listener":  # type: ignore[override]
        """Listen for pipes to this address."""
        assert (host, port) not in self.listening, "the port is taken"
        listener = self.listening[host, port] = Listener(self, protocol_factory, (host, port))
        return listener

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: object
    ) -> "tuple[Pipe, Any]":
        """Connect by a pipe to the listener at this address. Raises ConnectionRefusedError if there is none."""
        listener = self.listening.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(f"nothing listens at {host}:{port}")
        near, far = Pipe(self, self.turn.node, (host, port)), Pipe(self, listener.node, ("127.0.0.1", 1))
        near.other_end, far.other_end = far, near
        near.begin(protocol_factory())
        self.arrive(far.node, "a connection from", near.node, lambda: far.begin(listener.protocol_factory()))
        return near, near.protocol


class Listener:
    """The stand-in for an asyncio.Server."""

    def __init__(self, loop: CausalLoop, protocol_factory: Factory, address: Address) -> None:
        self.protocol_factory = protocol_factory
        self.node: str = loop.turn.node
        self.sockets: list[Listener] = [self]
        self._loop = loop
        self._address = address

    def getsockname(self) -> Address:
        """The address at which it listens."""
        return self._address

    def is_serving(self) -> bool:
        """Whether it takes connections."""
        return self._address in self._loop.listening

    async def start_serving(self) -> None:
        """Do nothing: the listener serves from the beginning."""

    def close(self) -> None:
        """Take no more connections."""
        self._loop.listening.pop(self._address, None)

    async def wait_closed(self) -> None:
        """Do nothing: ``close`` leaves nothing to wait for."""


class Pipe(asyncio.Transport):
    """One end of a connection. Written bytes arrive at the other end, piece by piece, with the cause of the write.
    ``peer`` is the address of the other end.
    """

    other_end: "Pipe"

    def __init__(self, loop: CausalLoop, node: str, peer: Address) -> None:
        super().__init__()
        self.node = node
        self._peer = peer
        self._loop = loop
        self._is_closing = False
        self._is_paused = False
        self._waiting: list[tuple[bool, bytes]] = []

    def begin(self, protocol: asyncio.Protocol) -> None:
        """Attach the protocol, and tell it that the connection is made."""
        self.protocol = protocol
        protocol.connection_made(self)

    def write(self, data: Any) -> None:
        """Send ``data`` to the other end; calls keep their order."""
        if not self._is_closing:
            self._loop.wrote(self)
            other = self.other_end
            self._loop.arrive(other.node, "bytes from", self.node, other._arrived, bytes(data))

    def _arrived(self, data: bytes) -> None:
        self._waiting.append((self._loop.turn.is_caused, data))
        self._deliver()

    def _deliver(self) -> None:
        while self._waiting and not self._is_paused and not self._is_closing:
            is_caused, data = self._waiting.pop(0)
            with self._loop.within(Turn(self.node, "bytes from", is_caused, self.other_end.node)):
                self.protocol.data_received(data)

    def pause_reading(self) -> None:
        """Hold back the bytes that arrive."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Deliver the bytes that were held back, and those that follow."""
        self._is_paused = False
        self._loop.arrive(self.node, "bytes from", self.other_end.node, self._deliver)

    def close(self) -> None:
        """Close both ends; the other end closes after the bytes sent before have arrived there."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self.protocol.connection_lost, None)
            self._loop.arrive(self.other_end.node, "hung up by", self.node, self.other_end.close)

    abort = close

    def is_closing(self) -> bool:
        """Whether it was closed here, or at the other end."""
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        """0: written bytes are under way at once, and wait in no buffer."""
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The addresses of both ends, and a socket that ignores its options."""
        return {"peername": self._peer, "sockname": ("127.0.0.1", 2), "socket": _Socket()}.get(name, default)


class _Socket:
    family, type, proto = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP

    def setsockopt(self, *_: int) -> None:
        """Do nothing: a pipe has no delays to turn off."""

    def fileno(self) -> int:
        """0: a descriptor below every bound, so that the server never refuses the connection for it."""
        return 0


def run(main: Callable[[CausalLoop], Coroutine[Any, Any, None]]) -> None:
    """Run ``main`` on a loop of its own, with stand-ins for all that reaches below the loop: thread pools, the log's
    thread, the clock and chance.
    """
    loop = CausalLoop()

    def submit(pool: object, job: Callable[..., Any], /, *arguments: Any, **more: Any) -> Future[Any]:
        done = Future[Any]()
        with loop.within(Turn(loop.turn.node, "in a thread", loop.turn.is_caused)):
            try:
                done.set_result(job(*arguments, **more))
            except BaseException as error:
                done.set_exception(error)
        return done

    def begin(thread: FlushThread, runs: Any, flushed: Callable[[BaseException | None], None]) -> None:
        submit(None, thread.write, runs).add_done_callback(
            lambda done: loop.call_soon_threadsafe(flushed, done.exception())
        )

    with (
        patch.object(ThreadPoolExecutor, "submit", submit),
        patch.object(FlushThread, "begin", begin),
        patch.object(time, "monotonic", loop.time),
        patch.object(random, "SystemRandom", lambda: random.Random(17)),  # noqa: S311  # spreads elections
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        runner.run(main(loop))
