"""The interface between the nemesis and the catalogue of faults: a Fault, what it may touch (Arena), what is Broken.

A fault only breaks and heals. harness/schedule.py decides when it strikes; the checkers know what must hold.
"""

import random
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ...client.api.client import Client
from ..system.disks import LoopDisk
from ..system.hosts import Hosts
from ..system.proxies import Proxies
from ..system.raw import RawNode


class Arena(Protocol):
    """The cluster under test. Every node runs in a process of its own, which only the arena starts."""

    @property
    def nodes(self) -> Sequence[str]:
        """Names of all nodes, ``n1`` and so on, in order, running or not."""
        ...

    @property
    def proxies(self) -> Proxies | None:
        """The proxies between nodes, and between clients and nodes; None unless the cluster was started behind them."""
        ...

    @property
    def hosts(self) -> Hosts | None:
        """A network namespace for each node; None unless the cluster was started in them."""
        ...

    @property
    def disks(self) -> Mapping[str, LoopDisk]:
        """A disk of its own for each node; empty unless the cluster was started on them."""
        ...

    @property
    def clients(self) -> Mapping[str, int]:
        """The clients that may be stalled, the actors that run as processes of their own: process ids by name."""
        ...

    @property
    def client(self) -> Client:
        """The client with which faults find leaders and change the membership."""
        ...

    @property
    def topics(self) -> Sequence[str]:
        """The topics under load."""
        ...

    def pid(self, node: str) -> int | None:
        """Process id; None while the node does not run."""
        ...

    def raw(self, node: str) -> RawNode:
        """A client of this node alone."""
        ...

    def data(self, node: str) -> Path:
        """The folder of the node's data."""
        ...

    def kill(self, node: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the node's process, if it runs; after SIGKILL it is gone when this returns."""
        ...

    def start(self, node: str) -> None:
        """Start the node, unless it runs. A fault that has ended a node starts it again."""
        ...

    async def ready(self, node: str) -> None:
        """Return when the node runs and says that it is ready. Raises NotInTime."""
        ...


class Broken(msgspec.Struct, frozen=True):
    """A strike that has not been healed yet."""

    what: str
    """What is broken, in a few words for the report: ``n2 stopped``."""
    heal: Callable[[], Awaitable[None]]
    """Undo it. Does not wait for the cluster to recover, which the checkers judge. Safe if another fault has ended the
    process, or healed the same thing, meanwhile. What it raises is a failure of the run.
    """
    nodes: Sequence[str] = ()
    """Nodes, or the client, that this strike stops or impairs; the history has them in its event."""


class Fault(Protocol):
    """One entry of the catalogue. A fault has no state between strikes; ``Broken`` has the state of a strike."""

    @property
    def name(self) -> str:
        """Its name on the command line: ``kill-leader``, ``partition-ring``, ``power``…"""
        ...

    @property
    def about(self) -> str:
        """What it does, in one line for users."""
        ...

    def why_not(self, arena: Arena) -> str | None:
        """What it needs and is missing (root, namespaces, disks, a tool), in one line; None if it can strike."""
        ...

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Break something; ``chance`` decides every choice. Raises NothingToBreak if there is no target now."""
        ...


class NothingToBreak(Exception):
    """There is no target now (no known leader, no holder to stall). The nemesis skips the strike."""
