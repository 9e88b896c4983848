"""Sends parts of files to a client by sendfile: the kernel copies from its page cache to the socket.

No byte of a file is in the memory of the process, however slow the client is; a client that takes nothing for STALL_S
is cut off. With TLS the bytes must be encrypted, so they pass through the process, WRITTEN_BYTES at a time; so they do
where no descriptor is left for sendfile.
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from ...partition.errors import ThrottlingQuotaExceeded
from ...partition.log.interface import Run
from ..request.call import STALL_S, Call
from ..request.connections import Descriptors

PIECE_BYTES = 1024 * 1024
"""Most bytes that are sent, or read, before the event loop gets its turn."""
WRITTEN_BYTES = 128 * 1024
"""Most bytes that are written at a time: until the client takes them they are in memory, once for each client."""

_Part = tuple[int, int, int]  # file descriptor, position, bytes


@contextmanager
def opened(runs: Sequence[Run], descriptors: Descriptors) -> Iterator[list[_Part]]:
    """Inside, the files of ``runs`` are open; its value has their parts. Raises FileNotFoundError if one is gone, and
    ThrottlingQuotaExceeded.
    """
    parts: list[_Part] = []
    try:
        for run in runs:
            file = descriptors.opened(partial(os.open, run.segment, os.O_RDONLY | os.O_CLOEXEC))
            parts.append((file, run.position, run.length))
        yield parts
    finally:
        for file, _, _ in parts:
            os.close(file)


def pieces(parts: Sequence[_Part], most: int = PIECE_BYTES) -> Iterator[bytes]:
    """The bytes of all parts, in pieces of at most ``most``. Raises OSError when a file is too short."""
    for file, position, length in parts:
        for place in range(position, position + length, most):
            size = min(most, position + length - place)
            piece = os.pread(file, size, place)
            if len(piece) < size:
                raise OSError("a segment ends inside a batch")
            yield piece


async def send(call: Call, parts: Sequence[_Part]) -> None:
    """Send all parts as the next piece of the body. Raises ConnectionError when the client is gone or takes nothing."""
    transport = call.request.transport
    if transport is None:
        raise ConnectionResetError("the client is gone")
    socket = None
    if not call.is_encrypted and call.peer_node is None:  # the connection between nodes may be encrypted, too
        # The event loop watches the transport's descriptor itself; a second one of the same socket may be watched too.
        with suppress(ThrottlingQuotaExceeded):
            socket = call.context.descriptors.opened(partial(os.dup, transport.get_extra_info("socket").fileno()))
    if socket is None:
        for piece in pieces(parts, WRITTEN_BYTES):
            await call.write(piece)
        return
    try:
        await _flush(call, transport)
        sending = _Sending(socket, parts)
        call.send_past(sending)
        try:
            await sending.done()
        finally:
            call.send_past(None)
        call.request.writer.output_size += sum(length for _, _, length in parts)
    except (TimeoutError, ConnectionError) as error:
        if not transport.is_closing():
            call.cut_off()
        raise ConnectionResetError("the client is gone, or takes nothing") from error
    finally:
        os.close(socket)


async def _flush(call: Call, transport: asyncio.Transport) -> None:
    """Wait until the kernel has all bytes that were written before."""
    transport.set_write_buffer_limits(high=0)
    try:
        async with asyncio.timeout(STALL_S):
            await call.request.writer.drain()
    finally:
        transport.set_write_buffer_limits()


class _Sending:
    """Sends parts of files in a callback of the loop, whenever the socket takes more; no task is woken in between."""

    def __init__(self, socket: int, parts: Sequence[_Part]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket
        self._waiting = list(reversed(parts))
        self._file, self._position, self._left = self._waiting.pop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._has_moved = False
        self._watch = self._loop.call_later(STALL_S, self._check_progress)

    @property
    def left(self) -> int:
        """Bytes that are not sent yet."""
        return self._left + sum(length for _, _, length in self._waiting)

    def stop(self) -> None:
        """Send no more: the connection was closed."""
        if not self._finished.done():
            self._finished.set_exception(ConnectionResetError("the connection was closed"))

    async def done(self) -> None:
        """Return when the kernel has all bytes. Raises OSError, and TimeoutError when the client takes nothing for
        STALL_S.
        """
        self._loop.add_writer(self._socket, self._send)
        try:
            await self._finished
        finally:
            self._loop.remove_writer(self._socket)
            self._watch.cancel()

    def _send(self) -> None:
        if self._finished.done():
            return
        try:
            sent = os.sendfile(self._socket, self._file, self._position, min(PIECE_BYTES, self._left))
        except BlockingIOError:
            return
        except OSError as error:
            self._finished.set_exception(error)
            return
        if sent == 0:
            self._finished.set_exception(OSError("a segment ends inside a batch"))
            return
        self._has_moved = True
        self._position += sent
        self._left -= sent
        if self._left == 0:
            self._take_next()

    def _take_next(self) -> None:
        if self._waiting:
            self._file, self._position, self._left = self._waiting.pop()
        else:
            self._finished.set_result(None)

    def _check_progress(self) -> None:
        """Called every STALL_S: fail if the client has taken nothing since the last call."""
        if self._has_moved:
            self._has_moved = False
            self._watch = self._loop.call_later(STALL_S, self._check_progress)
        elif not self._finished.done():
            self._finished.set_exception(TimeoutError("the client takes nothing"))
