"""A cluster of one node inside this process, for tests of programs that use Stockade: ``stockade.testing``."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from ...client.api.client import Client
from ...client.blocking.loop_thread import LoopThread
from ...client.config import ClientConfig
from ...client.session.session import Session
from ...cluster.config import NodeConfig, RaftSection
from ...cluster.machines import Member
from ...cluster.node.node import Node
from ...http_api.app import HttpServer, start_http
from .ports import LOOPBACK, free_ports

READY_TIMEOUT_S = 30.0
_QUICK = RaftSection(election_timeout_min_ms=120, election_timeout_max_ms=240, heartbeat_ms=30)
_READY_POLL_S = 0.005


class Cluster:
    """A real node on a free port of 127.0.0.1, with its data in a temporary folder: a context manager.

    It runs the code of a production node, so its answers are those of a production cluster. ``fence``,
    ``fence_producer`` and ``unreachable`` give the program under test the faults that it must handle.
    """

    def __init__(self) -> None:
        self._thread = LoopThread()
        self._stack = ExitStack()
        self._failures: list[BaseException] = []
        self._node: Node | None = None
        self._http: HttpServer | None = None
        self._address = ("127.0.0.1", 0)

    @property
    def url(self) -> str:
        """The base URL of the node, for ``bootstrap`` of a client's configuration."""
        host, port = self._address
        return f"http://{host}:{port}"

    def __enter__(self) -> Self:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="stockade-testing-"))
        self._stack.callback(self._thread.stop)
        try:
            self._thread.run(self._start(Path(folder)), READY_TIMEOUT_S)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._leave()
        if self._failures:
            raise RuntimeError("the node failed while the test ran") from self._failures[0]

    def create_topic(self, name: str, *, partitions: int = 1, require_fence: bool = False) -> None:
        """Create a topic."""

        async def create(client: Client) -> None:
            await client.create_topic(name, partitions=partitions, config={"require_fence": require_fence})

        self._with_client(create)

    def fence(self, topic: str, partitions: Sequence[int] | None = None) -> None:
        """Evict the holders of ``partitions`` (None: all): a newer holder takes them over, and releases them at once.

        When it returns, the log refuses every older token: a program that goes on is a zombie, and must notice it.
        """

        async def take_over(client: Client) -> None:
            async with Session(client, "stockade.testing") as session:
                await session.acquire(topic, partitions, mode="ExclusiveWithFencing")

        self._with_client(take_over)

    def fence_producer(self, name: str) -> None:
        """Start a newer instance of the producer ``name``: the running one is refused from now on."""

        async def start_another(client: Client) -> None:
            await client.init_producer(name)

        self._with_client(start_another)

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Inside the block the node refuses new connections; open ones are cut, with the requests in flight on them."""
        self._thread.run(self._close_http())
        try:
            yield
        finally:
            self._thread.run(self._open_http())

    def _with_client(self, work: Callable[[Client], Awaitable[None]]) -> None:
        async def run() -> None:
            async with Client(ClientConfig(bootstrap=(self.url,))) as client:
                await work(client)

        self._thread.run(run())

    def _leave(self) -> None:
        """Stop what runs, and remove the folder."""
        try:
            self._thread.run(self._stop(), READY_TIMEOUT_S)
        finally:
            self._stack.close()

    async def _start(self, folder: Path) -> None:
        self._address, raft = ((LOOPBACK, port) for port in free_ports(2))
        member = Member("n1", self.url, f"{raft[0]}:{raft[1]}")
        config = NodeConfig(
            node_id="n1",
            cluster_id="testing",
            data_dir=str(folder),
            http=f"{self._address[0]}:{self._address[1]}",
            raft_listen=member.raft,
            members=[member],
            raft=_QUICK,
        )
        self._node = await Node.start(config, self._failures.append)
        await self._open_http()
        while self._node.service.unready():  # noqa: ASYNC110 (nothing else tells)
            await asyncio.sleep(_READY_POLL_S)

    async def _stop(self) -> None:
        await self._close_http()
        if self._node is not None:
            await self._node.stop()
        # Threads of tasks that were cancelled still write: the folder would not be empty when it is removed.
        await asyncio.get_running_loop().shutdown_default_executor()

    async def _open_http(self) -> None:
        assert self._node is not None
        self._http = await start_http(self._node.service, *self._address)

    async def _close_http(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()
