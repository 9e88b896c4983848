"""The HTTP interface of a node: puts routes, metrics and the server together, and starts and ends them."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from aiohttp import web

from ..cluster.access.principals import Access
from ..cluster.api.service import Service
from ..cluster.front.front import Front
from ..cluster.https import HttpTls
from .endpoint.dispatch import ELSEWHERE, endpoint, observer
from .fast_path.connection import FastRoutes
from .reading.reader import BodyReader
from .request.boundary import Boundary
from .request.call import request_of
from .request.connections import ConnectionBounds, Connections, Descriptors
from .request.context import Context
from .request.metrics import Metrics
from .request.peers import Peers
from .request.pulse import Pulse
from .request.stalls import Stalls
from .routes import routes
from .server import HttpRunner
from .tls_site import TlsSite

DRAIN_S = 10.0
"""Time in which requests in flight must finish when the interface is closed."""
DEFAULT_BOUNDS = ConnectionBounds(connections_max=10_000, address_connections_max=5_000, descriptors_max=1 << 30)
"""Bounds where neither the node's configuration nor the system's descriptor limit sets any."""
LINGER_S = 0.2
"""Time for which a node that handed over its leaderships goes on answering, so that the others learn of the leaders."""


class HttpServer:
    """The running HTTP interface of one node: its listeners, and the front behind them."""

    def __init__(self, runner: web.AppRunner, front: Front, metrics: Metrics, stalls: Stalls) -> None:
        self.front: Front = front
        self.metrics: Metrics = metrics
        self.stalls: Stalls = stalls
        self._runner = runner
        self._closed = False

    @property
    def port(self) -> int:
        """The TCP port that the server listens on."""
        return self.ports[0]

    @property
    def ports(self) -> list[int]:
        """The TCP ports: ``port`` first, then that of the listener without TLS if there is one."""
        return [address[1] for address in self._runner.addresses]

    def leave(self) -> None:
        """From now on answer /readyz with a refusal, and close each connection after its next answer, so that clients
        turn to other nodes. Requests are still served.
        """
        self.front.is_leaving = True

    async def close(self) -> None:
        """Stop accepting connections, end followed streams and long waits, and let the other requests finish within
        DRAIN_S. A second call does nothing.
        """
        if not self._closed:
            self._closed = True
            self.leave()
            self.front.service.accept_streams(lambda node_id: None)
            await self._runner.cleanup()


async def expect_nothing(request: web.Request) -> None:
    """Do not answer ``Expect: 100-continue`` here: ``Call.read`` does so when it is about to read the body."""


async def refuse_elsewhere(request: web.Request) -> web.StreamResponse:
    """Raise HTTPMethodNotAllowed if the path has a route with another method, otherwise HTTPNotFound."""
    allowed: set[str] = set()
    for resource in request.app.router.resources():
        if resource.canonical != ELSEWHERE:
            _, methods = await resource.resolve(request)
            allowed |= methods
    raise web.HTTPMethodNotAllowed(request.method, allowed) if allowed else web.HTTPNotFound()


def make_app(context: Context) -> web.Application:
    """The aiohttp application over a service: every route of this version, and no other."""
    app = web.Application(middlewares=[observer(context)])
    for route in routes():
        # A path parameter is any text between two slashes; its handler judges its shape.
        path = route.path.replace("}", ":[^/]+}")
        methods = ("GET", "HEAD") if route.needs is None else (route.method,)  # monitors ask with HEAD
        for method in methods:
            app.router.add_route(method, path, endpoint(route, context), expect_handler=expect_nothing)
    # aiohttp's own fallback would send 100 Continue for a request without a route, and refuse other expectations in
    # plain text.
    anywhere = ELSEWHERE.replace("}", ":(?s:.*)}")
    app.router.add_route("*", anywhere, refuse_elsewhere, expect_handler=expect_nothing)

    async def live(_: web.Application) -> AsyncIterator[None]:
        await context.peers.open()
        yield
        await context.front.unacked.close(DRAIN_S)
        await context.peers.close()
        await context.reader.close()
        context.stalls.close()

    async def stop(_: web.Application) -> None:
        context.front.stop()

    app.cleanup_ctx.append(live)
    app.on_shutdown.append(stop)
    return app


async def _sweeping(connections: Connections) -> AsyncIterator[None]:
    sweeping = asyncio.ensure_future(connections.keep_swept())
    yield
    sweeping.cancel()


async def start_http(
    service: Service,
    host: str,
    port: int,
    access: Access | None = None,
    *,
    tls: HttpTls | None = None,
    plain: tuple[str, int] | None = None,
    bounds: ConnectionBounds = DEFAULT_BOUNDS,
    hosts: Iterable[str] = (),
) -> HttpServer:
    """Listen on ``host`` and ``port`` (0: any free one), by HTTPS if there is ``tls``, and on ``plain`` without TLS.

    ``access`` None: node.toml has no principals, so only those of the controller's state count. ``bounds``: how many
    connections the node accepts. ``hosts``: each host or host:port by which clients reach the node (boundary.py).
    Raises OSError.
    """
    access = Access() if access is None else access
    front = Front(service, access)
    service.follow_principals(lambda table: access.replicate(table.index, table.rows))
    connections = Connections(bounds)
    stalls = Stalls(request_of)
    metrics = Metrics(front, connections, stalls, tls)
    descriptors = Descriptors(bounds)
    peers = Peers(service, descriptors)
    context = Context(front, peers, metrics, BodyReader(), stalls, Boundary(hosts), Pulse(), descriptors)
    app = make_app(context)
    app.cleanup_ctx.append(lambda _: _sweeping(connections))
    runner = HttpRunner(app, DRAIN_S, FastRoutes(routes(), context), connections)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port) if tls is None else TlsSite(runner, host, port, tls.context)
        await site.start()
        if plain is not None:
            await web.TCPSite(runner, *plain).start()
    except OSError:
        await runner.cleanup()
        raise
    service.accept_streams(lambda node_id: runner.connection_of(node_id) if descriptors.has_room() else None)
    return HttpServer(runner, front, context.metrics, stalls)
