"""Reads bodies of requests, never more than is allowed.

A body that says beforehand that it is too large is refused before it is read, and its sender is not told to
continue.
"""

import asyncio

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError

from ..partition.errors import InvalidRequest, MessageTooLarge
from . import media
from .call import Call, unless_ended

JSON_BYTES_MAX = 1024 * 1024
"""Largest JSON body, appends aside."""
ARRIVAL_S = 30.0
"""Time in which a body must have come whole."""


async def read(call: Call, bytes_max: int) -> bytes:
    """The body, kept in ``call.body`` too for passing it on, and for being read again. Raises MessageTooLarge,
    InvalidRequest, ThrottlingQuotaExceeded, and LeaderNotAvailable when the node stops before the body has come.
    """
    if call.has_body:
        return _within(call.body, bytes_max)
    declared = call.request.content_length
    if declared is not None and declared > bytes_max:
        raise MessageTooLarge(limit=bytes_max, unit="bytes")
    try:
        if call.request.content.is_eof():  # it came with its headers: nothing to wait for
            call.body = _whole(call, bytes_max)
        else:
            async with asyncio.timeout(ARRIVAL_S):
                await _invite(call.request)
                call.body = await unless_ended(call, _collect(call, bytes_max))
    except TimeoutError:
        raise InvalidRequest(f"body: did not come within {ARRIVAL_S:.0f} s") from None
    except (web.RequestPayloadError, HttpProcessingError) as error:
        raise InvalidRequest(f"body: {error}") from error
    call.has_body = True
    return call.body


async def read_json(call: Call) -> bytes:
    """The body of a route that takes JSON. Raises UnsupportedMediaType too."""
    check_type(call, (media.JSON,))
    return await read(call, JSON_BYTES_MAX)


def check_type(call: Call, accepted: tuple[str, ...]) -> str:
    """The media type of the body, one of ``accepted``. Raises UnsupportedMediaType."""
    headers = call.request.headers
    return media.body_type(headers.get("Content-Type"), headers.get("Content-Encoding"), accepted)


async def expect_nothing(request: web.Request) -> None:
    """Expect: 100-continue is answered when the body is about to be read, not before."""


async def _invite(request: web.Request) -> None:
    """A client of HTTP/1.0 knows no answer before the answer."""
    if request.version >= HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def _whole(call: Call, bytes_max: int) -> bytes:
    body = _within(call.request.content.read_nowait(), bytes_max)
    _hold(call, len(body) - call.held_bytes)
    return body


def _within(body: bytes, bytes_max: int) -> bytes:
    if len(body) > bytes_max:
        raise MessageTooLarge(limit=bytes_max, unit="bytes")
    return body


async def _collect(call: Call, bytes_max: int) -> bytes:
    chunks = []
    size = 0
    while chunk := await call.request.content.readany():
        size += len(chunk)
        if size > bytes_max:
            raise MessageTooLarge(limit=bytes_max, unit="bytes")
        _hold(call, size - call.held_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def _hold(call: Call, count: int) -> None:
    if count > 0:
        call.context.bodies.take(count)
        call.held_bytes += count
