"""One connection over a fake transport: frames of one turn leave together, and the buffer is bounded."""

import asyncio
from typing import Any, cast

from stockade.raft.messages import Message, TimeoutNow
from stockade.raft.net.codec import encode
from stockade.raft.net.connection import Connection
from stockade.raft.net.transport import Transport


class Wire(asyncio.Transport):
    """Keeps what is written, one item for each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.unsent_bytes = 0
        self.is_closed = False

    def writelines(self, list_of_data: Any) -> None:
        self.writes.append(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "socket" else ("127.0.0.1", 1)

    def setsockopt(self, *_: int) -> None:
        """A socket's method."""


class Owner:
    """In place of a transport: drops the connection at the first message."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def opened(self, connection: Connection) -> None:
        pass

    def received(self, connection: Connection, group_id: int, message: Message) -> None:
        self.messages.append(message)
        connection.abort()

    def faulty(self, connection: Connection, fault: str) -> None:
        raise AssertionError(fault)

    def lost(self, connection: Connection) -> None:
        pass


FRAMES = [encode(1, TimeoutNow(term)) for term in range(3)]


def connected(buffer_bytes_max: int = 1000) -> tuple[Connection, Wire, Owner]:
    wire, owner = Wire(), Owner()
    connection = Connection(cast(Transport, owner), None, buffer_bytes_max)
    connection.connection_made(wire)
    return connection, wire, owner


def test_frames_of_one_turn_of_the_loop_leave_in_one_write() -> None:
    async def scenario() -> None:
        connection, wire, _ = connected()
        assert all(connection.send(frame) for frame in FRAMES)
        assert wire.writes == []
        await asyncio.sleep(0)
        assert wire.writes == [b"".join(FRAMES)]
        connection.send(FRAMES[0])
        await asyncio.sleep(0)
        assert wire.writes == [b"".join(FRAMES), FRAMES[0]]

    asyncio.run(scenario())


def test_the_buffer_bound_covers_queued_frames_and_the_transports_buffer() -> None:
    async def scenario() -> None:
        size = len(FRAMES[0])
        connection, wire, _ = connected(buffer_bytes_max=3 * size)
        wire.unsent_bytes = size
        assert [connection.send(frame) for frame in FRAMES] == [True, True, False]
        wire.unsent_bytes = 0
        assert connection.send(FRAMES[2])
        assert not connection.send(FRAMES[2])

    asyncio.run(scenario())


def test_close_sends_queued_frames_and_takes_no_more() -> None:
    async def scenario() -> None:
        connection, wire, _ = connected()
        connection.send(FRAMES[0])
        connection.close()
        assert wire.writes == [FRAMES[0]]
        assert not connection.send(FRAMES[1])
        await asyncio.sleep(0)
        assert wire.writes == [FRAMES[0]]

    asyncio.run(scenario())


def test_no_message_is_received_after_an_abort() -> None:
    async def scenario() -> None:
        connection, _, owner = connected()
        connection.data_received(b"".join(FRAMES))
        assert owner.messages == [TimeoutNow(0)]

    asyncio.run(scenario())
