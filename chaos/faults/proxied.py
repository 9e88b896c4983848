"""Faults of connections, with toxiproxy: between nodes, and between clients and nodes. None needs root."""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any

from ..system.proxies import Proxies, Proxy
from .fault import Arena, Broken

Draw = Callable[[random.Random], Mapping[str, Any]]
"""Chooses a toxic's attributes; toxiproxy's README has their names and units."""
STREAMS = (("upstream",), ("downstream",), ("upstream", "downstream"))
_numbers = count(1)
_WITHOUT = "the cluster was not started behind toxiproxy"


def _targets(arena: Arena, chance: random.Random) -> tuple[str, Sequence[Proxy]]:
    """At random: all links of one node to its peers, the proxy between clients and one node, or one link."""
    proxies = arena.proxies
    assert isinstance(proxies, Proxies)
    node, other = chance.sample(list(arena.nodes), 2)
    kind = chance.choice(["links", "clients", "link"])
    if kind == "clients":
        return f"clients to {node}", [proxies.client_proxies[node]]
    if kind == "link":
        return f"{node} to {other}", [proxies.mesh.link(node, other)]
    others = [peer for peer in arena.nodes if peer != node]
    both = [proxies.mesh.link(*pair) for peer in others for pair in ((node, peer), (peer, node))]
    return f"all links of {node}", both


class Toxic:
    """One of toxiproxy's toxics, in one direction or both."""

    def __init__(self, kind: str, about: str, draw: Draw) -> None:
        self.name: str = f"toxic-{kind.replace('_', '-')}"
        self.about = about
        self._kind = kind
        self._draw = draw

    def why_not(self, arena: Arena) -> str | None:
        return None if arena.proxies is not None else _WITHOUT

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        where, proxies = _targets(arena, chance)
        attributes, streams = self._draw(chance), chance.choice(STREAMS)
        names = {stream: f"{self.name}-{next(_numbers)}" for stream in streams}
        with ExitStack() as undo:
            for proxy in proxies:
                for stream, name in names.items():
                    proxy.add_toxic(name, self._kind, stream, attributes)
                    undo.callback(proxy.remove_toxic, name)
            healing = undo.pop_all()

        async def heal() -> None:
            healing.close()

        values = ", ".join(f"{key} {value}" for key, value in attributes.items())
        return Broken(f"{self._kind} ({values}), {' and '.join(streams)}, {where}", heal)


class ProxyDown:
    """Connections break, and new ones are refused."""

    name = "proxy-down"
    about = "connections break, and new ones are refused"

    def why_not(self, arena: Arena) -> str | None:
        return None if arena.proxies is not None else _WITHOUT

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        where, proxies = _targets(arena, chance)
        with ExitStack() as undo:
            for proxy in proxies:
                proxy.disable()
                undo.callback(proxy.enable)
            healing = undo.pop_all()

        async def heal() -> None:
            healing.close()

        return Broken(f"refused: {where}", heal)


PROXY_FAULTS = (
    Toxic(
        "latency",
        "data arrive 20 ms to 1.5 s late",
        lambda chance: {"latency": chance.choice([20, 100, 400, 1500]), "jitter": chance.choice([0, 10, 300])},
    ),
    Toxic("bandwidth", "connections carry 8 to 512 KB/s", lambda chance: {"rate": chance.choice([8, 64, 512])}),
    Toxic("slow_close", "connections close 0.5 or 3 s late", lambda chance: {"delay": chance.choice([500, 3000])}),
    Toxic(
        "timeout",
        "no data get through; the connection is closed after 0.5 or 4 s, or stays open",
        lambda chance: {"timeout": chance.choice([0, 500, 4000])},
    ),
    Toxic(
        "reset_peer",
        "connections are reset, at once or after up to 2 s",
        lambda chance: {"timeout": chance.choice([0, 200, 2000])},
    ),
    Toxic(
        "slicer",
        "data arrive in small pieces",
        lambda chance: {"average_size": chance.choice([16, 256]), "size_variation": 8, "delay": 200},
    ),
    Toxic("limit_data", "connections end after 64 or 5,000 bytes", lambda chance: {"bytes": chance.choice([64, 5000])}),
    ProxyDown(),
)
