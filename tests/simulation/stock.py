"""pysyncobj as it comes, under a clock and connections that a test holds in its hand. Nothing of it is replaced.

Connections are first in, first out, and break whole. A node runs only when it is ticked. Elections happen when a test
calls for them: otherwise every node is kept from asking for one.
"""

import pickle
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

PERIOD_S = 0.11
"""A little more than the library's heartbeat period."""
NEVER = float("inf")
SUCCESS = 0


class Wires:
    """Connections between nodes: the messages under way, in order. ``held`` ones deliver nothing for now."""

    def __init__(self) -> None:
        self.queues: defaultdict[tuple[str, str], deque[bytes]] = defaultdict(deque)
        self.held: set[tuple[str, str]] = set()
        self.broken: set[tuple[str, str]] = set()
        self.ends: dict[str, Wire] = {}

    def deliver(self, source: str, target: str, count: int | None = None) -> list[dict[str, Any]]:
        """Let so many messages arrive, or all; answers them."""
        queue = self.queues[source, target]
        arrived: list[dict[str, Any]] = []
        while queue and (count is None or len(arrived) < count):
            message = pickle.loads(queue.popleft())
            arrived.append(message)
            end = self.ends[target]
            end._onMessageReceived(end.nodes[source], message)
        return arrived

    def pump(self) -> None:
        """Let everything arrive that is not held, and what is sent in answer."""
        while any(self.deliver(*way, 1) for way in list(self.queues) if way not in self.held):
            pass

    def hold(self, source: str, targets: str) -> None:
        self.held |= {(source, target) for target in targets}

    def drop(self, source: str, targets: str) -> None:
        """What a connection carries is lost: it broke, and is there again."""
        for target in targets:
            self.queues[source, target].clear()
            self.held.discard((source, target))

    def join(self, one: str, others: str, *, up: bool) -> None:
        """Connect, or cut, one node and some others, both ways."""
        for other in others:
            for source, target in ((one, other), (other, one)):
                (self.broken.discard if up else self.broken.add)((source, target))
                if not up:
                    self.queues[source, target].clear()
                end = self.ends[source]
                (end._onNodeConnected if up else end._onNodeDisconnected)(end.nodes[target])


class Wire(Transport):  # type: ignore[misc]
    """The library's transport of one node."""

    def __init__(self, wires: Wires, node_id: str, others: Sequence[str]) -> None:
        super().__init__(None, None, None)
        self.nodes = {other: Node(other) for other in others}
        self._wires = wires
        self._node_id = node_id
        wires.ends[node_id] = self

    def send(self, node: Node, message: object) -> bool:
        way = (self._node_id, str(node.id))
        if way in self._wires.broken:
            return False
        self._wires.queues[way].append(pickle.dumps(message))
        return True

    def addNode(self, node: Node) -> None:  # noqa: N802
        self.nodes[str(node.id)] = node


class Stock(SyncObj):  # type: ignore[misc]
    """A list of commands, replicated by the library."""

    def __init__(self, wires: Wires, node_id: str, nodes: str, **options: object) -> None:
        others = [other for other in nodes if other != node_id]
        wire = Wire(wires, node_id, others)
        configuration = SyncObjConf(autoTick=False, **options)
        super().__init__(Node(node_id), [Node(other) for other in others], configuration, transport=wire)
        self.applied: list[object] = []
        for other in others:
            if (node_id, other) not in wires.broken:
                wire._onNodeConnected(wire.nodes[other])

    @replicated  # type: ignore[untyped-decorator]
    def put(self, command: object) -> int:
        """Append a command."""
        self.applied.append(command)
        return len(self.applied)

    def __getattr__(self, name: str) -> Any:
        """``of_raftLog`` is the library's private attribute of that name."""
        if name.startswith("of_"):
            return getattr(self, f"_SyncObj__{name[3:]}")
        raise AttributeError(name)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Index and term of each entry of the log."""
        return [(index, term) for _, index, term in self.of_raftLog[:]]


class StockCluster:
    """Nodes named by letters. Options of the library may be functions of a node's name."""

    def __init__(self, nodes: str, **options: object) -> None:
        self.names = nodes
        self.options = options
        self.now = 1000.0
        self.wires = Wires()
        self.nodes = {node: self.start(node) for node in nodes}
        self.errors: list[Exception] = []
        """What was raised out of the library."""

    def start(self, node: str) -> Stock:
        options = {name: value(node) if callable(value) else value for name, value in self.options.items()}
        return Stock(self.wires, node, self.names, **options)

    def restart(self, node: str) -> None:
        self.nodes[node] = self.start(node)
        self._keep_the_peace()

    def stop(self) -> None:
        for node in self.nodes.values():
            node.destroy()

    def start_all(self) -> None:
        self.wires = Wires()
        self.nodes = {node: self.start(node) for node in self.names}
        self._keep_the_peace()

    def step(self, nodes: str, *, pump: bool = True, times: int = 1, seconds: float = PERIOD_S) -> None:
        """A period passes and these nodes are ticked; then everything arrives that is not held."""
        for _ in range(times):
            self.now += seconds
            for node in nodes:
                self._guarded(self.nodes[node].doTick)
            self._keep_the_peace()
            if pump:
                self._guarded(lambda _: self.wires.pump())

    def elect(self, node: str) -> None:
        """A node asks for votes now, and gets the answers."""
        self._keep_the_peace()
        self.nodes[node]._SyncObj__raftElectionDeadline = 0.0
        self.nodes[node].doTick(0.0)
        self.wires.pump()
        self._keep_the_peace()

    def put(self, node: str, *commands: object) -> list[list[int]]:
        """Propose; answers a list for each command, which will hold the codes of its answers."""
        answers: list[list[int]] = [[] for _ in commands]
        for command, answer in zip(commands, answers, strict=True):
            self.nodes[node].put(command, callback=lambda _, code, answer=answer: answer.append(code))
        return answers

    def _guarded(self, act: Callable[[float], object]) -> None:
        try:
            act(0.0)
        except Exception as error:
            self.errors.append(error)

    def _keep_the_peace(self) -> None:
        for node in self.nodes.values():
            node._SyncObj__raftElectionDeadline = NEVER


@contextmanager
def stock_cluster(nodes: str = "ABC", *, leader: str = "A", **options: object) -> Iterator[StockCluster]:
    """A cluster of the library at peace, led by ``leader``. While it is open, the library has the cluster's clock."""
    cluster: StockCluster | None = None
    with patch("pysyncobj.syncobj.monotonicTime", lambda: 1000.0 if cluster is None else cluster.now):
        cluster = StockCluster(nodes, **options)
        cluster.elect(leader)
        cluster.step(nodes, times=6)
        assert cluster.nodes[leader]._isLeader()
        yield cluster
        cluster.stop()


def acknowledged(answers: Sequence[Sequence[int]]) -> int:
    """How many commands were told to have succeeded."""
    return sum(SUCCESS in answer for answer in answers)
