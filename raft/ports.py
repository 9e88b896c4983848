"""The interfaces by which a group uses its node: write-ahead log, clock, timers, connections. Types only."""

from collections.abc import Callable, Set
from typing import Protocol

from .messages import RaftMessage
from .wal.records import Location


class Log(Protocol):
    """The part of the node's write-ahead log that a group's log uses (``Wal`` in wal.py documents it)."""

    @property
    def durable_lsn(self) -> int: ...
    def append(self, group_id: int, index: int, term: int, payload: bytes) -> tuple[int, Location]: ...
    def truncate(self, group_id: int, from_index: int) -> int: ...
    def reset(self, group_id: int, index: int, term: int) -> int: ...
    def save_vote(self, group_id: int, term: int, voted_for: str | None) -> int: ...
    def read(self, location: Location) -> bytes: ...
    def size(self, location: Location) -> int: ...


class Timer(Protocol):
    """A scheduled call, which can be cancelled."""

    def cancel(self) -> None: ...


class NodePorts(Protocol):
    """The node around its groups. ``time``, ``call_soon`` and ``call_at`` are those of an asyncio loop."""

    @property
    def node_id(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def full_disks(self) -> Set[str]:
        """The connected nodes with full disks, which should be sent no entries while a majority can commit without
        them. The node keeps this one set up to date in place.
        """
        ...

    def time(self) -> float: ...
    def call_soon(self, callback: Callable[[], None]) -> object: ...
    def call_at(self, when: float, callback: Callable[[], None]) -> Timer: ...

    def rng(self) -> float:
        """A number in [0, 1)."""
        ...

    def send(self, group_id: int, node_id: str, message: RaftMessage) -> bool:
        """Send a message to a group of a node; False if it surely will not arrive."""
        ...

    def speaks(self, node_id: str, version: int) -> bool:
        """Whether a node is connected, by this version of the protocol (net/codec.py) or a newer one. Messages that
        came with ``version`` must not be sent otherwise.
        """
        ...

    def log_is_full(self) -> bool:
        """Whether so many bytes wait for the disk that no more entries may be taken in."""
        ...

    def apply_until(self) -> float:
        """Note that a group begins to apply. Returns the time at which it has to stop: all groups of a node share a
        slice of each turn of its loop.
        """
        ...

    @property
    def apply_began(self) -> float:
        """When the present or last run of applies of any group began, as ``time`` has it."""
        ...

    def applied(self) -> float:
        """Note that the group that began to apply has stopped. Returns the time."""
        ...

    def heard_at(self, node_id: str) -> float:
        """When a connected node gave its last sign of life, as ``time`` has it; minus infinity for others."""
        ...

    def is_amid_frame(self, node_id: str) -> bool:
        """Whether a part of a frame of a connected node has arrived, and its rest has not."""
        ...

    def fetch_checkpoint(self, group_id: int, node_id: str, index: int) -> None:
        """Begin to fetch a checkpoint of a group, at ``index`` or beyond, from a node; when it is on disk,
        ``Group.install`` is called. Does nothing while a fetch is under way for this group.
        """
        ...

    def wake_when_durable(self, wake: Callable[[], None], lsn: int | None = None) -> None:
        """Call ``wake`` once, when record ``lsn`` is on disk; None: when all that is in the log now is. A ``wake`` that
        waits already goes on to wait for its first record.
        """
        ...

    def fail(self, error: BaseException) -> None:
        """Stop the node."""
        ...
