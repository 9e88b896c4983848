"""Requests between nodes outside Raft: those that wait for an answer, and those being answered.

A call is never repeated here. Its caller learns which of three it was: surely not sent, answered, or unknown.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count

from .frames import encode
from .messages import Call, Reply

_log = logging.getLogger(__name__)

Handler = Callable[[str, bytes], Awaitable[bytes]]
"""Answers a call: (node id, payload) to answer."""
Send = Callable[[bytes], bool]
"""Sends a frame; False if it was dropped."""

FAILURE_CHARS_MAX = 1000
"""Longest text that tells a caller why its call failed."""


class CallUnknown(TimeoutError):
    """The call was sent, and no answer came in time, or before the node fell silent or was lost. It may have been acted
    on.
    """


class CallFailed(Exception):
    """The other node's handler failed; the text says how."""


class CallRefused(Exception):
    """A handler cannot serve the call now. That is no fault of this node: the caller is told, and nothing is logged."""


class PendingCalls:
    """The calls sent on one connection that wait for their answers: at most ``calls_max``."""

    def __init__(self, send: Send, calls_max: int) -> None:
        self._send = send
        self._calls_max = calls_max
        self._ids = count(1)
        self._answers: dict[int, asyncio.Future[bytes]] = {}

    async def ask(self, payload: bytes, timeout_s: float) -> bytes:
        """Send a call and wait for its answer.

        Raises ConnectionError if it was surely not sent, CallUnknown, CallFailed, or FrameError if it is too long.
        """
        if len(self._answers) >= self._calls_max:
            raise ConnectionError(f"{self._calls_max} calls to this node wait for an answer already")
        call_id = next(self._ids)
        if not self._send(encode(0, Call(call_id, payload))):
            raise ConnectionError("the connection is closing, or too many bytes wait for this node already")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[call_id] = answer
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except CallUnknown:
            raise
        except TimeoutError:
            raise CallUnknown(f"no answer within {timeout_s} s") from None
        finally:
            del self._answers[call_id]

    def settle(self, reply: Reply) -> None:
        """An answer came. One that nobody waits for any more is dropped."""
        answer = self._answers.get(reply.call_id)
        if answer is None or answer.done():
            return
        if reply.ok:
            answer.set_result(reply.payload)
        else:
            answer.set_exception(CallFailed(reply.payload.decode(errors="replace")))

    def lose(self, why: str) -> None:
        """No answer will come, or is worth waiting for: every call that waits is unknown."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(CallUnknown(why))


class CallServer:
    """Runs a handler for each call that comes in: at most ``calls_max`` of one node at a time."""

    def __init__(self, calls_max: int) -> None:
        self._calls_max = calls_max
        self._running: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, peer: str, call: Call, handler: Handler, send: Send) -> None:
        """Start answering; the reply goes to ``send``, which may drop it if the connection is gone by then."""
        if self._running[peer] >= self._calls_max:
            send(_failure(call, f"not started: {self._calls_max} calls of this node are being served already"))
            return
        self._running[peer] += 1
        task = asyncio.get_running_loop().create_task(self._answer(peer, call, handler, send))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel the handlers that run, and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, peer: str, call: Call, handler: Handler, send: Send) -> None:
        try:
            reply = encode(0, Reply(call.call_id, await handler(peer, call.payload), True))
        except Exception as error:
            if not isinstance(error, CallRefused):
                _log.warning("a call of %s failed", peer, exc_info=True)
            reply = _failure(call, f"{type(error).__name__}: {error}")
        finally:
            self._running[peer] -= 1
        send(reply)


async def refuse(node_id: str, payload: bytes) -> bytes:
    """The handler of a node that answers no calls."""
    raise NotImplementedError("this node answers no calls")


def _failure(call: Call, text: str) -> bytes:
    return encode(0, Reply(call.call_id, text[:FAILURE_CHARS_MAX].encode(errors="replace"), False))
