"""Simulated connections: first in, first out, and breaking whole, as TCP does.

Nothing is reordered within a connection and nothing vanishes from one that lives on. What a broken connection carried
is lost; each end learns of that in its own time. A link can be held (nothing arrives until it is let go or breaks) and
be slow in one direction.
"""

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import Protocol

from stockade.raft.messages import AckMany, AppendAck, AppendMany, Ping, RaftMessage
from stockade.raft.net.codec import SINCE, FrameReader, encode

RECONNECT_S = 0.2
Frame = RaftMessage | AppendMany | AckMany | Ping


class End(Protocol):
    """The process at an end of a connection."""

    def on_up(self, node_id: str) -> None: ...
    def on_down(self, node_id: str) -> None: ...
    def on_frame(self, node_id: str, group_id: int, message: Frame) -> None: ...


@dataclass(slots=True)
class Connection:
    """One life of the link between two nodes."""

    protocol: int
    """Its version of the protocol: the newest that both ends speak."""
    up: set[str] = field(default_factory=set)
    is_open: bool = True
    queues: defaultdict[str, deque[tuple[int, Frame]]] = field(default_factory=lambda: defaultdict(deque))
    last_arrival: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    many: dict[tuple[str, int], AppendMany] = field(default_factory=dict)
    """By the node that each was sent to, and number: what an AckMany means."""


