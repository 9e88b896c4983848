"""What a fault is, and what it may touch: the terms on which the nemesis and the catalogue of faults work together.

A fault only breaks and mends. When it strikes, what else is broken then, and what must hold afterwards is not its
business: nemesis_schedule.py and the checkers have that.
"""

import random
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ..client.admin import Client
from .disks import LoopDisk
from .network.hosts import Hosts
from .proxies import Proxies
from .raw import RawNode


class Arena(Protocol):
    """The cluster under test. Every node runs in a process of its own, and nobody but the arena starts one."""

    @property
    def nodes(self) -> Sequence[str]:
        """Names of all nodes, ``n1`` and so on, in order, whether they run or not."""
        ...

    @property
    def proxies(self) -> Proxies | None:
        """Between the nodes, and between clients and nodes; None unless the cluster was started behind them."""
        ...

    @property
    def hosts(self) -> Hosts | None:
        """A network namespace for each node (``chaos/network``); None unless the cluster was started in them."""
        ...

    @property
    def disks(self) -> Mapping[str, LoopDisk]:
        """A disk of its own for each node; empty unless the cluster was started on them."""
        ...

    @property
    def clients(self) -> Sequence[int]:
        """Process ids of clients that may be stalled: they hold slots and are about to be taken over from."""
        ...

    @property
    def client(self) -> Client:
        """For questions (who leads?) and for faults of membership."""
        ...

    @property
    def topics(self) -> Sequence[str]:
        """The topics under load."""
        ...

    def pid(self, node: str) -> int | None:
        """Process id; None while the node does not run."""
        ...

    def raw(self, node: str) -> RawNode:
        """Requests to this node alone."""
        ...

    def data(self, node: str) -> Path:
        """The folder of the node's data."""
        ...

    def kill(self, node: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the node's process, if it runs; after SIGKILL it is gone when this returns."""
        ...

    def start(self, node: str) -> None:
        """Start the node, unless it runs. Nobody else starts what a fault has ended."""
        ...

    async def ready(self, node: str) -> None:
        """Return when the node runs and says that it is ready. Raises NotInTime."""
        ...


class Broken(msgspec.Struct, frozen=True):
    """A strike that has not been healed yet."""

    what: str
    """For people, in a few words: ``n2 stopped (leads the controller)``."""
    heal: Callable[[], Awaitable[None]]
    """Undo it. Waits for nothing but its own undoing: that the cluster recovers is a claim for the checkers. Safe when
    another fault has meanwhile ended the process, or healed the same thing.
    """
    nodes: Sequence[str] = ()
    """Nodes that this strike keeps from working; the report names them."""


class Fault(Protocol):
    """One entry of the catalogue. It keeps nothing between strikes: what it must remember is in ``Broken``."""

    @property
    def name(self) -> str:
        """As on the command line: ``kill-leader``, ``partition-ring``, ``power``…"""
        ...

    @property
    def about(self) -> str:
        """One line for people: what it does."""
        ...

    def why_not(self, arena: Arena) -> str | None:
        """What it needs and does not have (root, namespaces, disks, a tool), in one line; None: it can run."""
        ...

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Begin; every choice is drawn from ``chance``. Raises NothingToBreak when it finds no target now."""
        ...


class NothingToBreak(Exception):
    """There is no target at this moment (no leader is known, no holder to stall); the nemesis goes on."""
