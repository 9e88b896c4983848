"""Reads requests that came in one piece and are as plain as can be; of all others it says that it does not know.

Nothing here guesses: what could be read in two ways is left to the server's own parser. It must never find the end of
a request elsewhere than that parser does.
"""

import re
from functools import lru_cache
from typing import NamedTuple

HEADERS_MAX = 512
"""Most header lines of a request."""
LINE_BYTES_MAX = 512
"""A header line beyond this is left to the server's own parser."""
LINES_REMEMBERED_MAX = 4096
"""Header lines that came before need not be read again."""

_END = b"\r\n\r\n"
_START = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.1")
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([!-~](?:[ -~]*[!-~])?|)[ \t]*")
_LENGTH = re.compile(r"[0-9]{1,9}")
_TUNNEL = b"CONNECT"  # what follows it belongs to no request
_UNFIT = frozenset(("transfer-encoding", "upgrade", "trailer", "proxy-connection"))


class Head(NamedTuple):
    """The head of a request. ``headers`` have names in lower case, each once; ``body_start`` and ``end`` are positions
    in the bytes that it was read from, and ``end`` is beyond them when some of the body has not come.
    """

    method: str
    path: str
    headers: dict[str, str]
    body_start: int
    end: int


def read_head(data: bytes) -> Head | None:
    """The head at the start of ``data``; None: it is not whole, or not plain."""
    end = data.find(_END)
    lines = data[:end].split(b"\r\n") if end > 0 else [b""]
    start = _START.fullmatch(lines[0])
    if start is None or start[1] == _TUNNEL or len(lines) > HEADERS_MAX + 1:
        return None
    try:
        headers = dict(map(_read_line, lines[1:]))
    except _NotPlain:
        return None
    if len(headers) < len(lines) - 1:  # a name came twice
        return None
    length = headers.get("content-length", "0")
    keeps = headers.get("connection", "keep-alive").lower() == "keep-alive"
    if not keeps or "host" not in headers or not _LENGTH.fullmatch(length) or not _UNFIT.isdisjoint(headers):
        return None
    body_start = end + len(_END)
    return Head(start[1].decode(), start[2].decode(), headers, body_start, body_start + int(length))


class _NotPlain(Exception):
    """A line that is left to the server's own parser, and is not remembered."""


@lru_cache(LINES_REMEMBERED_MAX)
def _read_line(line: bytes) -> tuple[str, str]:
    found = _LINE.fullmatch(line) if len(line) <= LINE_BYTES_MAX else None
    if found is None:
        raise _NotPlain
    return found[1].decode().lower(), found[2].decode()
