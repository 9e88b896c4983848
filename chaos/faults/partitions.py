"""Faults of the network: packets between hosts are dropped, all or at random, or a link is down.

They need root, and a cluster started in network namespaces.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from ..system.hosts import Hosts, Rule, why_not
from .fault import Arena, Broken, NothingToBreak
from .targets import listed, minority

Pairs = Sequence[tuple[str, str]]
"""(source, target): no packet from the source reaches the target."""
Cut = Callable[[Arena, random.Random], tuple[str, Pairs]]
"""Draws a cut: its description, and its pairs."""
FLAPS_S = (0.2, 0.7, 1.5)
"""Seconds between two changes of a flapping cut, drawn for each."""


def _hosts(arena: Arena) -> Hosts:
    if arena.hosts is None:
        raise NothingToBreak("the cluster was not started in network namespaces")
    return arena.hosts


def _why_not(arena: Arena) -> str | None:
    if arena.hosts is None:
        return why_not() or "the cluster was not started in network namespaces"
    return None


def _across(some: Sequence[str], others: Sequence[str]) -> Pairs:
    return [pair for one in some for other in others for pair in ((one, other), (other, one))]


def full(arena: Arena, chance: random.Random) -> tuple[str, Pairs]:
    """A minority and the others cannot reach each other; clients reach both sides, or only the majority."""
    some = minority(arena, chance)
    clients = [_hosts(arena).gateway] if chance.random() < 0.5 else []
    rest = [node for node in arena.nodes if node not in some]
    cut = f"{listed(some)} cut off from {listed(rest)}{' and the clients' if clients else ''}"
    return cut, _across(some, [*rest, *clients])


def one_way(arena: Arena, chance: random.Random) -> tuple[str, Pairs]:
    """One node receives no packets but can send, or can receive but none of its packets arrive."""
    node = chance.choice(list(arena.nodes))
    others = [other for other in arena.nodes if other != node]
    if chance.random() < 0.5:
        return f"{node} receives nothing", [(other, node) for other in others]
    return f"nothing from {node} arrives", [(node, other) for other in others]


def ring(arena: Arena, chance: random.Random) -> tuple[str, Pairs]:
    """Every node sees a majority, and no two see the same one. With three nodes each link works in one direction only:
    with both directions every node would see all.
    """
    circle = chance.sample(list(arena.nodes), len(arena.nodes))
    size, reach = len(circle), (len(circle) // 2 + 1) // 2
    if size < 4:
        pairs = [(circle[k], circle[k - 1]) for k in range(size)]
        return f"each hears the one before only: {listed(circle)}", pairs
    far = [(a, b) for a in range(size) for b in range(size) if reach < (a - b) % size < size - reach]
    return f"each sees its neighbours only: {listed(circle)}", [(circle[a], circle[b]) for a, b in far]


def bridge(arena: Arena, chance: random.Random) -> tuple[str, Pairs]:
    """Two halves see each other through one node only."""
    nodes = chance.sample(list(arena.nodes), len(arena.nodes))
    middle, rest = nodes[0], nodes[1:]
    half = len(rest) // 2
    words = f"{listed(rest[:half])} and {listed(rest[half:])} see each other through {middle} only"
    return words, _across(rest[:half], rest[half:])


class Partition:
    """Packets between hosts are dropped."""

    def __init__(self, name: str, about: str, cut: Cut) -> None:
        self.name = name
        self.about = about
        self._cut = cut

    def why_not(self, arena: Arena) -> str | None:
        return _why_not(arena)

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        hosts = _hosts(arena)
        what, pairs = self._cut(arena, chance)
        rules = await asyncio.to_thread(_drop, hosts, pairs)

        async def heal() -> None:
            await asyncio.to_thread(_mend, hosts, rules)

        return Broken(what, heal)


class Flapping:
    """A cut that comes and goes, at times faster than an election."""

    name = "partition-flapping"
    about = "a cut, both ways or one way, that comes and goes"

    def why_not(self, arena: Arena) -> str | None:
        return _why_not(arena)

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        hosts = _hosts(arena)
        what, pairs = chance.choice([full, one_way])(arena, chance)
        times = random.Random(chance.random())  # a seed replays it  # noqa: S311  # nosec B311
        stop = asyncio.Event()
        flapping = asyncio.create_task(_flap(hosts, pairs, times, stop))

        async def heal() -> None:
            stop.set()
            await flapping

        return Broken(f"flapping: {what}", heal)


async def _flap(hosts: Hosts, pairs: Pairs, times: random.Random, stop: asyncio.Event) -> None:
    while not stop.is_set():
        rules = await asyncio.to_thread(_drop, hosts, pairs)
        try:
            await _wait(stop, times.choice(FLAPS_S))
        finally:
            await asyncio.to_thread(_mend, hosts, rules)
        await _wait(stop, times.choice(FLAPS_S))


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


class Loss:
    """A share of the packets to some hosts is lost at random."""

    name = "packet-loss"
    about = "a share of the packets to some nodes is lost at random"

    def why_not(self, arena: Arena) -> str | None:
        return _why_not(arena)

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Lose 5 to 40 % on the way to one node, or to all."""
        hosts = _hosts(arena)
        share = chance.choice([0.05, 0.2, 0.4])
        nodes = chance.choice([list(arena.nodes), [chance.choice(list(arena.nodes))]])
        rules = await asyncio.to_thread(lambda: [hosts.lose(node, share) for node in nodes])

        async def heal() -> None:
            await asyncio.to_thread(_mend, hosts, rules)

        return Broken(f"{share:.0%} of the packets to {listed(nodes)} lost", heal)


class LinkDown:
    """The link of a host is down: it sends and receives nothing, and connections are not closed."""

    name = "link-down"
    about = "the network link of a node is down"

    def why_not(self, arena: Arena) -> str | None:
        return _why_not(arena)

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        hosts, node = _hosts(arena), chance.choice(list(arena.nodes))
        await asyncio.to_thread(hosts.unplug, node)

        async def heal() -> None:
            await asyncio.to_thread(hosts.plug, node)

        return Broken(f"link of {node} down", heal, [node])


def _drop(hosts: Hosts, pairs: Pairs) -> list[Rule]:
    return [hosts.drop(source, target) for source, target in pairs]


def _mend(hosts: Hosts, rules: Sequence[Rule]) -> None:
    for rule in rules:
        hosts.mend(rule)


PARTITION_FAULTS = (
    Partition("partition", "a minority is cut off, both ways", full),
    Partition("partition-one-way", "one node receives nothing, or nothing that it sends arrives", one_way),
    Partition("partition-ring", "every node reaches a majority, no two nodes the same one", ring),
    Partition("partition-bridge", "two halves reach one node in common, and not each other", bridge),
    Flapping(),
    Loss(),
    LinkDown(),
)
