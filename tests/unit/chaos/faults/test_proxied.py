"""Faults of connections: what the proxies refuse is told, and what is broken in part is mended."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.chaos.faults.fault import Broken
from stockade.chaos.faults.proxied import PROXY_FAULTS
from stockade.chaos.system.proxies import ProxyError

FAULTS = {fault.name: fault for fault in PROXY_FAULTS}


class FakeProxy:
    """A proxy that refuses one call of all that the proxies of a test get."""

    def __init__(self, calls: "Calls") -> None:
        self._calls = calls
        self.broken: set[str] = set()

    def add_toxic(self, name: str, *_: object) -> None:
        self._calls.next()
        self.broken.add(name)

    def remove_toxic(self, name: str) -> None:
        self._calls.next()
        self.broken.remove(name)

    def disable(self) -> None:
        self.add_toxic("down")

    def enable(self) -> None:
        self.remove_toxic("down")


class Calls:
    """Counts calls; refuses that with the number ``refused``."""

    def __init__(self) -> None:
        self.made = 0
        self.refused: int | None = None

    def next(self) -> None:
        self.made += 1
        if self.made == self.refused:
            raise ProxyError("toxiproxy did not answer")


def arena(calls: Calls) -> tuple[Any, list[FakeProxy]]:
    """Three nodes; every draw of targets takes all links of one of them."""
    made: list[FakeProxy] = []

    def link(*_: str) -> FakeProxy:
        made.append(FakeProxy(calls))
        return made[-1]

    class ProxiesOfATest:
        mesh = SimpleNamespace(link=link)

    return SimpleNamespace(nodes=["n1", "n2", "n3"], proxies=ProxiesOfATest()), made


class AllLinks(random.Random):
    """Chooses all links of a node, and otherwise the last of all."""

    def choice(self, several: Any) -> Any:
        return "links" if "links" in several else several[-1]


async def healed(broken: Broken) -> None:
    await broken.heal()


@pytest.fixture(autouse=True)
def fakes_are_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.chaos.faults.proxied.Proxies", object)


@pytest.mark.parametrize("name", ["toxic-latency", "proxy-down"])
def test_a_healing_that_is_refused_is_told_and_heals_the_rest(name: str) -> None:
    """Otherwise the run would be judged as if nothing were broken any more."""
    calls = Calls()
    there, proxies = arena(calls)
    broken = asyncio.run(FAULTS[name].strike(there, AllLinks(1)))
    calls.refused = calls.made + 1
    with pytest.raises(ProxyError, match="toxiproxy did not answer"):
        asyncio.run(healed(broken))
    assert sum(len(proxy.broken) for proxy in proxies) == 1


@pytest.mark.parametrize("name", ["toxic-latency", "proxy-down"])
def test_a_strike_that_is_refused_in_the_middle_leaves_nothing_broken(name: str) -> None:
    calls = Calls()
    calls.refused = 3
    there, proxies = arena(calls)
    with pytest.raises(ProxyError, match="toxiproxy did not answer"):
        asyncio.run(FAULTS[name].strike(there, AllLinks(1)))
    assert [proxy.broken for proxy in proxies] == [set()] * 4
