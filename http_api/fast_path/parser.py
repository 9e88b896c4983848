"""Reads the heads of plain requests that came in one piece; all others are left to aiohttp's parser.

This parser never guesses: a request that could be read in two ways is not plain. Invariant: where this parser finds the
end of a request, aiohttp's parser finds the same end.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple, Self

HEADERS_MAX = 512
"""Most header lines of a request."""
LINE_BYTES_MAX = 512
"""A request with a longer header line is left to aiohttp's parser."""
LINES_REMEMBERED_MAX = 4096
"""Header lines whose parsed form is cached."""

HEADS_REMEMBERED_MAX = 1024
"""Heads, with the varying value taken out, whose parsed form is cached."""
HEAD_BYTES_MAX = 4096
"""A request with a longer head is left to aiohttp's parser."""


class Varying(NamedTuple):
    """A header whose value differs between requests of a client that have the same head otherwise. ``start``: the exact
    bytes before the value. Spelled otherwise, or with a value that does not match ``fits``, it is like any header.
    """

    name: str
    start: bytes
    fits: Callable[[bytes], object]

    @classmethod
    def of(cls, name: str, value: bytes) -> Self:
        """The header ``name``, whose values match the regular expression ``value`` (bytes of a plain header only)."""
        return cls(name.lower(), b"\r\n" + name.encode() + b": ", re.compile(value).fullmatch)


SEQUENCE = Varying.of("Stockade-Producer-Seq", rb"[0-9]{1,10}")
"""Header that varies between the appends of a writer."""
SESSION = Varying.of("Stockade-Session", rb"[!-~]{1,64}")
"""Header that varies between renewals of many sessions over one connection. Renewals are PUTs, appends are not."""

_PUT = b"PUT "
_END = b"\r\n\r\n"
_LINE_END = b"\r\n"
_START = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.1")
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([!-~](?:[ -~]*[!-~])?|)[ \t]*")
_LENGTH = re.compile(r"[0-9]{1,9}")
_TUNNEL = b"CONNECT"  # what follows it belongs to no request
_UNFIT = frozenset(("transfer-encoding", "upgrade", "trailer", "proxy-connection"))


class HeadTemplate:
    """The parsed head that requests share which differ only in the value of ``Varying``. ``headers`` has every other
    header once, by name in lower case; ``length`` is the body's, in bytes.
    """

    __slots__ = ("headers", "length", "method", "path", "readings")

    def __init__(self, method: str, path: str, headers: dict[str, str], length: int) -> None:
        self.method: str = method
        self.path: str = path
        self.headers: Mapping[str, str] = headers
        self.length: int = length
        self.readings: dict[bool, object] = {}
        """Results that a fast path derives from the head once, by whether requests also have the varying header."""


class Head(NamedTuple):
    """The head of a request. ``value``: of the header ``varying``; None: it is absent, or in ``template.headers``.
    ``body_start`` and ``end`` (of the request) are positions in the bytes that were parsed; ``end`` is beyond these
    bytes when a part of the body has not come yet.
    """

    template: HeadTemplate
    varying: Varying
    value: str | None
    body_start: int
    end: int

    @property
    def headers(self) -> Mapping[str, str]:
        """All headers, by name in lower case."""
        known = self.template.headers
        return known if self.value is None else {**known, self.varying.name: self.value}


def read_head(data: bytes) -> Head | None:
    """The head at the start of ``data``; None: it is not whole, or not plain."""
    end = data.find(_END, 0, HEAD_BYTES_MAX)
    if end <= 0:
        return None
    varying = SESSION if data.startswith(_PUT) else SEQUENCE
    lines, value = _without(varying, data, end)
    try:
        template = _read(lines)
    except _NotPlain:
        return None
    if value is not None and varying.name in template.headers:  # it came twice
        return None
    body_start = end + len(_END)
    return Head(template, varying, value, body_start, body_start + template.length)


def _without(varying: Varying, data: bytes, end: int) -> tuple[bytes, str | None]:
    """Split the head before ``end`` into the bytes that a client's requests share, and the value of ``varying``. None:
    the head has no value that ``fits``.
    """
    at = data.find(varying.start, 0, end)
    if at > 0:
        begin = at + len(varying.start)
        stop = data.find(_LINE_END, begin, end)
        value = data[begin : stop if stop > 0 else end]
        if varying.fits(value):
            return data[:at] + data[begin + len(value) : end], value.decode()
    return data[:end], None


class _NotPlain(Exception):
    """The request is left to aiohttp's parser. An exception, because lru_cache does not cache a call that raises."""


@lru_cache(HEADS_REMEMBERED_MAX)
def _read(head: bytes) -> HeadTemplate:
    lines = head.split(_LINE_END)
    start = _START.fullmatch(lines[0])
    if start is None or start[1] == _TUNNEL or len(lines) > HEADERS_MAX:  # the varying one may come on top
        raise _NotPlain
    headers = dict(map(_read_line, lines[1:]))
    length = headers.get("content-length", "0")
    keeps = headers.get("connection", "keep-alive").lower() == "keep-alive"
    is_clear = len(headers) == len(lines) - 1 and _LENGTH.fullmatch(length)  # no name came twice
    if not is_clear or not keeps or "host" not in headers or not _UNFIT.isdisjoint(headers):
        raise _NotPlain
    return HeadTemplate(start[1].decode(), start[2].decode(), headers, int(length))


@lru_cache(LINES_REMEMBERED_MAX)
def _read_line(line: bytes) -> tuple[str, str]:
    found = _LINE.fullmatch(line) if len(line) <= LINE_BYTES_MAX else None
    if found is None:
        raise _NotPlain
    return found[1].decode().lower(), found[2].decode()
