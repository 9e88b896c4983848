"""Three nodes in one process (one_process.py), and the requests to them that walk.py follows."""

import asyncio
import json
import shutil
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any, Self

from one_process import DRIVER, CausalLoop, Pipe, Turn

import stockade
from stockade.cluster.config import LimitsSection, NodeConfig
from stockade.cluster.machines import Member
from stockade.cluster.node.node import Node
from stockade.http_api.app import HttpServer, start_http

PRODUCT = Path(stockade.__file__).parent
WARM_UPS = 3
SETTLE_S = 0.05
"""Virtual seconds after which the work that the previous request began is over; shorter than a heartbeat's period."""
FOUNDING_S = 5.0
"""Virtual seconds after which three new nodes have found each other."""
REJOIN_S = 2.0
"""Virtual seconds after which a wiped node votes again in every group."""
SHORT_LOG = LimitsSection(wal_file_bytes=1 << 14, wal_bytes_max=1 << 16, checkpoint_bytes=1 << 14)
"""A log so short that, after FILLINGS appends of the size of a file, no leader's log has its first entries any more."""
FILLINGS = 16
NODES = ("n1", "n2", "n3")
TOKEN = ("Stockade-Fence-Grant", "Stockade-Fence-Epoch", "Stockade-Session")


class Client(asyncio.Protocol):
    """A connection to a node's HTTP port; one request at a time."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._received = b""

    @classmethod
    async def to(cls, node_id: str) -> Self:
        """A new connection to the HTTP port of this node."""
        _, client = await asyncio.get_running_loop().create_connection(cls, *http_address(node_id))
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, Pipe)
        self.pipe: Pipe = transport

    def data_received(self, data: bytes) -> None:
        """Called by the loop with the answer, or a part of it."""
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if separator and len(body) == int(length or 0):
            self._answer.set_result(self._received)

    async def send(self, method: str, path: str, data: bytes = b"", **headers: object) -> bytes:
        """Send a request; returns the bytes of the answer."""
        self._answer, self._received = asyncio.get_running_loop().create_future(), b""
        lines = {"Host": "walk", "Content-Type": "application/json", "Content-Length": len(data), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.pipe.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + data)
        return await self._answer

    async def ask(self, method: str, path: str, body: Any = None, **headers: object) -> Any:
        """The JSON body of the node's answer, whose status must be 200 or 201."""
        answer = await self.send(method, path, b"" if body is None else json.dumps(body).encode(), **headers)
        assert answer.split(maxsplit=2)[1] in (b"200", b"201"), answer
        return json.loads(answer.partition(b"\r\n\r\n")[2])


class Cluster:
    """Three nodes, with their files below ``folder``."""

    def __init__(self, loop: CausalLoop, folder: Path) -> None:
        self.loop = loop
        self.limits: LimitsSection = LimitsSection(wal_file_bytes=1 << 20)
        self.failures: list[BaseException] = []
        self._folder = folder
        self._running: dict[str, tuple[Node, HttpServer]] = {}

    def data(self, node_id: str) -> Path:
        """The data folder of a node."""
        return self._folder / node_id

    async def start(self, node_id: str) -> None:
        """Start a node."""
        members = [
            Member(each, "http://{}:{}".format(*http_address(each)), f"127.0.0.1:72{each[1:]}1") for each in NODES
        ]
        me = next(member for member in members if member.node_id == node_id)
        config = NodeConfig(
            node_id=node_id,
            cluster_id="walk",
            data_dir=str(self.data(node_id)),
            http="{}:{}".format(*http_address(node_id)),
            raft_listen=me.raft,
            members=members,
            limits=self.limits,
        )
        with self.loop.within(Turn(node_id)):
            starting = self.loop.create_task(Node.start(config, self.failures.append))
        node = await starting
        with self.loop.within(Turn(node_id)):
            serving = self.loop.create_task(start_http(node.service, *http_address(node_id)))
        self._running[node_id] = node, await serving

    async def stop(self, node_id: str) -> None:
        """Stop a node as on SIGTERM, except that it hands nothing over."""
        node, http = self._running.pop(node_id)
        await http.close()
        await node.stop()

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass: everything due within it is done, however busy the machine is."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Stop the nodes that run. Asserts that none has failed."""
        for node_id in list(self._running):
            await self.stop(node_id)
        assert not self.failures, self.failures

    async def found(self, partitions: int) -> tuple[str, list[str]]:
        """Start all nodes, and create a topic ``t``. Returns the controller's leader, and each partition's leader."""
        for node_id in NODES:
            await self.start(node_id)
        await asyncio.sleep(FOUNDING_S)
        client = await Client.to(NODES[0])
        await client.ask("POST", "/v1/topics", {"name": "t", "partitions": partitions, "replication_factor": 3})
        controller = (await client.ask("GET", "/v1/cluster"))["controller"]["leader_node"]
        topic = await client.ask("GET", "/v1/topics/t")
        return controller, [partition["leader_node"] for partition in topic["partitions"]]

    async def follow(self, client: Client, request: Coroutine[Any, Any, object]) -> None:
        """Make the request and follow it until the turn in which it is answered."""
        self.loop.ends_at = client.pipe.other_end
        with self.loop.following(f"{PRODUCT}/"):
            with self.loop.within(Turn(DRIVER, is_caused=True)):
                asking = self.loop.create_task(request)
            await asking
        assert self.loop.has_ended, "what the node answered was not caused by the request: a cause got lost"


