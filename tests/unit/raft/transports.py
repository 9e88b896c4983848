"""Transports to test, and their other ends played by the test."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from stockade.raft.frames import PROTOCOL_VERSION, FrameReader, encode
from stockade.raft.messages import Hello, Message
from stockade.raft.pulse import Times
from stockade.raft.transport import Address, Transport

Scenario = Callable[[], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]

UNSET: Address = ("127.0.0.1", 0)
QUICK = Times(reconnect_s=0.01)


_running: "list[Node]" = []


class Node:
    """A transport and what it told. Starts on an ephemeral port, and tells those who share its ``addresses``."""

    def __init__(self, node_id: str, addresses: dict[str, Address], times: Times = QUICK, **options: Any) -> None:
        addresses.setdefault(node_id, UNSET)
        self.node_id = node_id
        self.addresses = addresses
        self.incarnation: int = options.pop("incarnation", 0)
        self.transport = Transport(node_id, "house", UNSET, addresses, times=times, **options)
        self.events: list[str] = []
        self.frames: list[tuple[str, int, Message]] = []
        self.changed = asyncio.Event()
        self.transport.on_up = lambda peer, incarnation: self.note(f"up {peer}")
        self.transport.on_down = lambda peer: self.note(f"down {peer}")
        self.transport.on_frame = self.take

    def note(self, event: str) -> None:
        self.events.append(event)
        self.changed.set()

    def take(self, peer: str, group_id: int, message: Message) -> None:
        self.frames.append((peer, group_id, message))
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def until_events(self, count: int) -> None:
        await self.until(lambda: len(self.events) == count)

    async def __aenter__(self) -> "Node":
        await self.transport.start(self.incarnation)
        self.addresses[self.node_id] = self.transport.address
        _running.append(self)
        for node in _running:
            if node.addresses is self.addresses:
                node.transport.set_peer(self.node_id, self.transport.address)
        return self

    async def __aexit__(self, *_: object) -> None:
        _running.remove(self)
        await self.transport.stop()


class Peer:
    """The other end of a connection, played by the test byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = FrameReader()
        self.received: list[Message] = []

    @classmethod
    async def dial(cls, node: Node, hello: Hello | None = None, tls: ssl.SSLContext | None = None) -> "Peer":
        peer = cls(*await asyncio.open_connection(*node.transport.address, ssl=tls))
        if hello is not None:
            peer.say(hello)
        return peer

    def say(self, message: Message, group_id: int = 0) -> None:
        self.writer.write(encode(group_id, message))

    async def hear(self) -> Message | None:
        """The next message; None if the connection was closed."""
        while not self.received:
            try:
                data = await self.reader.read(1 << 16)
            except (ConnectionResetError, ssl.SSLError):
                return None
            if not data:
                return None
            self.received += [message for _, message in self.frames.feed(data)]
        return self.received.pop(0)

    async def __aenter__(self) -> "Peer":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()


def hello(node_id: str, cluster_id: str = "house", version: int = PROTOCOL_VERSION, incarnation: int = 0) -> Hello:
    return Hello(version, cluster_id, node_id, incarnation)
