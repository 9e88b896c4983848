"""From files to a client without passing through Python objects: the kernel copies from its page cache to the socket.

Nothing of a file is in the memory of the node, whatever the client's pace; a client that takes nothing for a while is
cut off.
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..partition.errors import UnknownTopicOrPartition
from ..partition.log import Run
from .call import STALL_S, Call

PIECE_BYTES = 1024 * 1024
"""Bytes that are sent, or read, before the event loop gets its turn."""

_Part = tuple[int, int, int]  # file descriptor, position, bytes


@contextmanager
def opened(runs: Sequence[Run]) -> Iterator[list[_Part]]:
    """The files of ``runs``, one after the other. Raises UnknownTopicOrPartition when one is gone."""
    parts: list[_Part] = []
    try:
        for run in runs:
            parts.append((os.open(run.segment, os.O_RDONLY | os.O_CLOEXEC), run.position, run.length))
        yield parts
    except FileNotFoundError as error:
        raise UnknownTopicOrPartition("the topic was deleted while it was read") from error
    finally:
        for file, _, _ in parts:
            os.close(file)


def pieces(parts: Sequence[_Part]) -> Iterator[bytes]:
    """All bytes, PIECE_BYTES at a time at most."""
    for file, position, length in parts:
        for place in range(position, position + length, PIECE_BYTES):
            size = min(PIECE_BYTES, position + length - place)
            piece = os.pread(file, size, place)
            if len(piece) < size:
                raise OSError("a segment ends inside a batch")
            yield piece


async def send(call: Call, parts: Sequence[_Part]) -> None:
    """Send all bytes as the next part of the body. Raises ConnectionError when the client is gone or takes nothing."""
    transport = call.request.transport
    if transport is None:
        raise ConnectionResetError("the client is gone")
    try:
        await _flush(call, transport)
        # The event loop watches the transport's descriptor itself; a second one of the same socket may be watched too.
        socket = os.dup(transport.get_extra_info("socket").fileno())
        try:
            for part in parts:
                await _send_part(socket, *part)
                call.request.writer.output_size += part[2]
        finally:
            os.close(socket)
    except (TimeoutError, ConnectionError) as error:
        call.cut_off()
        raise ConnectionResetError("the client is gone, or takes nothing") from error


async def _flush(call: Call, transport: asyncio.Transport) -> None:
    """Wait until all that was written before is with the kernel."""
    transport.set_write_buffer_limits(high=0)
    try:
        async with asyncio.timeout(STALL_S):
            await call.request.writer.drain()
    finally:
        transport.set_write_buffer_limits()


async def _send_part(socket: int, file: int, position: int, length: int) -> None:
    end = position + length
    while position < end:
        try:
            sent = os.sendfile(socket, file, position, min(PIECE_BYTES, end - position))
        except BlockingIOError:
            await _until_writable(socket)
            continue
        if sent == 0:
            raise OSError("a segment ends inside a batch")
        position += sent
        await asyncio.sleep(0)


async def _until_writable(socket: int) -> None:
    loop = asyncio.get_running_loop()
    writable: asyncio.Future[None] = loop.create_future()
    loop.add_writer(socket, _settle, writable)
    try:
        async with asyncio.timeout(STALL_S):
            await writable
    finally:
        loop.remove_writer(socket)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
