"""One request on its way: what its handler sees of it, how its body is read, and how it is answered.

A body is never read beyond what is allowed. One whose Content-Length is too large is refused before it is read, and its
client gets no 100 Continue.
"""

import asyncio
import os
import secrets
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import structs

from ...cluster.access.quotas import Spending
from ...cluster.access.rights import Caller, Kind, Verb
from ...cluster.api import Partition, Service
from ...cluster.front.front import Front, unless_ended
from ...cluster.https import ClientCertificate
from ...cluster.model import By, Leader
from ...partition.errors import InvalidRequest, MessageTooLarge, NotLeaderOrFollower
from ..codec import json_codec, media
from ..codec.parameters import Parameters
from ..reading.work import INLINE_BYTES_MAX
from .context import Context
from .peers import CLIENT_ADDRESS, CLIENT_CERTIFICATE, FORWARDED_BY
from .stalls import Asked

DEADLINE_S = 10.0
"""Time to reach a leader that answers, on top of the time that the request itself asks to wait."""
JSON_BYTES_MAX = 1024 * 1024
"""Largest JSON body, appends aside."""
ARRIVAL_S = 30.0
"""Time in which a body must have come whole."""
ARRIVAL_START_S = 10.0
"""Time for a body without a byte of it; each SLOWEST_BODY_BYTES_PER_S that have come add a second, up to ARRIVAL_S."""
SLOWEST_BODY_BYTES_PER_S = 4 * 1024
STALL_S = 30.0
"""Time in which a client must take some of its answer."""
UNKNOWN_LEADER = Leader(None, None, 0)

_NO_LINGERING = struct.pack("ii", 1, 0)
_UNREAD = Parameters({}, (), (), ())

_Shape = TypeVar("_Shape")

RequestHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""A handler of aiohttp's kind."""
Handler = Callable[["Call"], Awaitable[web.StreamResponse]]


class FastPath(Protocol):
    """Answers requests of one route past aiohttp; made of the route, what all handlers share, and the route's endpoint,
    which answers what is not plain.
    """

    def start(self, request: Any) -> bool:
        """Begin: the request's connection (fast_path) is answered sooner or later. False: nothing was begun."""
        ...


class Need(NamedTuple):
    """A right that a request must have. ``parameter``: the parameter of the path that has the name; None: the name
    comes in the body, and the handler asks for the right on it, or the kind has no names.
    """

    verb: Verb
    kind: Kind
    parameter: str | None = None


@dataclass(frozen=True)
class Route:
    """One operation.

    ``group``: whose leader decides it. ``query``: its query parameters; ``repeated``: those that may occur several
    times. ``answers_json``: a client that does not accept JSON gets 406. ``fast``: the fast path of a route whose
    requests are frequent and whose answers are small. ``needs``: the rights that a caller must have, none for any
    principal (None: a stranger may, too). ``checks_page``: pages of elsewhere in a browser are refused (boundary.py);
    not so where the answer says nothing, so that a load balancer may ask under any name. ``is_metered``: it counts for
    the caller's quota; not so what keeps alive, or gives up, what the caller has.
    """

    method: str
    path: str
    handler: Handler
    group: Literal["controller", "partition", "node"]
    query: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    answers_json: bool = True
    deadline_s: float = DEADLINE_S
    fast: Callable[["Route", Context, RequestHandler], FastPath] | None = None
    checks_page: bool = True
    is_metered: bool = True
    needs: tuple[Need, ...] | None = field(kw_only=True)

    def check(self, caller: Caller, path: Mapping[str, str]) -> None:
        """Raises PermissionDenied unless the caller has what the route needs, with these parameters of the path."""
        for verb, kind, parameter in self.needs or ():
            if parameter is not None or kind == "cluster":
                caller.require(verb, kind, "" if parameter is None else path[parameter])
            else:
                caller.require_some(verb, kind)


class _FileStream(web.StreamResponse):
    """A stream of known length, parts of which do not pass through aiohttp."""

    _length_check = False


