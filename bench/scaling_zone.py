"""A zone is lost for good, and its nodes are removed: every partition that had a replica there gets another one.

The controller's machine, the placement and the next step of each move are the product's; leaders, copies and time are
modelled. A leader looks at its moves every LOOK_S and takes ``moves_at_once`` at a time, as mover.py does; a node
receives one copy after the other; leaders begin when the new catalog has gone to all nodes.
"""

from collections import Counter, defaultdict, deque
from heapq import heappop, heappush
from typing import NamedTuple

from scaling_world import Controller, Row, Sizes, balance, bar, catalog, check_zones, create, register

from stockade.cluster import rpc
from stockade.cluster.controller.commands import CheckMove, Command, MoveDone, RemoveZone
from stockade.cluster.controller.topology.moves import Add, Arrived, Move, Remove, TransferLeadership, Wait, next_step
from stockade.cluster.replica.mover import LOOK_S
from stockade.partition.api.cluster import BalanceSettings
from stockade.raft.log.configuration import AddLearner, Configuration, Promote, RemoveMember, apply_change

PARTITION_BYTES = 1 << 30
COPY_BYTES_PER_S = 100_000_000
"""Bytes of copies that a node receives a second."""
NETWORK_BYTES_PER_S = 1_250_000_000
"""Bytes that a controller sends a second: 10 Gbit/s."""
COMMIT_S = 0.01
"""Seconds until the controller, or a partition, has committed a decision."""


class _Event(NamedTuple):
    at_s: float
    number: int
    group: int


class Healing:
    """The model of all moves that follow one loss. ``finished_s`` is when the last move has arrived."""

    def __init__(self, controller: Controller, lost: set[str], start_s: float) -> None:
        self.finished_s = 0.0
        self.at_once_max = 0
        self.commands_by_second: Counter[int] = Counter()
        self._controller = controller
        assignment = controller.machine.assignment
        self._reached = set(assignment.nodes.rows) - lost
        self._moves = dict(assignment.moves)
        self._now: dict[int, Configuration] = {}
        self._leaders: dict[int, str] = {}
        self._received_s: defaultdict[str, float] = defaultdict(float)
        self._waiting: defaultdict[str, deque[Move]] = defaultdict(deque)
        self._events: list[_Event] = []
        self._number = 0
        self._running = 0
        for move in self._moves.values():
            located = controller.machine.catalog.locate(move.group_id)
            if located is None:
                continue  # the controller's own group
            voters = located[0].founders[located[1]]
            self._now[move.group_id] = Configuration(dict(voters))
            self._leaders[move.group_id] = leader = next(node for node in voters if node in self._reached)
            self._waiting[leader].append(move)
        self.count = len(self._now)
        self.leaders = len(self._waiting)
        self.by_leader_max = max(map(len, self._waiting.values()), default=0)
        for leader in list(self._waiting):
            for _ in range(BalanceSettings().moves_at_once):
                self._begin(leader, start_s)

    def run(self) -> None:
        """Play events until every move has arrived."""
        with bar() as add:
            advance = add("moves", self.count)
            while self._events:
                event = heappop(self._events)
                if self._step(event.at_s, self._moves[event.group]):
                    advance()

    def _begin(self, leader: str, at_s: float) -> None:
        if self._waiting[leader]:
            self._running += 1
            self.at_once_max = max(self.at_once_max, self._running)
            self._at(at_s + LOOK_S, self._waiting[leader].popleft().group_id)

    def _at(self, at_s: float, group: int) -> None:
        self._number += 1
        heappush(self._events, _Event(at_s, self._number, group))

    def _step(self, at_s: float, move: Move) -> bool:
        """Take the next step of a move at ``at_s``; return whether the move has arrived."""
        group, now = move.group_id, self._now[move.group_id]
        leader = self._leaders[group]
        if now.learners:  # the copy is there
            now = apply_change(now, Promote(next(iter(now.learners))))
        step, then_s = next_step(now, leader, move.target, self._reached), at_s + 2 * COMMIT_S + LOOK_S
        self._decide(at_s, CheckMove(now_ms=0, group_id=group, version=move.version))
        match step:
            case Add(node_id):
                now = apply_change(now, AddLearner(node_id, 1))
                begin_s = max(at_s, self._received_s[node_id])
                self._received_s[node_id] = begin_s + PARTITION_BYTES / COPY_BYTES_PER_S
                then_s = max(then_s, self._received_s[node_id])
            case Remove(node_id):
                now = apply_change(now, RemoveMember(node_id))
            case Arrived():
                self._decide(at_s, MoveDone(now_ms=0, group_id=group, version=move.version))
                self.finished_s = max(self.finished_s, at_s + COMMIT_S)
                self._running -= 1
                self._begin(leader, at_s)
                return True
            case Wait() | TransferLeadership():
                raise AssertionError(f"nothing leads to {step}")
        self._now[group] = now
        self._at(then_s, group)
        return False

    def _decide(self, at_s: float, command: Command) -> None:
        self.commands_by_second[int(at_s)] += 1
        self._controller.do(command)


def lose(sizes: Sizes) -> list[Row]:
    """A machine is lost for good, and its nodes are removed."""
    controller = Controller()
    register(controller, sizes)
    create(controller, sizes)
    machine = controller.machine
    rows = machine.assignment.nodes.rows
    zone = f"machine-{sizes.zones - 1:03}"
    lost = {entry.node_id for entry in rows.values() if entry.zone == zone}
    leaderless = sum(nodes[0] in lost for topic in machine.catalog.topics() for nodes in topic.placements)
    before_s = controller.cpu_s
    controller.do(RemoveZone(now_ms=0, zone=zone))
    removed_s = controller.cpu_s - before_s
    sent = len(rpc.encode(catalog(machine))) * len(rows)
    told_s = sent / len(machine.assignment.controllers) / NETWORK_BYTES_PER_S
    healing = Healing(controller, lost, told_s)
    before, bytes_before = controller.commands, controller.command_bytes
    healing.run()
    assert not lost & set(rows), "a lost node holds something still"
    check_zones(machine, sizes.zones)
    return [
        Row("nodes lost", len(lost), ""),
        Row("partitions that elect another leader", leaderless, ""),
        Row("replicas that move", healing.count, ""),
        Row("remove them: the loop waits", removed_s * 1e3, "ms"),
        Row("leaders that move replicas", healing.leaders, ""),
        Row("moves of one leader, most", healing.by_leader_max, ""),
        Row("moves at once, most", healing.at_once_max, ""),
        Row("catalog until all nodes have it (model)", told_s, "s"),
        Row("all bytes of catalogs, for each time all nodes get it", sent / 1e9, "GB"),
        Row("until every partition has its replicas (model)", healing.finished_s, "s"),
        Row("commands to the controller", controller.commands - before, ""),
        Row("their bytes", (controller.command_bytes - bytes_before) / 1e3, "kB"),
        Row("commands in one second, most", max(healing.commands_by_second.values()), "/s"),
        Row("controller: the whole loss", (controller.cpu_s - before_s) * 1e3, "ms"),
        *balance(machine),
    ]
