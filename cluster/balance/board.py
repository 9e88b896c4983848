"""The placement on which a plan is made: which node has which replicas, and which replica may go to which node.

A disk has a floor of free bytes: ``max(what disk_used_percent_max leaves free, 5/4 of what the node needs free to take
appends)``. A node with less free gives replicas until ``free >= 9/8 floor``; a node gets a replica only if it keeps
``free >= 5/4 floor``. So no step undoes another.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from .facts import Bar, Disk, Facts, Move, NodeFacts, PartitionFacts, Why

MOVES_MAX = 1_000
"""Partitions whose replicas one plan may change."""


def floor_bytes(disk: Disk, used_percent_max: int) -> int:
    """The floor of a disk: with fewer bytes free, replicas leave it."""
    by_percent = disk.total_bytes * (100 - used_percent_max) // 100
    return max(by_percent, disk.soft_free_bytes + disk.soft_free_bytes // 4)


class Board:
    """The placement, as the plan changes it. Nodes and partitions are numbers: ``placed`` has the nodes of each
    partition; of each node, ``held`` has the partitions, ``counts`` their number, and ``firsts`` the number of those
    that have it as the home of their leader. Only ``move`` and ``put_first`` change the placement.
    """

    def __init__(self, facts: Facts) -> None:
        self.nodes: Sequence[NodeFacts] = _sorted_nodes(facts)
        self.partitions: Sequence[PartitionFacts] = facts.partitions
        numbers = {node.node_id: number for number, node in enumerate(self.nodes)}
        self.placed: list[list[int]] = [[numbers[each] for each in part.replicas] for part in facts.partitions]
        self.behind: list[frozenset[int]] = [
            frozenset(numbers[each] for each in part.behind if each in part.replicas) if part.behind else _NONE
            for part in facts.partitions
        ]
        self.counts: list[int] = [0] * len(self.nodes)
        self.firsts: list[int] = [0] * len(self.nodes)
        self.held: list[set[int]] = [set() for _ in self.nodes]
        for partition, replicas in enumerate(self.placed):
            self.firsts[replicas[0]] += 1
            for node in replicas:
                self.counts[node] += 1
                self.held[node].add(partition)
        self._number_zones()
        self._measure_disks(facts, numbers)
        self.why: dict[int, Why] = {}
        """The reason for each partition that the plan changes, in the order of the changes."""

    def _number_zones(self) -> None:
        zones: dict[tuple[str, str], int] = {}
        keys = [("", node.node_id) if node.zone is None else (node.zone, "zone") for node in self.nodes]
        self.zones: list[int] = [zones.setdefault(key, len(zones)) for key in keys]

    def _measure_disks(self, facts: Facts, numbers: dict[str, int]) -> None:
        disks = [node.disk for node in self.nodes]
        self.free: list[int] = [0 if disk is None else disk.free_bytes for disk in disks]
        self.floors: list[int] = [
            0 if disk is None else floor_bytes(disk, facts.disk_used_percent_max) for disk in disks
        ]
        for part in facts.partitions:
            for ways, sign in ((part.coming, -1), (part.going, 1)):
                for node_id in ways:
                    self.free[numbers[node_id]] += sign * (part.stored_bytes or 0)

    @property
    def is_cut(self) -> bool:
        """Whether the plan has reached MOVES_MAX, so that it takes no further partition."""
        return len(self.why) >= MOVES_MAX

    def bar(self, node: int) -> Bar | None:
        """Why a node gets no replica; None: it may get some."""
        facts = self.nodes[node]
        if facts.bar is not None:
            return facts.bar
        disk = facts.disk
        if disk is None:
            return "away"
        return None if disk.is_ok and self.free[node] >= _with_more(self.floors[node], 4) else "full"

    def is_here(self, node: int) -> bool:
        """Whether this plan may take replicas from a node: not if it is away, was only announced, or is leaving."""
        return self.nodes[node].bar not in ("away", "announced", "leaving")

    def may_lead(self, node: int) -> bool:
        """Whether leaders may go to a node: its disk takes appends. A disk that is too full for replicas is no bar."""
        facts = self.nodes[node]
        return facts.bar is None and facts.disk is not None and facts.disk.is_ok

    def is_full(self, node: int) -> bool:
        """Whether a node has fewer bytes free than its floor."""
        return self.nodes[node].disk is not None and self.free[node] < self.floors[node]

    def is_relieved(self, node: int) -> bool:
        """Whether enough bytes are free that a node which was full gives no more replicas."""
        return self.free[node] >= _with_more(self.floors[node], 8)

    def may_leave(self, partition: int, node: int, *, may_lag: bool = False) -> bool:
        """Whether a replica may leave a node now: it has a leader, and no replica is behind. ``may_lag``: the replica
        that leaves may be behind: a full disk gets no records (disk_watch.py), so its replicas lag until they go.
        """
        part = self.partitions[partition]
        if part.is_moving or part.leader is None or part.stored_bytes is None:
            return False
        return not self.behind[partition] or (may_lag and self.behind[partition] == {node})

    def may_go(self, partition: int, source: int, target: int) -> bool:
        """Whether zones and room let a replica go from one node to another. The target's zone must not have more of the
        partition's other replicas than the source's zone.
        """
        placed, zones = self.placed[partition], self.zones
        if target in placed:
            return False
        there = sum(zones[other] == zones[target] for other in placed if other != source)
        here = sum(zones[other] == zones[source] for other in placed if other != source)
        size = self.partitions[partition].stored_bytes or 0
        return there <= here and self.free[target] - size >= _with_more(self.floors[target], 4)

    def move(self, partition: int, source: int, target: int, why: Why) -> None:
        """Move a replica from one node to another."""
        placed, size = self.placed[partition], self.partitions[partition].stored_bytes or 0
        position = placed.index(source)
        placed[position] = target
        for node, sign in ((source, -1), (target, 1)):
            self.counts[node] += sign
            self.firsts[node] += sign * (position == 0)
            self.free[node] -= sign * size
        self.held[source].discard(partition)
        self.held[target].add(partition)
        if self.why.get(partition, "home") == "home":
            self.why[partition] = why

    def put_first(self, partition: int, node: int) -> None:
        """Make the replica on a node the first one, which is the home of the leader."""
        placed = self.placed[partition]
        position = placed.index(node)
        self.firsts[placed[0]] -= 1
        self.firsts[node] += 1
        placed[0], placed[position] = node, placed[0]
        self.why.setdefault(partition, "home")

    def moves(self) -> Iterator[Move]:
        """The moves from the placement of the facts to the present one."""
        for partition, why in self.why.items():
            part, target = self.partitions[partition], [self.nodes[each].node_id for each in self.placed[partition]]
            if target != list(part.replicas):
                coming = sum(node_id not in part.replicas for node_id in target)
                size = (part.stored_bytes or 0) * coming
                yield Move(part.group, list(part.replicas), target, size, why if coming else "home")


class Emptiest:
    """Nodes that may be chosen, those with the least count first."""

    def __init__(self, counts: Sequence[int], nodes: Sequence[int]) -> None:
        """``counts`` may change between choices: each choice reads the counts of the nodes that come up, so a count
        that has fallen is noticed late.
        """
        self._counts = counts
        self._heap = [(counts[node], node) for node in nodes]
        heapify(self._heap)

    def find(self, fits: Callable[[int], bool], below: int) -> int | None:
        """The node with the least count, below ``below``, for which ``fits`` holds; None: there is none."""
        passed, found = [], None
        while self._heap and self._heap[0][0] < below:
            count, node = heappop(self._heap)
            if count != self._counts[node]:
                heappush(self._heap, (self._counts[node], node))
                continue
            passed.append((count, node))
            if fits(node):
                found = node
                break
        for entry in passed:
            heappush(self._heap, entry)
        return found


class Fullest:
    """Nodes that give, those with the highest count first. A node that has nothing to give is dropped."""

    def __init__(self, counts: Sequence[int], nodes: Sequence[int]) -> None:
        """``counts`` may change between choices: each choice reads the counts of the nodes that come up, so a count
        that has grown is noticed late.
        """
        self._counts = counts
        self._heap = [(-counts[node], node) for node in nodes]
        heapify(self._heap)

    def drain(self, gives: Callable[[int], bool]) -> bool:
        """Let the fullest node give, and then again the fullest one, until none gives. Returns whether any gave."""
        gave = False
        while self._heap:
            count, node = heappop(self._heap)
            if -count != self._counts[node]:
                heappush(self._heap, (-self._counts[node], node))
            elif gives(node):
                gave = True
                heappush(self._heap, (-self._counts[node], node))
        return gave


_NONE: frozenset[int] = frozenset()


def _with_more(size: int, part: int) -> int:
    return size + size // part


def _sorted_nodes(facts: Facts) -> list[NodeFacts]:
    """The nodes, ascending by id. A node that only a partition names counts as one that is away."""
    known = {node.node_id: node for node in facts.nodes}
    named = {name for part in facts.partitions for names in (part.replicas, part.coming, part.going) for name in names}
    for node_id in named - known.keys():
        known[node_id] = NodeFacts(node_id, None, None, "away")
    return [known[node_id] for node_id in sorted(known)]
