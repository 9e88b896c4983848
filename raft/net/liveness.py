"""Signs of life between nodes: one to every peer each period; a peer that gives none for a while is silent.

Groups at rest send nothing: the pulses of a node stand for the heartbeats of the leaders on it. Sans-IO: clock and
timers are given, so that a simulator can drive it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .ports import Timer

STALL_S = 0.05
"""A timer that is later than this has not fired late by chance: this node itself stood still."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds that decide how a node and its peers keep in touch; the nodes of a cluster should agree on them."""

    pulse_s: float = 0.15
    """Period of the signs of life."""
    silent_s: float = 0.6
    """A peer that gave none for so long is silent: nobody waits for it any more."""
    dead_s: float = 3.0
    """A connection on which nothing arrived for so long is dropped."""
    reconnect_s: float = 0.2
    """So long after a connection was lost the next is dialled."""


DEFAULT_TIMES = Times()


class Owner(Protocol):
    """What a node does with pulses."""

    def pulse(self, awake_at: float) -> None:
        """It is time for a sign of life to everybody. This node is not known to have stood still since ``awake_at``."""
        ...

    def last_heard(self, node_id: str) -> float:
        """When something arrived of a connected peer."""
        ...

    def silenced(self, node_id: str) -> None:
        """A connected peer fell silent."""
        ...

    def heard_again(self, node_id: str) -> None:
        """A peer that was silent is not any more."""
        ...


class Pulses:
    """Which peers are silent. Nobody is blamed for the time in which this node stood still."""

    silent: set[str]
    """The connected peers that gave no sign of life for a while. Do not change it."""

    def __init__(
        self,
        owner: Owner,
        time: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], Timer],
        times: Times,
    ) -> None:
        self.silent = set()
        self._owner = owner
        self._time = time
        self._call_at = call_at
        self._times = times
        self._peers: dict[str, None] = {}
        self._timer: Timer | None = None
        self._due = 0.0
        self._awake_at = float("-inf")

    def start(self) -> None:
        """Give signs of life from now on."""
        self._due = self._time()
        self._pulse()

    def stop(self) -> None:
        """Fall silent."""
        if self._timer is not None:
            self._timer.cancel()

    def up(self, node_id: str) -> None:
        """A peer is connected."""
        self._peers[node_id] = None

    def down(self, node_id: str) -> None:
        """A peer is no longer connected: whether it was silent does not matter any more."""
        del self._peers[node_id]
        self.silent.discard(node_id)

    def heard_at(self, node_id: str) -> float:
        """When a connected peer gave its last sign of life; minus infinity for others.

        While this node stood still, everybody may have given some: that counts as if they did.
        """
        if node_id not in self._peers:
            return float("-inf")
        return max(self._owner.last_heard(node_id), self._awake_at)

    def _pulse(self) -> None:
        now = self._time()
        if now - self._due > STALL_S:
            self._awake_at = now
        self._due = now + self._times.pulse_s
        self._timer = self._call_at(self._due, self._pulse)
        self._owner.pulse(self._awake_at)
        for node_id in list(self._peers):
            is_silent = now - self.heard_at(node_id) >= self._times.silent_s
            if node_id in self._peers and is_silent != (node_id in self.silent):
                self._turn(node_id, is_silent)

    def _turn(self, node_id: str, is_silent: bool) -> None:
        if is_silent:
            self.silent.add(node_id)
            self._owner.silenced(node_id)
        else:
            self.silent.discard(node_id)
            self._owner.heard_again(node_id)