class Call:
    """One request on its way: a ``cluster.front.front.Request``.

    ``held_requests``, ``held_body_bytes`` and ``held_answer_bytes`` are what it has taken of ``front.in_flight``;
    ``wait_s`` is the time that the request itself asks to wait.
    """

    def __init__(self, request: web.Request, context: Context, route: Route) -> None:
        self.request = request
        self.context = context
        self.route = route
        self.front: Front = context.front
        self.service: Service = context.front.service
        self.parameters: Parameters = _UNREAD
        self.body: bytes = b""
        self.has_body: bool = False
        self.held_requests: int = 0
        self.held_body_bytes: int = 0
        self.held_answer_bytes: int = 0
        self.held_for: Spending | None = None
        self.wait_s: float = 0.0
        self.partition: Partition | None = None
        self.decided_by: Leader | None = None
        self.stream: web.StreamResponse | None = None
        self.is_answered: bool = False

    @cached_property
    def id(self) -> str:
        """The request's id, in its problem and in the log."""
        return secrets.token_hex(8)

    @property
    def accept(self) -> str:
        """The Accept headers as one; empty when there is none, which accepts everything."""
        return ",".join(self.request.headers.getall("Accept", ()))

    @property
    def is_forwarded(self) -> bool:
        """Whether a node forwarded this, or a client asked that no node does."""
        return FORWARDED_BY in self.request.headers

    @property
    def is_encrypted(self) -> bool:
        """Whether the client speaks TLS with this node."""
        return bool(getattr(self.request.protocol, "is_encrypted", False))

    @property
    def peer_node(self) -> str | None:
        """The node that forwarded this, over an authenticated connection; None: it came from a client."""
        found: str | None = getattr(self.request.protocol, "peer_node", None)
        return found

    @property
    def certificate(self) -> ClientCertificate | None:
        """The verified certificate of the client: it has shown it to this node, or to the node that forwarded this.

        Raises Unauthenticated when it has expired since.
        """
        if self.peer_node is not None:
            told = self.request.headers.get(CLIENT_CERTIFICATE)
            return None if told is None else json_codec.read(told.encode(), ClientCertificate)
        found: ClientCertificate | None = getattr(self.request.protocol, "certificate", None)
        return found

    @property
    def must_reconnect(self) -> bool:
        """Whether the client has shown this node a certificate that has expired since."""
        return self.peer_node is None and bool(getattr(self.request.protocol, "has_expired", False))

    @property
    def is_answering(self) -> bool:
        """Whether a streamed answer has begun."""
        return self.stream is not None

    @cached_property
    def caller(self) -> Caller:
        """Whose request this is. Raises Unauthenticated."""
        return self.front.access.caller(self.request.headers.get("Authorization"), self.certificate)

    def check_rights(self) -> None:
        """For a request that has taken long: a body that came late, a wait, a stream. Raises Unauthenticated,
        PermissionDenied when the caller would not be let in any more.
        """
        if self.route.needs is not None:
            self.caller = self.front.access.caller(self.request.headers.get("Authorization"), self.certificate)
            self.route.check(self.caller, self.request.match_info)

    @property
    def by(self) -> By:
        """The caller, for a request that takes nothing over."""
        return By(self.caller.principal, request=self.id, client=self.client)

    def by_name(self, kind: Kind, *names: str, most: int | None = None) -> By:
        """The caller, for a request that may take over the objects of these names."""
        return structs.replace(self.caller.by(kind, *names, most=most), request=self.id, client=self.client)

    @property
    def client(self) -> str:
        """The address that the request came from; a node that forwards it tells it. Empty: not known."""
        if self.peer_node is not None:
            return self.request.headers.get(CLIENT_ADDRESS, "")
        return self.request.remote or ""

    def by_most(self, what: Literal["sessions", "topics"]) -> By:
        """The caller, for a request that makes an object whose number its quota may bound."""
        most: int | None = getattr(self.caller.spending.quota, what)
        return structs.replace(self.by, most=most)

    def admit(self) -> None:
        """Count the request for its caller. A node that passes a request on has counted it. Raises
        ThrottlingQuotaExceeded.
        """
        if self.route.is_metered and self.peer_node is None:
            self.front.admit(self.caller.spending)
            self.held_for = self.caller.spending

    def credentials(self) -> dict[str, str]:
        """What a node must send along when it asks another node on behalf of this call: who the client is."""
        authorization, certificate = self.request.headers.get("Authorization"), self.certificate
        told = {CLIENT_ADDRESS: self.client}
        if authorization is not None:
            told["Authorization"] = authorization
        return told if certificate is None else told | {CLIENT_CERTIFICATE: json_codec.dump(certificate).decode()}

    @property
    def has_small_body(self) -> bool:
        """Whether the body is small, as its Content-Length says."""
        size = self.request.content_length
        return size is not None and size <= INLINE_BYTES_MAX

    def leader_headers(self) -> dict[str, str]:
        """Stockade-Leader and Stockade-Leader-Term of the group that decides this, as far as this node knows; nothing
        on routes that no group decides.
        """
        if self.route.group == "node":
            return {}
        leader = self.decided_by
        if leader is None and self.partition is not None:
            leader = self.partition.leader()
        elif leader is None:
            leader = self.service.controller() if self.route.group == "controller" else UNKNOWN_LEADER
        return {"Stockade-Leader": leader.url or "", "Stockade-Leader-Term": str(leader.term)}

    def body_type(self, accepted: tuple[str, ...]) -> str:
        """The media type of the body, one of ``accepted``. Raises UnsupportedMediaType."""
        headers = self.request.headers
        codings = ",".join(headers.getall("Content-Encoding", ()))
        return media.body_type(headers.get("Content-Type", ""), codings, accepted)

    async def read_json(self, shape: type[_Shape]) -> _Shape:
        """The JSON body as ``shape``. Raises UnsupportedMediaType, and as ``read`` does."""
        self.body_type((media.JSON,))
        return await self.context.reader.json(await self.read(JSON_BYTES_MAX), shape)

    async def read(self, bytes_max: int) -> bytes:
        """The body, kept in ``body`` for forwarding and for further reads. Raises MessageTooLarge, InvalidRequest,
        ThrottlingQuotaExceeded, and LeaderNotAvailable when the node stops before the body has come.
        """
        content = self.request.content
        size = len(self.body) if self.has_body else self.request.content_length
        if size is not None and size > bytes_max:
            raise MessageTooLarge(limit=bytes_max, unit="bytes")
        if self.has_body:
            return self.body
        try:
            if content.is_eof():  # the body came with the headers: no wait
                self.body = content.read_nowait()
                self._hold_body(len(self.body), bytes_max)
            else:
                self.body = await self._arrived(bytes_max)
                self.check_rights()
        except TimeoutError:
            slow = f"{ARRIVAL_S:.0f} s, or more slowly than {SLOWEST_BODY_BYTES_PER_S} bytes a second"
            raise InvalidRequest(f"body: did not come within {slow}") from None
        except (web.RequestPayloadError, HttpProcessingError) as error:
            raise InvalidRequest(f"body: {error}") from error
        self.has_body = True
        return self.body

    async def _arrived(self, bytes_max: int) -> bytes:
        """The body, when it has come whole. Raises TimeoutError when it takes too long."""
        in_flight = self.front.in_flight
        in_flight.take(arriving=1)
        try:
            async with asyncio.timeout(min(ARRIVAL_START_S, ARRIVAL_S)) as limit:
                await self._invite()
                return await unless_ended(self, self._collect(bytes_max, limit))
        finally:
            in_flight.give_back(arriving=1)

    async def _invite(self) -> None:
        """Answer 100 Continue if the client expects it; a client of HTTP/1.0 knows no such answer."""
        request = self.request
        if request.version >= HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0

    async def _collect(self, bytes_max: int, limit: asyncio.Timeout) -> bytes:
        """The pieces of the body as they come, each of which moves the ``limit``."""
        began_s = asyncio.get_running_loop().time()
        chunks = []
        size = 0
        while chunk := await self.request.content.readany():
            size += len(chunk)
            self._hold_body(size, bytes_max)
            chunks.append(chunk)
            limit.reschedule(began_s + min(ARRIVAL_S, ARRIVAL_START_S + size / SLOWEST_BODY_BYTES_PER_S))
        return b"".join(chunks)

    def _hold_body(self, size: int, bytes_max: int) -> None:
        """Make room for a body, of which ``size`` bytes have come. Raises MessageTooLarge, ThrottlingQuotaExceeded."""
        if size > bytes_max:
            raise MessageTooLarge(limit=bytes_max, unit="bytes")
        more = size - self.held_body_bytes
        if more > 0:
            self.front.in_flight.take(body_bytes=more)
            self.held_body_bytes = size
            self.spend_bytes(more)

    def hold_requests(self, count: int, at_once: int) -> None:
        """Count this request as ``count`` requests, one for each append in it, of which ``at_once`` are under way at a
        time at most. Raises ThrottlingQuotaExceeded.
        """
        held = min(count, at_once)
        more = held - self.held_requests
        self.front.in_flight.take(requests=more)
        self.held_requests = held
        if self.held_for is not None:
            self.held_for.held_requests += more
            self.front.check_share(self.held_for)
            self.held_for.spend_requests(count - 1)

    def hold_answer(self, count: int) -> None:
        """Make room for an answer of about ``count`` bytes in all. Raises ThrottlingQuotaExceeded."""
        more = max(0, count - self.held_answer_bytes)
        self.front.in_flight.take(answer_bytes=more)
        self.held_answer_bytes += more

    def spend_bytes(self, count: int) -> None:
        """Count bytes of the body, or of records that are sent, for the caller."""
        if self.held_for is not None:
            self.held_for.spend_bytes(count)

    async def pay(self, count: int) -> None:
        """Count bytes of records that were sent, and wait until the caller's quota has room for more."""
        self.spend_bytes(count)
        if self.held_for is not None and (lacking_s := self.held_for.lacking_s()) > 0:
            await unless_ended(self, asyncio.sleep(lacking_s))

    def finish_later(self, append: Coroutine[Any, Any, object]) -> None:
        """Let ``append`` go on after the answer; the body counts as held until it ends. Raises
        ThrottlingQuotaExceeded.
        """
        held = self.held_body_bytes
        self.front.unacked.start(append, lambda: self.front.in_flight.give_back(body_bytes=held))
        self.held_body_bytes = 0
        self.is_answered = True

    def is_gone(self) -> bool:
        """Whether the client has closed the connection before it was answered."""
        transport = self.request.transport
        return not self.is_answered and (transport is None or transport.is_closing())

    async def start_stream(self, status: int, headers: dict[str, str], length: int | None = None) -> web.StreamResponse:
        """Begin an answer that is written piece by piece; ``length`` None: not known beforehand."""
        stream = (web.StreamResponse if length is None else _FileStream)(
            status=status, headers=self.leader_headers() | headers | media.NO_SNIFFING
        )
        stream.content_length = length
        self.stream = stream
        await stream.prepare(self.request)
        return stream

    async def write(self, data: bytes) -> None:
        """Send the next piece of a begun answer. Raises ConnectionError when the client is gone or takes nothing."""
        assert self.stream is not None
        try:
            async with asyncio.timeout(STALL_S):
                await self.stream.write(data)
        except TimeoutError as error:
            self.cut_off()
            raise ConnectionResetError("the client takes nothing") from error

    def break_off(self) -> None:
        """Close the connection in the middle of an answer, so that the client does not take it for whole."""
        if self.request.transport is not None:
            self.request.transport.close()

    def cut_off(self) -> None:
        """Reset the connection: what the client did not take is thrown away, also by the kernel."""
        if self.request.transport is not None:
            reset(self.request.transport)


def reset(transport: asyncio.WriteTransport) -> None:
    """Reset a connection: what the client did not take is thrown away, also by the kernel."""
    with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
    transport.abort()


def request_of(frame: FrameType) -> Asked | None:
    """The request that a frame works on."""
    for value in list(frame.f_locals.values()):
        if isinstance(value, Call):
            return Asked(f"{value.route.method} {value.route.path}", len(value.body), value.id)
    return None


def leader_named_by(moved: NotLeaderOrFollower) -> Leader:
    """The leader that this refusal names."""
    return Leader(None, moved.fields["leader"], moved.fields["leader_term"] or 0)


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A JSON answer."""
    return web.Response(body=json_codec.dump(value), status=status, headers=headers, content_type="application/json")
