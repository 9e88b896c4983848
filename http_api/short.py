"""What a handler on the short way (lane.py) sees of its request, and how it answers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol, cast

from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from .framing import Head
from .plain import Plain

RequestHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""A handler of aiohttp's kind."""


class Connection(Protocol):
    """Where a request came from. It is answered once, in one of the two ways."""

    transport: asyncio.Transport | None

    def answer(self, response: web.Response | Plain) -> None:
        """Send this."""
        ...

    def answer_later(self, work: Awaitable[web.StreamResponse | Plain]) -> None:
        """Send what ``work`` makes, when it has."""
        ...


class Body(NamedTuple):
    """A body that is there."""

    data: bytes

    def is_eof(self) -> bool:
        """All of it has come."""
        return True

    def read_nowait(self) -> bytes:
        """The whole of it."""
        return self.data


class Request:
    """As much of ``aiohttp.web.Request`` as the handlers of frequent routes look at."""

    __slots__ = ("_headers", "body", "connection", "head", "match_info")
    raw_headers: tuple[tuple[bytes, bytes], ...] = ()  # their size was looked at

    def __init__(self, connection: Connection, head: Head, match_info: dict[str, str], body: bytes) -> None:
        self.connection: Connection = connection
        self.head: Head = head
        self._headers: CIMultiDict[str] | None = None
        self.match_info: dict[str, str] = match_info
        self.body: bytes = body

    @property
    def method(self) -> str:
        """GET, and the like."""
        return self.head.template.method

    @property
    def raw_path(self) -> str:
        """Path and query, as they came."""
        return self.head.template.path

    @property
    def fields(self) -> Mapping[str, str]:
        """The headers, by name in lower case."""
        return self.head.headers

    @property
    def content(self) -> Body:
        """The body, as a stream that is at its end."""
        return Body(self.body)

    @property
    def headers(self) -> CIMultiDict[str]:
        """The headers, by name."""
        if self._headers is None:
            self._headers = CIMultiDict(self.fields)
        return self._headers

    @property
    def content_length(self) -> int:
        """Bytes of the body."""
        return len(self.body)

    @property
    def rel_url(self) -> URL:
        """Path and query, as they came."""
        return URL(self.raw_path, encoded=True)

    @property
    def transport(self) -> asyncio.Transport | None:
        """None when the client is gone."""
        return self.connection.transport

    def leave_to(self, handler: RequestHandler) -> None:
        """Let a handler of aiohttp's kind answer."""
        self.connection.answer_later(handler(cast(web.Request, self)))


Starter = Callable[[Request], bool]
"""Begins the short way of a request, whose connection is answered sooner or later. False: nothing was begun."""
