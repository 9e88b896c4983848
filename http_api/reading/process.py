"""The process beside a node that reads large bodies.

It answers one order after the other, from stdin to stdout, and ends at the end of stdin, so it never outlives its node.
It opens no file or socket, and its memory is bounded, so a malicious body can harm this process only.
"""

import os
import resource
import signal
import struct
import sys
import traceback
from pathlib import Path
from typing import BinaryIO

import msgspec
import pyarrow as pa

from ...partition.errors import InvalidRequest, StockadeError
from .work import Answer, Failed, Order, do, refused

MEMORY_BYTES_MAX = 1 << 30
"""Most memory that the process takes for a body and its parsed form, on top of what it holds at its start. A body that
needs more is refused.
"""
HEAD = struct.Struct("<IQ")
"""The frame header. Before an order: the lengths of its MessagePack and of the body, which follow. Before an answer: 0
and its length.
"""

_decode = msgspec.msgpack.Decoder(Order).decode


def serve(orders: BinaryIO, answers: BinaryIO) -> None:
    """Answer every order. Returns at the end of ``orders``."""
    while len(head := orders.read(HEAD.size)) == HEAD.size:
        order_bytes, body_bytes = HEAD.unpack(head)
        order = _decode(orders.read(order_bytes))
        answer = msgspec.msgpack.encode(_answer(order, orders.read(body_bytes)))
        answers.write(HEAD.pack(0, len(answer)))
        answers.write(answer)
        answers.flush()


def _answer(order: Order, body: bytes) -> Answer:
    try:
        return do(order, body)
    except StockadeError as error:
        return refused(error)
    except MemoryError:
        return refused(InvalidRequest(f"body: takes more than {MEMORY_BYTES_MAX} bytes of memory to read"))
    except Exception:
        return Failed(traceback.format_exc())


def main() -> None:
    """Serve stdin and stdout with bounded memory; ignore the terminal's Ctrl-C, which is meant for the node."""
    pa.set_memory_pool(pa.system_memory_pool())  # other pools reserve more than they use
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    held_kib = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0])
    limit = held_kib * 1024 + MEMORY_BYTES_MAX
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a library's prints must not get among the answers
    serve(sys.stdin.buffer, answers)
