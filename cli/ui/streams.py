"""The standard streams of the process: opens closed ones, finds out whether standard output takes bytes, and writes to
it without stopping the event loop.
"""

import asyncio
import io
import os
import select
import stat
import sys
from pathlib import Path

_WAIT_MS = 100
"""How long a thread waits for a pipe to take bytes: the end of the process waits for such a thread."""


def open_closed_streams() -> None:
    """Open /dev/null in place of each of the descriptors 0, 1 and 2 that the caller has closed. Otherwise the next
    socket would get that number, and with it the command's output, and the event loop would end the process at its
    closing.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", encoding="utf-8"))


def output_fault() -> OSError | None:
    """The error with which standard output refuses bytes (its disk is full, say), or has refused bytes that are still
    buffered; None if there is no sign that it would.
    """
    try:
        sys.stdout.flush()  # fails again if bytes that were refused are still buffered
        os.write(sys.stdout.fileno(), b"")  # a full device refuses even an empty write
    except io.UnsupportedOperation:
        return None
    except OSError as error:
        return error
    return None


async def write_out(content: bytes) -> None:
    """Write to standard output, and flush it. Where that is a pipe or a socket, the event loop runs while its reader
    takes nothing. Raises OSError.
    """
    sys.stdout.buffer.flush()
    descriptor = _piped()
    if descriptor is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    room, left = select.poll(), memoryview(content)
    room.register(descriptor, select.POLLOUT)
    while left:
        while not room.poll(0):
            await asyncio.to_thread(room.poll, _WAIT_MS)
        left = left[os.write(descriptor, left[: select.PIPE_BUF]) :]  # a pipe with room takes so many without a wait


def _piped() -> int | None:
    """The descriptor of standard output, if that is a pipe or a socket."""
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:
        return None
    mode = os.fstat(descriptor).st_mode
    return descriptor if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


def is_output_null() -> bool:
    """Whether standard output is /dev/null: the caller wants to see nothing, or has closed it."""
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), Path(os.devnull).stat())
    except io.UnsupportedOperation:
        return False
