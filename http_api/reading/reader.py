"""Reads bodies: light ones on the event loop, others in a process beside the node."""

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, TypeVar, cast

import msgspec

from ...partition.errors import InternalError, ThrottlingQuotaExceeded
from ...partition.records.batch import Batch
from ..codec import json_codec
from ..codec.media import JSON
from .process import HEAD
from .work import (
    Answer,
    BatchRead,
    Failed,
    JsonRead,
    Order,
    ReadBatch,
    ReadJson,
    Refused,
    SplitBatches,
    SplitRead,
    do,
    is_light,
    name_of,
)

PROCESSES_MAX = 2
"""Most processes of a node that read bodies; each is started when it is first needed."""
WAITING_MAX = 64
"""Most bodies that a process reads, or that wait for one; a further body is refused as THROTTLING_QUOTA_EXCEEDED."""
READ_S = 10.0
"""Time in which a process must read a body, its own start included; then it is killed."""
IDLE_S = 60.0
"""Time without work after which the processes are ended."""
RETRY_AFTER_MS = 1000

_MODULE = "stockade.http_api.reading.process"
_Shape = TypeVar("_Shape")
_log = logging.getLogger(__name__)
_decode: Callable[[bytes], Answer] = msgspec.msgpack.Decoder(Answer).decode


class BodyReader:
    """Reads the bodies of one node's requests."""

    def __init__(self, start: Callable[[], "subprocess.Popen[bytes]"] | None = None) -> None:
        """``start`` starts a process; by default this interpreter with the module ``process``."""
        self._start = start or _start
        self._threads: ThreadPoolExecutor | None = None
        self._idle: list[_Process] = []
        self._lock = threading.Lock()
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    async def batch(self, form: str, body: bytes, *, now_ms: int, batch_bytes_max: int) -> Batch:
        """The batch of an append to one partition. Raises as ``decode.read_batch``, and ThrottlingQuotaExceeded."""
        return cast(BatchRead, await self._do(ReadBatch(form, now_ms, batch_bytes_max), body)).batch

    async def split(self, order: SplitBatches, body: bytes) -> SplitRead:
        """The batches of an append by key. Raises as ``batch`` does."""
        return cast(SplitRead, await self._do(order, body))

    async def json(self, body: bytes, shape: type[_Shape]) -> _Shape:
        """The JSON text decoded as ``shape``. Raises InvalidRequest, MessageTooLarge, ThrottlingQuotaExceeded."""
        if is_light(JSON, body):
            return json_codec.read(body, shape)
        answer = cast(JsonRead, await self._do(ReadJson(name_of(shape)), body))
        return msgspec.msgpack.decode(answer.value, type=shape)

    async def close(self) -> None:
        """Wait for the reads in progress, then end the processes."""
        if self._timer is not None:
            self._timer.cancel()
        if self._threads is not None:
            await asyncio.to_thread(self._threads.shutdown)
        self._end_idle()

    async def _do(self, order: Order, body: bytes) -> object:
        if order.is_light(body):
            return do(order, body)
        if self._waiting >= WAITING_MAX:
            raise ThrottlingQuotaExceeded("the node reads too many large bodies already", retry_after_ms=RETRY_AFTER_MS)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(PROCESSES_MAX, thread_name_prefix="reader")
        loop = asyncio.get_running_loop()
        self._waiting += 1
        try:
            answer = await loop.run_in_executor(self._threads, self._ask, order, body)
        finally:
            self._waiting -= 1
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(IDLE_S, self._end_idle)
        if isinstance(answer, Refused):
            raise answer.error()
        if isinstance(answer, Failed):
            _log.error("reading a body met a bug: %s", answer.text)
            raise InternalError()
        return answer

    def _ask(self, order: Order, body: bytes) -> Answer:
        """In a thread: the answer of an idle process, or of a new one. A process whose ``ask`` raised is not reused."""
        with self._lock:
            process = self._idle.pop() if self._idle else None
        process = process or _Process(self._start())
        answer = process.ask(order, body)
        with self._lock:
            self._idle.append(process)
        return answer

    def _end_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()


class _Process:
    """A process that reads bodies, used by one thread at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def ask(self, order: Order, body: bytes) -> Answer:
        """The answer to an order. Raises ThrottlingQuotaExceeded when the answer does not come within READ_S, or the
        process ends; the process has ended then. The error is retriable, because the body need not be at fault: the
        machine may be busy.
        """
        late = threading.Event()
        timer = threading.Timer(READ_S, self._kill, [late])
        timer.start()
        try:
            packed = msgspec.msgpack.encode(order)
            orders, answers = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
            for piece in (HEAD.pack(len(packed), len(body)), packed, body):
                orders.write(piece)
            orders.flush()
            head = answers.read(HEAD.size)
            size = HEAD.unpack(head)[1] if len(head) == HEAD.size else 1
            answer = answers.read(size)
        except OSError:
            answer, size = b"", 1
        finally:
            timer.cancel()
            timer.join()
        if len(answer) == size and not late.is_set():
            return _decode(answer)
        self.end()
        why = f"was not read within {READ_S:.0f} s" if late.is_set() else "was being read by a process that ended"
        raise ThrottlingQuotaExceeded(f"the body {why}", retry_after_ms=RETRY_AFTER_MS)

    def end(self) -> None:
        """Close the pipes, kill the process, and wait for its end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.kill()
        self._process.wait()

    def _kill(self, late: threading.Event) -> None:
        late.set()
        self._process.kill()


def _start() -> "subprocess.Popen[bytes]":
    code = f"import sys; sys.path[:] = {sys.path!r}; from {_MODULE} import main; main()"
    return subprocess.Popen(  # a list of words, no shell  # noqa: S603  # nosec B603
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
