"""One HTTP request in flight: what its handler sees of the request, how its body is read, and how it is answered.

A body is never read beyond its limit. A request whose Content-Length exceeds the limit is refused before the body is
read, and its client gets no 100 Continue.
"""

import asyncio
import logging
import os
import secrets
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import structs

from ...cluster.access.quotas import Spending
from ...cluster.access.rights import Caller, Kind, Verb
from ...cluster.api.partition import Partition
from ...cluster.api.service import Service
from ...cluster.front.front import Front, unless_ended
from ...cluster.https import ClientCertificate
from ...cluster.model import By, Leader
from ...partition.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    MessageTooLarge,
    NotLeaderOrFollower,
    PermissionDenied,
    StockadeError,
    ThrottlingQuotaExceeded,
    Unauthenticated,
)
from ..codec import json_codec, media
from ..codec.parameters import Parameters, printable
from ..reading.work import INLINE_BYTES_MAX
from .context import Context
from .peers import CLIENT_ADDRESS, CLIENT_CERTIFICATE, FORWARDED_BY
from .stalls import Asked

WHY_CHARACTERS_MAX = 2_000
"""Most characters of the reason that the log has for a request that lacked a right or a credential."""
DEADLINE_S = 10.0
"""Time in which a leader must begin to answer a forwarded request, on top of the wait that the request asks for."""
JSON_BYTES_MAX = 1024 * 1024
"""Largest JSON body, appends aside."""
ARRIVAL_S = 30.0
"""Time in which a body must have come whole."""
ARRIVAL_START_S = 10.0
"""Deadline of a body of which no byte has come; each SLOWEST_BODY_BYTES_PER_S bytes extend it by 1 s, to ARRIVAL_S."""
SLOWEST_BODY_BYTES_PER_S = 4 * 1024
STALL_S = 30.0
"""Time in which a client must take some of its answer."""
SLOWEST_BYTES_PER_S = 64 * 1024
"""A client has ``STALL_S + size / SLOWEST_BYTES_PER_S`` seconds to take a large answer; then it is cut off."""
UNKNOWN_LEADER = Leader(None, None, 0)

_NO_LINGERING = struct.pack("ii", 1, 0)
_log = logging.getLogger(__name__)
_UNREAD = Parameters({}, (), (), ())

_Shape = TypeVar("_Shape")

RequestHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""A request handler with aiohttp's signature."""
Handler = Callable[["Call"], Awaitable[web.StreamResponse]]


class FastPath(Protocol):
    """Answers requests of one route past aiohttp. Its constructor takes the route, the context that all handlers share,
    and the route's endpoint, which answers the requests that are not plain.
    """

    def start(self, request: Any) -> bool:
        """Begin to answer a FastRequest. True: its connection will be given an answer; False: nothing was begun."""
        ...


class SentPast(Protocol):
    """Bytes of an answer that are sent past the transport of its connection."""

    @property
    def left(self) -> int:
        """Bytes that are not sent yet."""
        ...

    def stop(self) -> None:
        """Send no more: the connection was closed."""
        ...


class Need(NamedTuple):
    """A right that the caller of a route must have. ``parameter`` is the path parameter with the name that the right is
    on. None: either the kind has no names, or the name is in the body, and the handler checks the right on it.
    """

    verb: Verb
    kind: Kind
    parameter: str | None = None


@dataclass(frozen=True)
class Route:
    """One operation of the API.

    ``group``: the Raft group whose leader decides it; ``node``: any node answers for itself. ``query``: the query
    parameters that may occur once; ``repeated``: those that may occur several times. ``answers_json``: a client that
    does not accept JSON gets 406. ``fast``: the fast path of a route with frequent requests and small answers.
    ``needs``: the rights that a caller must have. Empty: every principal may call; None: a stranger may, too.
    ``checks_page``: requests that a foreign page made a browser send are refused (boundary.py). It is off only on
    routes whose answers hold no data, so that a load balancer may ask under any name. ``is_metered``: requests count
    for the caller's quota; off for renewals and releases. ``is_asked_again``: requests that are harmless twice, as a
    GET is, so that they need not wait for a leader that hangs when another one is elected.
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
    is_asked_again: bool = False
    needs: tuple[Need, ...] | None = field(kw_only=True)

    def check(self, caller: Caller, path: Mapping[str, str]) -> None:
        """Raises PermissionDenied unless the caller has the route's ``needs``. ``path``: path parameters by name."""
        for verb, kind, parameter in self.needs or ():
            if parameter is not None or kind == "cluster":
                caller.require(verb, kind, "" if parameter is None else path[parameter])
            else:
                caller.require_some(verb, kind)


