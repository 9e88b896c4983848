"""How three parsers read the same bytes: the fast path's, aiohttp's (llhttp), and h11, which is written from RFC 9112
alone.

A request that two of them read in two ways is what smuggling is made of: a proxy sees one request where the node sees
two. That one refuses what another takes is no difference of that kind: the node closes the connection then.
"""

import asyncio
from typing import NamedTuple

import h11
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser

from stockade.http_api.endpoint.dispatch import HEADER_BYTES_MAX
from stockade.http_api.fast_path.parser import HEADERS_MAX, read_head


class Read(NamedTuple):
    """A request as it was read: names of headers in lower case, in the order in which they came."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


def by_fast_path(data: bytes) -> list[Read]:
    """The plain requests at the start of ``data``."""
    found = []
    while (head := read_head(data)) is not None and head.end <= len(data):
        template = head.template
        found.append(
            Read(template.method, template.path, sorted(head.headers.items()), data[head.body_start : head.end])
        )
        data = data[head.end :]
    return found


def by_aiohttp(data: bytes) -> list[Read]:
    """The whole requests before the first that is refused; none if any is, since aiohttp then tells of none."""
    loop = asyncio.new_event_loop()
    try:
        protocol = BaseProtocol(loop)
        protocol._parser = parser = HttpRequestParser(
            protocol,
            loop,
            2**16,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            max_headers=HEADERS_MAX,
            auto_decompress=False,
        )
        try:
            messages, _, _ = parser.feed_data(data)
        except HttpProcessingError:
            return []
        return [
            Read(
                message.method,
                message.path,
                sorted(
                    (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in message.raw_headers
                ),
                b"".join(piece for piece in payload._buffer) if hasattr(payload, "_buffer") else b"",
            )
            for message, payload in messages
            if payload.is_eof() and payload.exception() is None
        ]
    finally:
        loop.close()


def by_h11(data: bytes) -> list[Read]:
    """The whole requests before the first that is refused."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX * 2)
    found: list[Read] = []
    try:
        connection.receive_data(data)
        while True:
            request = connection.next_event()
            if not isinstance(request, h11.Request):
                return found
            body = b""
            while isinstance(event := connection.next_event(), h11.Data):
                body += bytes(event.data)
            if not isinstance(event, h11.EndOfMessage):
                return found
            headers = sorted((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers)
            found.append(Read(request.method.decode(), request.target.decode("latin-1"), headers, body))
            connection.send(h11.Response(status_code=204, headers=[]))
            connection.send(h11.EndOfMessage())
            connection.start_next_cycle()
    except (h11.RemoteProtocolError, h11.LocalProtocolError):
        return found


def difference(data: bytes) -> str | None:
    """What two parsers read differently in ``data``; None: nothing that both take. What follows CONNECT is a tunnel for
    aiohttp (RFC 9110, 9.3.6) and a body for h11; the node has no such route, and a proxy passes none on.
    """
    read = {"fast path": by_fast_path(data), "aiohttp": by_aiohttp(data), "h11": by_h11(data)}
    names = list(read)
    for first, second in ((names[0], names[1]), (names[0], names[2]), (names[1], names[2])):
        for mine, theirs in zip(read[first], read[second], strict=False):
            if "CONNECT" in (mine.method, theirs.method):
                break
            if mine != theirs:
                return f"{first} reads {mine}, {second} {theirs}"
    return None
