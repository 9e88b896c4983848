"""Liveness of the other nodes: this node sends every peer a heartbeat each period; a peer that sends nothing is silent.

Quiescent groups send nothing: the heartbeats of a node stand for those of the leaders on it. No IO here: clock and
timers are parameters, so that a simulator can drive them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..ports import Timer

STALL_S = 0.05
"""A timer that fires later than by this much shows that this node itself was paused."""


@dataclass(frozen=True, slots=True)
class LivenessTimeouts:
    """Seconds; the nodes of a cluster should agree on them."""

    heartbeat_s: float = 0.15
    """Period of the heartbeats."""
    silent_s: float = 0.6
    """Time without a byte from a peer after which it is silent: calls to it end, its leaderships are challenged."""
    dead_s: float = 3.0
    """Time without a byte after which a connection is dropped."""
    reconnect_s: float = 0.2
    """Time from the loss of a connection to the next dial."""


DEFAULT_TIMES = LivenessTimeouts()


class Owner(Protocol):
    """Sends the heartbeats and gets the events."""

    def send_heartbeats(self, awake_at: float) -> None:
        """Send a heartbeat to every peer. ``awake_at`` is the end of this node's last known pause."""
        ...

    def last_heard(self, node_id: str) -> float:
        """When the last bytes of a connected peer arrived."""
        ...

    def fell_silent(self, node_id: str) -> None:
        """Handle that a connected peer fell silent."""
        ...

    def heard_again(self, node_id: str) -> None:
        """Handle that a silent peer was heard again."""
        ...


class Liveness:
    """Sends the heartbeats, and decides which peers are silent: ``now - max(last_heard, awake_at) >= silent_s``, where
    ``awake_at`` is the end of this node's last pause, so that a pause of this node makes no peer silent.
    """

    silent: set[str]
    """The connected peers that are silent. Do not change it."""

    def __init__(
        self,
        owner: Owner,
        time: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], Timer],
        times: LivenessTimeouts,
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
        """Send heartbeats from now on."""
        self._due = self._time()
        self._beat()

    def stop(self) -> None:
        """Send no more heartbeats."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def heartbeat_came(self) -> None:
        """Send this node's heartbeats now if they are due within half a period, since one of a peer arrived. So each
        node wakes once or twice a period, and not once for each peer.
        """
        if self._timer is not None and self._due - self._time() < self._times.heartbeat_s / 2:
            self._timer.cancel()
            self._beat()

    def up(self, node_id: str) -> None:
        """Watch a peer, which is connected now."""
        self._peers[node_id] = None

    def down(self, node_id: str) -> None:
        """Watch a peer no longer: it is disconnected, and so not silent either."""
        del self._peers[node_id]
        self.silent.discard(node_id)

    def heard_at(self, node_id: str) -> float:
        """When the last bytes of a connected peer arrived; minus infinity for others. If this node was paused since,
        the end of the pause: bytes may have arrived during it that are not read yet.
        """
        if node_id not in self._peers:
            return float("-inf")
        return max(self._owner.last_heard(node_id), self._awake_at)

    def _beat(self) -> None:
        now = self._time()
        if now - self._due > STALL_S:
            self._awake_at = now
        self._due = now + self._times.heartbeat_s
        self._timer = self._call_at(self._due, self._beat)
        self._owner.send_heartbeats(self._awake_at)
        for node_id in list(self._peers):
            is_silent = now - self.heard_at(node_id) >= self._times.silent_s
            if node_id in self._peers and is_silent != (node_id in self.silent):
                self._turn(node_id, is_silent)

    def _turn(self, node_id: str, is_silent: bool) -> None:
        if is_silent:
            self.silent.add(node_id)
            self._owner.fell_silent(node_id)
        else:
            self.silent.discard(node_id)
            self._owner.heard_again(node_id)