class _FileStream(web.StreamResponse):
    """A streamed answer of known length, parts of which are sent past aiohttp, by sendfile."""

    _length_check = False


class Call:
    """One HTTP request in flight: a ``cluster.front.front.Request``.

    ``held_requests``, ``held_body_bytes`` and ``held_answer_bytes`` are what the call has taken from
    ``front.in_flight``, and ``conclude`` gives back; ``held_for``: the caller's spending, if they count for its quota.
    ``wait_s``: how long the client asks the node to wait, for records or a grant.
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
        self.is_denied: bool = False

    @cached_property
    def id(self) -> str:
        """The request's id, which its problem document and the node's log name."""
        return secrets.token_hex(8)

    @property
    def accept(self) -> str:
        """All Accept headers joined by commas; empty when there is none, which accepts everything."""
        return ",".join(self.request.headers.getall("Accept", ()))

    @property
    def is_forwarded(self) -> bool:
        """Whether another node forwarded the request, or its client forbids forwarding by sending the same header."""
        return FORWARDED_BY in self.request.headers

    @property
    def is_encrypted(self) -> bool:
        """Whether the client speaks TLS with this node."""
        return bool(getattr(self.request.protocol, "is_encrypted", False))

    @property
    def peer_node(self) -> str | None:
        """The id of the node that forwarded the request over an authenticated connection; None: a client sent it."""
        found: str | None = getattr(self.request.protocol, "peer_node", None)
        return found

    @property
    def certificate(self) -> ClientCertificate | None:
        """The verified certificate that the client has shown to this node, or to the node that forwarded the request.

        Raises Unauthenticated when a certificate that was shown to this node has expired since.
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
        """Whether a streamed answer has begun: a problem document cannot be sent any more."""
        return self.stream is not None

    @cached_property
    def caller(self) -> Caller:
        """The principal that makes the request, with its rights. Raises Unauthenticated; LeaderNotAvailable, with what
        this node waits for, while it cannot know the caller.
        """
        try:
            return self.front.access.caller(self.request.headers.get("Authorization"), self.certificate)
        except LeaderNotAvailable as unheard:
            waits = [each.detail for each in self.front.unready()]
            raise LeaderNotAvailable("; ".join([unheard.detail, *waits])) from None

    def check_rights(self) -> None:
        """Authenticate and authorise the caller again, after a slow body, a wait, or a piece of a stream. Raises
        Unauthenticated, PermissionDenied when a new request of this caller would be refused so.
        """
        if self.route.needs is not None:
            self.caller = self.front.access.caller(self.request.headers.get("Authorization"), self.certificate)
            self.route.check(self.caller, self.request.match_info)

    @property
    def by(self) -> By:
        """The author (caller, request id, client address) of a command that takes over nothing of another principal."""
        return By(self.caller.principal, request=self.id, client=self.client)

    def by_name(self, kind: Kind, *names: str, most: int | None = None) -> By:
        """Author of a command that may take over the objects with these names. ``most``: bound of the caller's
        quota for the objects that the command may create; None: no bound.
        """
        return structs.replace(self.caller.by(kind, *names, most=most), request=self.id, client=self.client)

    @property
    def client(self) -> str:
        """The IP address of the client, told by the node that forwarded the request if one did. Empty: not known."""
        if self.peer_node is not None:
            return self.request.headers.get(CLIENT_ADDRESS, "")
        return self.request.remote or ""

    def log_denial(self, refusal: StockadeError) -> None:
        """If a request, or a part of it, is refused for want of a right or a credential, log the principal, its address
        and the missing right. A request has one such line for any number of refused parts.
        """
        if self.is_denied or not isinstance(refusal, PermissionDenied | Unauthenticated):
            return
        self.is_denied = True
        known: Caller | None = self.__dict__.get("caller")
        who = f"{(known and known.name) or 'a caller'} at {self.client or 'an unknown address'}"
        asked, why = f"{self.route.method} {self.route.path}", printable(refusal.detail, WHY_CHARACTERS_MAX)
        _log.info("request %s (%s) of %s was refused: %s", self.id, asked, who, why)

    def by_most(self, what: Literal["sessions", "topics"]) -> By:
        """Author of a command that creates a session or a topic, with the caller's quota for their number."""
        most: int | None = getattr(self.caller.spending.quota, what)
        return structs.replace(self.by, most=most)

    def admit(self) -> None:
        """Count the request for its caller's quota, unless a node forwarded it, which has counted it. Raises
        ThrottlingQuotaExceeded.
        """
        if self.route.is_metered and self.peer_node is None:
            self.front.admit(self.caller.spending)
            self.held_for = self.caller.spending

    def credentials(self) -> dict[str, str]:
        """The headers by which another node, asked on behalf of this call, learns who the client is."""
        authorization, certificate = self.request.headers.get("Authorization"), self.certificate
        told = {CLIENT_ADDRESS: self.client}
        if authorization is not None:
            told["Authorization"] = authorization
        return told if certificate is None else told | {CLIENT_CERTIFICATE: json_codec.dump(certificate).decode()}

    async def find_partition(self) -> Partition:
        """The partition of the path, of the topic with the query's topic_id. Raises as ``Service.partition``."""
        parameters = self.parameters
        self.partition = await self.service.partition(parameters.topic(), parameters.partition(), parameters.topic_id())
        return self.partition

    @property
    def has_small_body(self) -> bool:
        """Whether the Content-Length says that the body has at most INLINE_BYTES_MAX bytes."""
        size = self.request.content_length
        return size is not None and size <= INLINE_BYTES_MAX

    def leader_headers(self) -> dict[str, str]:
        """The headers Stockade-Leader and Stockade-Leader-Term of the Raft group that decides the request, as far as
        this node knows them; none on routes of group ``node``.
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
        """The JSON body decoded as ``shape``. Raises UnsupportedMediaType, and as ``read`` does."""
        self.body_type((media.JSON,))
        return await self.context.reader.json(await self.read(JSON_BYTES_MAX), shape)

    async def read(self, bytes_max: int) -> bytes:
        """Read the body, and keep it in ``body`` for forwarding and for further reads. Raises MessageTooLarge,
        InvalidRequest, ThrottlingQuotaExceeded, and LeaderNotAvailable when the node stops before the body has come.
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
        """Wait for the whole body. Raises TimeoutError when it comes too slowly."""
        in_flight, spending = self.front.in_flight, self.held_for
        in_flight.take(arriving=1)
        try:
            if spending is not None:
                spending.held_arriving += 1
                self.front.check_share(spending, in_flight.arriving, spending.held_arriving - 1)
            async with asyncio.timeout(min(ARRIVAL_START_S, ARRIVAL_S)) as limit:
                await self._invite()
                return await unless_ended(self, self._collect(bytes_max, limit))
        finally:
            in_flight.give_back(arriving=1)
            if spending is not None:
                spending.held_arriving -= 1

    async def _invite(self) -> None:
        """Answer 100 Continue if the client expects it; a client of HTTP/1.0 knows no such answer."""
        request = self.request
        if request.version >= HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0

    async def _collect(self, bytes_max: int, limit: asyncio.Timeout) -> bytes:
        """Join the pieces of the body as they come; each piece extends the deadline ``limit`` by its size."""
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
        """Reserve memory for the ``size`` bytes of the body so far. Raises MessageTooLarge, ThrottlingQuotaExceeded."""
        if size > bytes_max:
            raise MessageTooLarge(limit=bytes_max, unit="bytes")
        more = size - self.held_body_bytes
        if more > 0:
            self.front.in_flight.take(body_bytes=more)
            self.held_body_bytes = size
            if (spending := self.held_for) is not None:
                spending.held_body_bytes += more
                spending.spend_bytes(more)
                self.front.check_share(spending, self.front.in_flight.body_bytes, spending.held_body_bytes - size)

    def hold_requests(self, count: int, at_once: int) -> None:
        """Count this request as ``count`` requests, one for each append in it, for the caller's quota. At most
        ``at_once`` of them count as in flight, since no more run at a time. Raises ThrottlingQuotaExceeded.
        """
        held = min(count, at_once)
        more = held - self.held_requests
        self.front.in_flight.take(requests=more)
        self.held_requests = held
        if self.held_for is not None:
            self.held_for.held_requests += more
            self.front.check_share(self.held_for, self.front.in_flight.requests, self.held_for.held_requests - 1)
            self.held_for.spend_requests(count - 1)

    def hold_answer(self, count: int) -> None:
        """Reserve memory for an answer of ``count`` bytes in all. Raises ThrottlingQuotaExceeded."""
        more = max(0, count - self.held_answer_bytes)
        self.front.in_flight.take(answer_bytes=more)
        self.held_answer_bytes += more
        if (spending := self.held_for) is not None:
            spending.held_answer_bytes += more
            others = spending.held_answer_bytes - self.held_answer_bytes
            self.front.check_share(spending, self.front.in_flight.answer_bytes, others)

    def may_hold_answer(self, count: int) -> bool:
        """Reserve memory for an answer of ``count`` bytes that can be sent piece by piece as well, if there is room;
        returns whether there is. Such answers leave half of the bound to those that have to be in memory.
        """
        budget = self.front.in_flight.answer_bytes
        if count and budget.used + count > budget.limit // 2:
            return False
        try:
            self.hold_answer(count)
        except ThrottlingQuotaExceeded:
            self.free_answer()
            return False
        return True

    def free_answer(self) -> None:
        """Give back what ``hold_answer`` has reserved."""
        held, self.held_answer_bytes = self.held_answer_bytes, 0
        self.front.in_flight.give_back(answer_bytes=held)
        if self.held_for is not None:
            self.held_for.held_answer_bytes -= held

    def spend_bytes(self, count: int) -> None:
        """Charge bytes of the body, or of records that are sent, to the caller's quota."""
        if self.held_for is not None:
            self.held_for.spend_bytes(count)

    async def pay(self, count: int) -> None:
        """Charge bytes of records that were sent to the caller's quota, and wait until it has room for more."""
        self.spend_bytes(count)
        if self.held_for is not None and (lacking_s := self.held_for.lacking_s()) > 0:
            await unless_ended(self, asyncio.sleep(lacking_s))

    def finish_later(self, append: Coroutine[Any, Any, object]) -> None:
        """Let ``append`` go on after the answer; the body counts as held until it ends. It counts for its principal,
        also where a node forwarded it, whose own request ends with the answer. Raises ThrottlingQuotaExceeded.
        """
        held, spending = self.held_body_bytes, self.held_for
        unacked, principal = self.front.unacked, self.caller.spending

        def give_back() -> None:
            self.front.in_flight.give_back(body_bytes=held)
            principal.held_unacked -= 1
            if spending is not None:
                spending.held_body_bytes -= held

        try:
            self.front.check_share(principal, unacked.budget, principal.held_unacked)
        except ThrottlingQuotaExceeded:
            append.close()
            raise
        unacked.start(append, give_back, self.context.metrics.refused)
        principal.held_unacked += 1
        self.held_body_bytes = 0
        self.is_answered = True

    def is_gone(self) -> bool:
        """Whether the client has closed the connection before it was answered."""
        transport = self.request.transport
        return not self.is_answered and (transport is None or transport.is_closing())

    async def start_stream(self, status: int, headers: dict[str, str], length: int | None = None) -> web.StreamResponse:
        """Begin an answer that is written piece by piece; ``length`` in bytes, None: not known beforehand."""
        stream = (web.StreamResponse if length is None else _FileStream)(
            status=status, headers=self.leader_headers() | headers | media.NO_SNIFFING
        )
        stream.content_length = length
        self.stream = stream
        await stream.prepare(self.request)
        return stream

    @asynccontextmanager
    async def taken_in_time(self, size: int) -> AsyncIterator[None]:
        """Inside, an answer of ``size`` bytes is sent; a client that takes it too slowly is cut off. Raises
        ConnectionResetError.
        """
        try:
            async with asyncio.timeout(STALL_S + size / SLOWEST_BYTES_PER_S):
                yield
        except TimeoutError as error:
            self.cut_off()
            raise ConnectionResetError("the client takes its answer too slowly") from error

    def send_past(self, part: SentPast | None) -> None:
        """Let the connection count what is sent past its transport from now on as waiting in it; None: it is over."""
        tell: Callable[[SentPast | None], None] | None = getattr(self.request.protocol, "send_past", None)
        if tell is not None:
            tell(part)

    async def write_text(self, text: bytes) -> None:
        """Send text as the next piece of a begun answer, which counts as held. Raises ThrottlingQuotaExceeded, and as
        ``write``.
        """
        self.hold_answer(len(text))
        await self.write(text)

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
        """Reset the connection, as ``reset`` does."""
        if self.request.transport is not None:
            reset(self.request.transport)


def reset(transport: asyncio.WriteTransport) -> None:
    """Close a connection by a TCP reset: the bytes that the client has not taken are dropped, also by the kernel."""
    with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
    transport.abort()


def request_of(frame: FrameType) -> Asked | None:
    """The request whose Call is a local variable of the frame; None: there is none."""
    for value in list(frame.f_locals.values()):
        if isinstance(value, Call):
            return Asked(f"{value.route.method} {value.route.path}", len(value.body), value.id)
    return None


def leader_named_by(moved: NotLeaderOrFollower) -> Leader:
    """The leader that the refusal names, with its term; without a node id."""
    return Leader(None, moved.fields["leader"], moved.fields["leader_term"] or 0)


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A JSON answer."""
    return web.Response(body=json_codec.dump(value), status=status, headers=headers, content_type="application/json")
