"""Transports under test, and peers whose bytes the test itself sends."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from stockade.raft.messages import Hello, Message, Ping, RaftMessage, Software
from stockade.raft.net.codec import PROTOCOL_VERSION, FrameReader, encode
from stockade.raft.net.liveness import LivenessTimeouts
from stockade.raft.net.transport import Address, Receiver, Transport

Scenario = Callable[[], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]

KIND = b"?"
"""Of the calls that a test answers."""
UNSET: Address = ("127.0.0.1", 0)
QUICK = LivenessTimeouts(reconnect_s=0.01)


_running: "list[Node]" = []


class Groups(dict[int, Receiver]):
    """All groups, for a transport: each gives what it receives to the test."""

    def __init__(self, node: "Node") -> None:
        super().__init__()
        self._node = node

    def get(self, group_id: int, _: Any = None) -> Any:
        return Receiving(self._node, group_id)


@dataclass
class Receiving:
    node: "Node"
    group_id: int

    def receive(self, peer: str, message: RaftMessage) -> None:
        self.node.take(peer, self.group_id, message)


class Node:
    """A transport and its events. It listens on an ephemeral port, which nodes with the same ``addresses`` learn."""

    def __init__(
        self, node_id: str, addresses: dict[str, Address], times: LivenessTimeouts = QUICK, **options: Any
    ) -> None:
        addresses.setdefault(node_id, UNSET)
        self.node_id = node_id
        self.addresses = addresses
        self.incarnation: int = options.pop("incarnation", 0)
        software: Software = options.pop("software", Software())
        self.transport = Transport(node_id, "house", UNSET, addresses, times=times, **options)
        self.transport.software = software
        self.events: list[str] = []
        self.frames: list[tuple[str, int, Message]] = []
        self.changed = asyncio.Event()
        self.transport.on_up = lambda peer, incarnation: self.note(f"up {peer}")
        self.transport.on_down = lambda peer: self.note(f"down {peer}")
        self.transport.groups = Groups(self)

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

    async def hear_a(self, kind: type[Message]) -> Message:
        """The next message of this kind. Before it may come the greeting, and what is said in silence."""
        while not isinstance(message := await self.hear(), kind):
            assert isinstance(message, Ping | Hello)
        return message

    async def __aenter__(self) -> "Peer":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()


def hello(node_id: str, cluster_id: str = "house", version: int = PROTOCOL_VERSION, incarnation: int = 0) -> Hello:
    return Hello(version, cluster_id, node_id, incarnation)