def http_address(node_id: str) -> tuple[str, int]:
    """The address at which a node's HTTP interface listens."""
    return "127.0.0.1", 7100 + int(node_id[1:])


async def own(client: Client) -> dict[str, object]:
    """Open a session; returns the header with which it acquires."""
    session = await client.ask("POST", "/v1/sessions", {"client_id": "walk", "ttl_ms": 60_000})
    return {"Stockade-Session": session["session"]}


async def acquire(client: Client, session: dict[str, object]) -> Any:
    """A grant on all partitions; it evicts present holders."""
    wanted = {"partitions": "all", "mode": "ExclusiveWithFencing", "producer_name": "walk"}
    return await client.ask("POST", "/v1/topics/t/grants", wanted, **session)


async def appender(controller: str, leader: str) -> tuple[Client, Callable[..., Any]]:
    """A warm connection to the leader of the only partition, and a function that returns the next append on it."""
    deciding, client = await Client.to(controller), await Client.to(leader)
    session = await own(deciding)
    grant = await acquire(deciding, session)
    producer = await deciding.ask("POST", "/v1/producers", {"name": "walk"})
    headers = {
        "Stockade-Fence-Grant": grant["grant"],
        "Stockade-Fence-Epoch": grant["epoch"],
        "Stockade-Producer-Id": producer["producer_id"],
        "Stockade-Producer-Epoch": producer["producer_epoch"],
        **session,
    }
    sequences = count()

    def append(value: str = "x") -> Coroutine[Any, Any, Any]:
        records = {"records": [{"value": value}]}
        numbered = {**headers, "Stockade-Producer-Seq": next(sequences)}
        return client.ask("POST", "/v1/topics/t/partitions/0/records", records, **numbered)

    for _ in range(WARM_UPS):
        await append()
        await asyncio.sleep(SETTLE_S / WARM_UPS)  # the lease clock moves on, and the work of its first step is over
    return client, append


async def follow_append(cluster: Cluster) -> dict[str, str]:
    """Follow an append. Returns the role of each node, by node id."""
    controller, (leader,) = await cluster.found(partitions=1)
    client, append = await appender(controller, leader)
    await asyncio.sleep(SETTLE_S)
    await cluster.follow(client, append())
    return {node_id: "leader" if node_id == leader else "follower" for node_id in NODES}


async def follow_acquire(cluster: Cluster) -> dict[str, str]:
    """Follow an acquire of four partitions. Returns the role of each node, by node id."""
    controller, leaders = await cluster.found(partitions=4)
    assert {controller} < set(leaders), f"the controller is led by {controller}, the partitions by {leaders}"
    client = await Client.to(controller)
    for _ in range(WARM_UPS):
        await acquire(client, await own(client))
    session = await own(client)
    await asyncio.sleep(SETTLE_S)
    await cluster.follow(client, acquire(client, session))
    return {node_id: "controller" if node_id == controller else "other node" for node_id in NODES}


async def follow_rejoin(cluster: Cluster) -> dict[str, str]:
    """Follow the start of a node that lost its disk. Returns the role of each node, by node id."""
    return await _follow_start(cluster, shutil.rmtree)


async def follow_restart(cluster: Cluster) -> dict[str, str]:
    """Follow the start of the same node with its disk intact. Returns the role of each node, by node id."""
    return await _follow_start(cluster, lambda _: None)


async def _follow_start(cluster: Cluster, meanwhile: Callable[[Path], None]) -> dict[str, str]:
    cluster.limits = SHORT_LOG
    controller, (leader,) = await cluster.found(partitions=1)
    _, append = await appender(controller, leader)
    for _ in range(FILLINGS):
        await append("x" * SHORT_LOG.wal_file_bytes)
    moving = next(node_id for node_id in reversed(NODES) if node_id not in {controller, leader})
    await cluster.stop(moving)
    meanwhile(cluster.data(moving))
    await append()
    await asyncio.sleep(FOUNDING_S)
    cluster.loop.moving = moving
    with cluster.loop.following(f"{PRODUCT}/"):
        await cluster.start(moving)
        await asyncio.sleep(REJOIN_S)
    # With the third node stopped, a majority needs the moving node as a voter: in the partition, in the controller.
    await cluster.stop(next(node_id for node_id in NODES if node_id not in {moving, leader}))
    await append()
    await own(await Client.to(leader))
    return dict.fromkeys(NODES, "other node") | {moving: "wiped node", leader: "leader"}
