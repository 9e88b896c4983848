"""Where the replicas of a new topic go, and which nodes found the controller group: pure functions of the nodes, their
zones and their present replicas.

The first replica of each partition, which is likely to lead its group first, goes to the node with the fewest
first replicas. Each further one goes to the node with the fewest replicas, in a zone where the partition has
none yet; when every zone has one, in a zone that has one only, and so on. Ties go to the node that comes
first in an order that alternates between zones; with ``scattered``, further replicas go instead in the order of a hash
of the node and its number of replicas.

That order matters when a node is lost. In one order, the partitions of a node have their other replicas on the next
two nodes alone, which then lead all of them and copy all of them. Scattered, nearly every node leads and copies a few.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, nsmallest
from zlib import crc32

import msgspec

from ....partition.api.topics import REPLICATION_FACTOR_DEFAULT
from ....partition.errors import NotEnoughReplicas

Node = tuple[str, str | None]
"""Node id and zone; None: a zone of its own."""
_Zone = tuple[str, str]


class Load(msgspec.Struct):
    """The load of a node: the number of its replicas, and of those that are the first of their partition."""

    replicas: int = 0
    firsts: int = 0


def measure(placements: Iterable[Sequence[str]]) -> dict[str, Load]:
    """The load of each node, by id. ``placements``: the node ids of each partition, the first replica first."""
    loads: defaultdict[str, Load] = defaultdict(Load)
    for replicas in placements:
        loads[replicas[0]].firsts += 1
        for node_id in replicas:
            loads[node_id].replicas += 1
    return dict(loads)


def within_reach(nodes: Sequence[Node], is_present: Callable[[str], bool], replication_factor: int) -> list[Node]:
    """The nodes on which new partitions are placed: those that are present and, if these are fewer than the replication
    factor, as many of the others as are lacking: these get the entries when they come back.

    Raises NotEnoughReplicas when a partition would have no majority of its replicas present.
    """
    here = [node for node in nodes if is_present(node[0])]
    away = [node for node in nodes if not is_present(node[0])]
    if away and 2 * len(here) <= replication_factor <= len(nodes):
        names = ", ".join(node_id for node_id, _ in away)
        raise NotEnoughReplicas(
            f"replication factor {replication_factor}: no majority of replicas is up without {names}"
        )
    return here + away[: max(0, replication_factor - len(here))]


def default_factor(nodes: int) -> int:
    """The replication factor of a topic that leaves it to the cluster, of which so many nodes take replicas."""
    return REPLICATION_FACTOR_DEFAULT if nodes >= REPLICATION_FACTOR_DEFAULT else 1


def place(
    partitions: int,
    replication_factor: int,
    nodes: Sequence[Node],
    loads: Mapping[str, Load],
    *,
    scattered: bool = False,
) -> list[list[str]]:
    """Node ids for each partition, the first replica first.

    A node without an entry in ``loads`` holds nothing.
    """
    assert 1 <= replication_factor <= len(nodes)
    board = _Board(nodes, loads, scattered=scattered and replication_factor < len(nodes))
    return [board.place_one(replication_factor) for _ in range(partitions)]


class Candidates:
    """The nodes to which replicas may move, with their loads: each ``take`` adds to the load of the node that it gives.
    A ``take`` costs the replication factor times a logarithm of the number of nodes.

    ``away``: no replica goes to these nodes, but the zones of replicas that they have count.
    """

    def __init__(self, nodes: Sequence[Node], loads: Mapping[str, Load], away: Collection[str] = ()) -> None:
        self._zones = {node_id: _zone((node_id, zone)) for node_id, zone in nodes}
        self._by_zone: defaultdict[_Zone, list[tuple[int, str]]] = defaultdict(list)
        for node_id, zone in self._zones.items():
            if node_id not in away:
                self._by_zone[zone].append((loads.get(node_id, Load()).replicas, node_id))
        for nodes_there in self._by_zone.values():
            heapify(nodes_there)
        # A heap with the emptiest node of each zone, and with outdated entries.
        self._emptiest = [nodes_there[0] for nodes_there in self._by_zone.values()]
        heapify(self._emptiest)

    def take(self, replicas: Sequence[str]) -> str | None:
        """The node to add to ``replicas``: the one with the fewest replicas in the zones that have the fewest of
        ``replicas``. None: no candidate is left.
        """
        zones = (self._zones[node_id] for node_id in replicas if node_id in self._zones)
        used = Counter(zone for zone in zones if zone in self._by_zone)
        if len(used) < len(self._by_zone):
            return self._give(self._in_new_zone(used))
        here = [(used[zone], *found) for zone in used if (found := self._in_zone(zone, replicas)) is not None]
        return self._give(min(here)[2]) if here else None

    def _in_new_zone(self, used: Counter[_Zone]) -> str:
        passed = []
        while True:
            entry = heappop(self._emptiest)
            zone = self._zones[entry[1]]
            if self._by_zone[zone][0] != entry:
                continue
            passed.append(entry)
            if not used[zone]:
                break
        for entry in passed:
            heappush(self._emptiest, entry)
        return passed[-1][1]

    def _in_zone(self, zone: _Zone, replicas: Sequence[str]) -> tuple[int, str] | None:
        least = nsmallest(len(replicas) + 1, self._by_zone[zone])
        return next((entry for entry in least if entry[1] not in replicas), None)

    def _give(self, node_id: str) -> str:
        nodes_there = self._by_zone[self._zones[node_id]]
        before, passed = nodes_there[0], []
        while (entry := heappop(nodes_there))[1] != node_id:
            passed.append(entry)
        for other in (*passed, (entry[0] + 1, node_id)):
            heappush(nodes_there, other)
        if nodes_there[0] != before:
            heappush(self._emptiest, nodes_there[0])
        return node_id


def controllers(nodes: Sequence[Node], most: int) -> list[str]:
    """The nodes that found the controller group: an odd number, ``most`` at most, spread over zones; ascending by id.

    The largest number of nodes whose majority survives the loss of any one zone. With fewer than three zones there is
    no such number: then the largest odd one.
    """
    assert nodes
    ordered = _alternate(nodes)
    largest = min(most, len(ordered) - 1 + len(ordered) % 2)
    counts = (count for count in range(largest, 0, -2) if outlives_a_zone(ordered[:count]))
    return sorted(node_id for node_id, _ in ordered[: next(counts, largest)])


def outlives_a_zone(nodes: Sequence[Node]) -> bool:
    """Whether a majority of the nodes is left when any one zone is lost."""
    return 2 * max(Counter(map(_zone, nodes)).values()) < len(nodes)


class _Board:
    """The load of each node, and heaps to find the emptiest one. A node is its position in the alternating order."""

    def __init__(self, nodes: Sequence[Node], loads: Mapping[str, Load], *, scattered: bool) -> None:
        ordered = _alternate(nodes)
        self.scattered = scattered
        before = [loads.get(node_id, Load()) for node_id, _ in ordered]
        self.node_ids = [node_id for node_id, _ in ordered]
        self.zones = [_zone(node) for node in ordered]
        self.zone_sizes = Counter(self.zones)
        self.replicas = [load.replicas for load in before]
        self.by_firsts = [(load.firsts, node) for node, load in enumerate(before)]
        self.by_replicas = [self._entry(node) for node in range(len(ordered))]
        heapify(self.by_firsts)
        heapify(self.by_replicas)

    def place_one(self, replication_factor: int) -> list[str]:
        """Place one partition. Returns its node ids, the first replica first."""
        firsts, first = heappop(self.by_firsts)
        heappush(self.by_firsts, (firsts + 1, first))
        self.replicas[first] += 1
        chosen = [first]
        while len(chosen) < replication_factor:
            chosen.append(self._take_emptiest(chosen))
        return [self.node_ids[node] for node in chosen]

    def _entry(self, node: int) -> tuple[int, int, int]:
        """A heap entry: the node's number of replicas, its rank among nodes with the same number, and the node."""
        count = self.replicas[node]
        rank = crc32(f"{self.node_ids[node]}/{count}".encode()) if self.scattered else 0
        return count, rank, node

    def _take_emptiest(self, chosen: list[int]) -> int:
        used = Counter(self.zones[node] for node in chosen)
        level = self._level(used)
        passed: list[tuple[int, int, int]] = []
        while True:
            entry = heappop(self.by_replicas)
            count, _, node = entry
            if count < self.replicas[node]:  # a first replica has come since this entry was made
                heappush(self.by_replicas, self._entry(node))
            elif node in chosen or used[self.zones[node]] > level:
                passed.append(entry)
            else:
                break
        self.replicas[node] += 1
        for entry in (*passed, self._entry(node)):
            heappush(self.by_replicas, entry)
        return node

    def _level(self, used: Counter[_Zone]) -> int:
        """The replicas of the partition in the zone that takes the next one: the fewest of all zones with room."""
        if len(used) < len(self.zone_sizes):
            return 0
        return min(used[zone] for zone, size in self.zone_sizes.items() if used[zone] < size)


def _zone(node: Node) -> _Zone:
    node_id, zone = node
    return (zone, "") if zone is not None else ("", node_id)


def _alternate(nodes: Sequence[Node]) -> list[Node]:
    """The nodes in alternating order: the first node of each zone, the second of each, and so on; zones, and the nodes
    of a zone, by name.
    """
    seen: Counter[_Zone] = Counter()
    ranked = []
    for node in sorted(nodes, key=lambda node: node[0]):
        zone = _zone(node)
        ranked.append((seen[zone], zone, node))
        seen[zone] += 1
    return [node for _, _, node in sorted(ranked)]