@dataclass(slots=True)
class Link:
    connection: Connection | None = None
    is_cut: bool = False
    is_held: bool = False
    slow_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Added latency towards a node."""
    streaming: set[str] = field(default_factory=set)
    """Nodes towards which the link is slow because its bytes are: those of a frame on its way arrive all the time."""


class Network:
    def __init__(
        self,
        nodes: Iterable[str],
        rng: random.Random,
        latency_s: Callable[[], float],
        drop_rate: float,
        at: Callable[[float, Callable[[], None], object], None],
        now: Callable[[], float],
        end_of: Callable[[str], End | None],
    ) -> None:
        """``at(delay, callback, owner)`` schedules; ``end_of`` answers a node's living process."""
        self.links = {frozenset(pair): Link() for pair in combinations(sorted(nodes), 2)}
        self._ways = {way: link for pair, link in self.links.items() for way in permutations(sorted(pair))}
        self.protocols: Mapping[str, int] = {}
        """The newest version of the protocol that each node speaks now."""
        self.on_sent: Callable[[str, str, int, RaftMessage], None] = lambda *_: None
        self._rng = rng
        self._latency_s = latency_s
        self.drop_rate = drop_rate
        self._at = at
        self._now = now
        self._end_of = end_of

    def link(self, one: str, other: str) -> Link:
        return self._ways[one, other]

    def speaks(self, source: str, target: str, version: int) -> bool:
        """Whether a connection of this version, or a newer one, is up, as seen from ``source``."""
        connection = self._ways[source, target].connection
        return connection is not None and source in connection.up and connection.protocol >= version

    def is_amid_frame(self, source: str, target: str) -> bool:
        """Whether a part of a frame has arrived."""
        link = self._ways[source, target]
        connection = link.connection
        return target in link.streaming and connection is not None and bool(connection.queues[target])

    def peers(self, node_id: str) -> list[str]:
        return sorted(peer for pair in self.links if node_id in pair for peer in pair if peer != node_id)

    def send(self, source: str, target: str, group_id: int, message: Frame) -> bool:
        """False if not connected, as seen from ``source``, or if its buffer happens to be full."""
        link = self._ways[source, target]
        connection = link.connection
        if connection is None or source not in connection.up:
            return False
        if self.drop_rate and self._rng.random() < self.drop_rate:
            return False
        for each_id, each in self._meant(connection, source, target, group_id, message):
            self.on_sent(source, target, each_id, each)
        if not connection.is_open:
            return True  # broken, and this end does not know yet: lost
        connection.queues[target].append((group_id, message))
        now = self._now()
        arrival = max(connection.last_arrival[target], now + self._latency_s() + link.slow_s[target])
        connection.last_arrival[target] = arrival
        self._at(arrival - now, lambda: self._deliver(source, target, connection), self._end_of(target))
        return True

    def _meant(
        self, connection: Connection, source: str, target: str, group_id: int, frame: Frame
    ) -> Iterator[tuple[int, RaftMessage]]:
        """The messages that a frame stands for, each with its group. Frames of many groups pass through their bytes."""
        if isinstance(frame, AppendMany | AckMany):
            assert list(FrameReader().feed(encode(0, frame))) == [(0, frame)]
            assert connection.protocol >= SINCE[type(frame)], f"{source}: {target} does not know such a frame"
        if isinstance(frame, AppendMany):
            connection.many[target, frame.number] = frame
            yield from frame.appends
        elif isinstance(frame, AckMany):
            for position, (each_id, append) in enumerate(connection.many[source, frame.number].appends):
                if position not in frame.silent:
                    yield each_id, AppendAck(append.term, True, append.entries[-1][0] + 1, append.round)
        elif not isinstance(frame, Ping):
            yield group_id, frame

    def _deliver(self, source: str, target: str, connection: Connection) -> None:
        end = self._end_of(target)
        if not connection.is_open or self._ways[source, target].is_held or end is None:
            return
        if not connection.queues[target]:
            return
        if target not in connection.up:
            self._raise(source, target, connection)
        group_id, message = connection.queues[target].popleft()
        end.on_frame(source, group_id, message)

    def _raise(self, source: str, target: str, connection: Connection) -> None:
        """The connection is up, as seen from ``target``: at the latest when something arrives on it."""
        end = self._end_of(target)
        if connection.is_open and target not in connection.up and end is not None:
            connection.up.add(target)
            end.on_up(source)

    def connect(self, one: str, other: str) -> None:
        """Dial, if both are there and nothing is in the way."""
        link = self.link(one, other)
        ends = self._end_of(one), self._end_of(other)
        if link.connection is not None or link.is_cut or link.is_held or None in ends:
            return
        connection = link.connection = Connection(min(self.protocols[one], self.protocols[other]))
        for source, target in ((one, other), (other, one)):
            call = lambda s=source, t=target: self._raise(s, t, connection)  # noqa: E731
            self._at(self._latency_s() * 2, call, self._end_of(target))

    def break_(self, one: str, other: str) -> None:
        """The connection breaks; each end that lives notices a little later, then they dial again."""
        connection = self.link(one, other).connection
        if connection is None or not connection.is_open:
            return
        connection.is_open = False
        for source, target in ((one, other), (other, one)):
            call = lambda s=source, t=target: self._lower(s, t, connection)  # noqa: E731
            self._at(self._latency_s() * 3, call, self._end_of(target))
        self._at(RECONNECT_S * (0.5 + self._rng.random()), lambda: self._redial(one, other, connection), None)

    def _lower(self, source: str, target: str, connection: Connection) -> None:
        end = self._end_of(target)
        if target in connection.up and end is not None:
            connection.up.discard(target)
            end.on_down(source)

    def _redial(self, one: str, other: str, connection: Connection) -> None:
        if any(self._end_of(node) is not None for node in connection.up):  # an end sleeps and has not noticed yet
            self._at(RECONNECT_S, lambda: self._redial(one, other, connection), None)
        else:
            self.link(one, other).connection = None
            self.connect(one, other)

    def died(self, node_id: str) -> None:
        """The node's process is gone: its connections break."""
        for peer in self.peers(node_id):
            connection = self.link(node_id, peer).connection
            if connection is not None:
                connection.up.discard(node_id)
            self.break_(node_id, peer)

    def cut(self, one: str, other: str) -> None:
        self.link(one, other).is_cut = True
        self.break_(one, other)

    def hold(self, one: str, other: str) -> None:
        self.link(one, other).is_held = True

    def mend(self, one: str, other: str) -> None:
        """Undo cut, hold and slowness. What is on its way arrives now."""
        link = self.link(one, other)
        link.is_cut = link.is_held = False
        link.slow_s.clear()
        link.streaming.clear()
        if link.connection is not None:
            link.connection.last_arrival.clear()
            self._let_go(one, other, link.connection)
        self.connect(one, other)

    def _let_go(self, one: str, other: str, connection: Connection) -> None:
        for source, target in ((one, other), (other, one)):
            for _ in range(len(connection.queues[target])):
                call = lambda s=source, t=target: self._deliver(s, t, connection)  # noqa: E731
                self._at(0.0, call, self._end_of(target))
