"""The HTTP interface of a node: puts routes, metrics and the server together, and starts and ends them."""

from collections.abc import AsyncIterator

from aiohttp import web

from ..cluster.service import Service
from .bodies import expect_nothing
from .context import Context
from .dispatch import endpoint, observer
from .lane import Lane
from .peers import Peers
from .routes import routes
from .server import Runner
from .tokens import Tokens

DRAIN_S = 10.0
"""Time that requests under way have to finish when the interface is closed."""
NO_TOKENS = Tokens({})
LINGER_S = 0.2
"""So long a node that leads nothing any more goes on answering: until the others have heard who leads instead."""


class HttpServer:
    """A running interface."""

    def __init__(self, runner: web.AppRunner, context: Context) -> None:
        self._runner = runner
        self._context = context
        self._closed = False

    @property
    def port(self) -> int:
        """The TCP port that it listens on."""
        port: int = self._runner.addresses[0][1]
        return port

    def leave(self) -> None:
        """Say from now on that the node is not ready, and end connections with their next answer, so that nobody sends
        anything new here; go on serving.
        """
        self._context.is_leaving = True

    async def close(self) -> None:
        """Stop accepting, end followed streams and long waits, let the other requests finish within DRAIN_S.
        Repeating it does nothing.
        """
        if not self._closed:
            self._closed = True
            self.leave()
            await self._runner.cleanup()


def make_app(context: Context) -> web.Application:
    """The application over a service: every route of this version and nothing else."""
    app = web.Application(middlewares=[observer(context)])
    for route in routes():
        # A path parameter is whatever stands between two slashes; its shape is the handler's to judge.
        path = route.path.replace("}", ":[^/]+}")
        app.router.add_route(route.method, path, endpoint(route, context), expect_handler=expect_nothing)

    async def live(_: web.Application) -> AsyncIterator[None]:
        await context.peers.open()
        yield
        await context.background.close(DRAIN_S)
        await context.peers.close()

    async def stop(_: web.Application) -> None:
        context.stop()

    app.cleanup_ctx.append(live)
    app.on_shutdown.append(stop)
    return app


async def start_http(service: Service, host: str, port: int, tokens: Tokens = NO_TOKENS) -> HttpServer:
    """Listen on ``host`` and ``port`` (0: any free one). Raises OSError."""
    context = Context(service, Peers(service.node_id), tokens)
    runner = Runner(make_app(context), DRAIN_S, Lane(routes(), context))
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError:
        await runner.cleanup()
        raise
    return HttpServer(runner, context)
