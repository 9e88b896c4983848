"""Calls with a JSON answer: encoding, decoding, and repeating what is only momentary.

Every route used this way is safe to repeat, also after an unknown outcome (openapi.yaml says why for each of them).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from ..partition.errors import InternalError, RequestTimedOut, StockadeError
from .config import ClientConfig
from .errors import ClusterUnreachable
from .retry import backoff_s, is_momentary
from .transport import Answer, Request, Transport

T = TypeVar("T")
_JSON = {"Content-Type": "application/json"}


class Calls:
    """The one transport of a client: ``once`` uses it as it is, ``send`` repeats, ``call`` is typed too."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._transport = Transport(config)
        self.once: Callable[[Request], Awaitable[Answer]] = self._transport.request
        self.learn: Callable[[str], None] = self._transport.learn
        self.avoid: Callable[[str], None] = self._transport.avoid
        self.close: Callable[[], Awaitable[None]] = self._transport.close

    async def first_answer(self, path: str) -> Answer:
        """What the first node of the bootstrap list reads that answers. Raises ClusterUnreachable at once.

        A node that hangs must not hide the others, so each has little time; if none is so quick, one has all of it.
        """
        ask = Request(method="GET", path=path)
        nodes = self._config.bootstrap if len(self._config.bootstrap) > 1 else ()
        hurried = [replace(ask, node=node, timeout_ms=self._config.connect_timeout_ms) for node in nodes]
        return await self._first([*hurried, ask], RequestTimedOut)

    async def answer_without(self, node: str, path: str) -> Answer:
        """What another node than this one reads, the first that answers within ``standstill_ms``.

        Raises the refusal of the last one, or ClusterUnreachable.
        """
        ask = Request(method="GET", path=path, only_node=True, timeout_ms=self._config.standstill_ms)
        asks = [replace(ask, node=other) for other in self._transport.nodes if other != node]
        if not asks:
            raise ClusterUnreachable("no other node is known")
        return await self._first(asks, StockadeError)

    async def _first(self, asks: Sequence[Request], passed_over: type[StockadeError]) -> Answer:
        """The first answer. A refusal of that kind is passed over, unless it is the last one's."""
        for ask in asks[:-1]:
            with suppress(passed_over):
                return await self.once(ask)
        return await self.once(asks[-1])

    async def call(self, kind: type[T], method: str, path: str, **request: Any) -> T:
        """``send``, with the answer's body as a ``kind``."""
        return decode(await self.send(method, path, **request), kind)

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        patience_ms: int | None = None,
        **rest: Any,
    ) -> Answer:
        """Send until there is an answer or a refusal that is one, for ``patience_ms`` (None: delivery_timeout_ms).

        ``rest``: fields of transport.Request.
        """
        if body is not None:
            rest["body"] = msgspec.json.encode(body)
            rest["headers"] = {**_JSON, **rest.get("headers", {})}
        deadline_s = time.monotonic() + (patience_ms or self._config.delivery_timeout_ms) / 1000
        attempts = 0
        while True:
            try:
                return await self.once(Request(method=method, path=path, **rest))
            except StockadeError as error:
                attempts += 1
                pause_s = backoff_s(self._config, attempts, error)
                if not is_momentary(error) or time.monotonic() + pause_s > deadline_s:
                    raise
            await asyncio.sleep(pause_s)


def decode(answer: Answer, kind: type[T]) -> T:
    """The JSON body as a ``kind``. Raises InternalError when it is something else."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise InternalError(f"the answer is not what this client understands: {error}") from error


def present(**values: Any) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def quoted(segment: str) -> str:
    """A text as one segment of a path."""
    return quote(segment, safe="")
