"""A controller's machine at the size of a large cluster: for scaling.py and scaling_zone.py."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress

from stockade.cluster import rpc
from stockade.cluster.controller import commands
from stockade.cluster.controller.commands import Command, CreateTopic, RegisterNode
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.topology import nodes
from stockade.cluster.controller.topology.catalog import Topic
from stockade.cluster.rpc import Placement
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import StockadeError

NOWHERE = Path("unused")


class Sizes(NamedTuple):
    """The sizes of the cluster."""

    zones: int = 100
    nodes_per_zone: int = 16
    partitions: int = 100_000
    topics: int = 100
    sessions: int = 100_000
    names: int = 1_000_000

    @property
    def nodes(self) -> int:
        """The number of nodes in all zones."""
        return self.zones * self.nodes_per_zone


class Row(NamedTuple):
    """One line of a table."""

    what: str
    value: float
    unit: str


@contextmanager
def bar() -> Iterator[Callable[[str, int], Callable[[], None]]]:
    """Yields a function (title, total) that shows a progress bar on standard error, and returns what advances it."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:

        def add(title: str, total: int) -> Callable[[], None]:
            task = progress.add_task(title, total=total)
            return lambda: progress.advance(task)

        yield add


class Controller:
    """A machine and its log's index; counts the bytes of its commands and the time that they take."""

    def __init__(self) -> None:
        self.machine = ControllerMachine()
        self.commands = self.command_bytes = 0
        self.cpu_s = 0.0

    def do(self, command: Command) -> object:
        """Encode and apply a command; return the answer. AssertionError if it is a refusal."""
        began = time.process_time()
        data = commands.encode_command(command)
        self.commands += 1
        self.command_bytes += len(data)
        answer = self.machine.apply(self.commands, 1, data)
        self.cpu_s += time.process_time() - began
        assert not isinstance(answer, StockadeError), answer
        return answer

    def all(self, title: str, wanted: Iterable[Command], count: int) -> float:
        """Apply ``count`` commands; return the seconds of processor time."""
        before = self.cpu_s
        with bar() as add:
            advance = add(title, max(1, count // 1000))
            for number, command in enumerate(wanted, start=1):
                self.do(command)
                if number % 1000 == 0:
                    advance()
        return self.cpu_s - before


def timed(work: Callable[[], object]) -> float:
    """The seconds of processor time that ``work`` takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def resident_mb() -> float:
    """Resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


def checkpoint(machine: ControllerMachine) -> list[Row]:
    """The size of a checkpoint of the state, and how long the event loop waits while it is taken, and restored."""
    took_s = timed(machine.capture)
    state = machine.capture().state
    restore_s = timed(lambda: ControllerMachine().restore(NOWHERE, state, ()))
    return [
        Row("checkpoint", len(state) / 1e6, "MB"),
        Row("checkpoint: the loop waits", took_s * 1e3, "ms"),
        Row("restore: the loop waits", restore_s * 1e3, "ms"),
    ]


def register(controller: Controller, sizes: Sizes) -> None:
    """Register all nodes: a zone is a machine, a node is a process on it."""
    # The product allows fewer nodes, for reasons in nodes.py; here only the controller is measured.
    nodes.NODES_MAX = max(nodes.NODES_MAX, sizes.nodes)
    for zone in range(sizes.zones):
        for node in range(sizes.nodes_per_zone):
            controller.do(
                RegisterNode(
                    now_ms=0,
                    node_id=f"machine-{zone:03}-{node:02}",
                    url=f"http://10.0.{zone}.1:{8000 + node}",
                    raft=f"10.0.{zone}.1:{9000 + node}",
                    zone=f"machine-{zone:03}",
                    incarnation=(1 << 60) + zone * sizes.nodes_per_zone + node,
                    controllers=["machine-000-00"],
                )
            )


def create(controller: Controller, sizes: Sizes) -> float:
    """Create all topics; return the seconds of processor time."""
    eligible = controller.machine.assignment.nodes.eligible()
    factor = 3 if sizes.nodes >= 3 else 1
    wanted = (
        CreateTopic(
            now_ms=0,
            name=f"topic-{number:05}",
            partitions=sizes.partitions // sizes.topics,
            replication_factor=factor,
            config=TopicConfig(),
            nodes=[(entry.node_id, entry.zone) for entry in eligible],
            scattered=True,
        )
        for number in range(sizes.topics)
    )
    with bar() as add:
        advance = add("topics", sizes.topics)
        before = controller.cpu_s
        for command in wanted:
            controller.do(command)
            advance()
    return controller.cpu_s - before


def placements(machine: ControllerMachine) -> list[list[str]]:
    """The replicas of every partition, as node ids."""
    return [replicas for topic in machine.catalog.topics() for replicas in topic.placements]


def check_zones(machine: ControllerMachine, zones: int) -> None:
    """Check that no partition has two replicas in one zone, as far as there are zones enough. Raises AssertionError."""
    zone_of = {entry.node_id: entry.zone for entry in machine.assignment.nodes.rows.values()}
    for replicas in placements(machine):
        assert len({zone_of[node_id] for node_id in replicas}) == min(zones, len(replicas)), replicas


def spread(counted: Counter[str], what: str) -> list[Row]:
    """Two rows: the least and the greatest of the counts."""
    return [Row(f"{what}, fewest", min(counted.values()), ""), Row(f"{what}, most", max(counted.values()), "")]


def balance(machine: ControllerMachine) -> list[Row]:
    """Rows about the fewest and the most replicas of a node, and first replicas, which lead at first."""
    placed, names = placements(machine), list(machine.assignment.nodes.rows)
    replicas = Counter(dict.fromkeys(names, 0))
    replicas.update(chain.from_iterable(placed))
    firsts = Counter(dict.fromkeys(names, 0))
    firsts.update(nodes[0] for nodes in placed)
    return [*spread(replicas, "replicas a node"), *spread(firsts, "first replicas a node")]


def catalog(machine: ControllerMachine) -> rpc.Catalog:
    """The catalog as the controller's leader sends it to a node."""

    def placement(topic: Topic) -> Placement:
        replicas, founders = topic.placements, topic.founders
        return Placement(topic.name, topic.topic_id, topic.config, topic.replication_factor, replicas, founders)

    assignment = machine.assignment
    return rpc.Catalog(
        machine.catalog_index,
        [placement(topic) for topic in machine.catalog.topics()],
        assignment.controllers[0],
        1,
        list(assignment.nodes.rows.values()),
        assignment.nodes.removed,
        assignment.controllers,
        list(assignment.moves.values()),
    )
