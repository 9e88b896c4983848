"""What the engine, its group and the node around them are to each other: types only."""

from collections.abc import Callable
from typing import Protocol

from .messages import RaftMessage
from .outcomes import Outcome
from .wal_records import Location


class Proposal(Protocol):
    """What waits for the fate of a command."""

    index: int | None
    """Set when the command is appended."""

    def settle(self, outcome: Outcome) -> None:
        """Called once by the engine; must not raise."""
        ...


class Ports(Protocol):
    """What an engine needs of its surroundings."""

    @property
    def bundles(self) -> bool:
        """Whether the machine takes commands that share an entry."""
        ...

    def send(self, node_id: str, message: RaftMessage) -> bool:
        """Send to a node; False if it surely will not arrive."""
        ...

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Apply a committed command to the machine."""
        ...

    def fetch_checkpoint(self, node_id: str, index: int) -> None:
        """Begin to fetch a checkpoint, at ``index`` or beyond, from a node. Does nothing while one is under way."""
        ...

    def clock(self) -> float:
        """Seconds on a monotonic clock."""
        ...

    def rng(self) -> float:
        """A number in [0, 1)."""
        ...

    def log_is_full(self) -> bool:
        """Whether too much waits for the disk to take in more entries."""
        ...

    def apply_until(self) -> float:
        """A group begins to apply: when it has to give others a turn. All groups share a slice of each turn."""
        ...

    def applied(self) -> None:
        """The group that began to apply has stopped."""
        ...

    def heard_at(self, node_id: str) -> float:
        """When a connected node gave its last sign of life, as ``clock`` has it; minus infinity for others."""
        ...


class Log(Protocol):
    """What a journal uses of the node's write-ahead log (wal.py says what it means)."""

    @property
    def durable_lsn(self) -> int: ...  # noqa: D102
    def append(self, group_id: int, index: int, term: int, payload: bytes) -> tuple[int, Location]: ...  # noqa: D102
    def truncate(self, group_id: int, from_index: int) -> int: ...  # noqa: D102
    def reset(self, group_id: int, index: int, term: int) -> int: ...  # noqa: D102
    def save_vote(self, group_id: int, term: int, voted_for: str | None) -> int: ...  # noqa: D102
    def read(self, location: Location) -> bytes: ...  # noqa: D102


class Timer(Protocol):
    """A call that can still be cancelled."""

    def cancel(self) -> None: ...  # noqa: D102


class Surroundings(Protocol):
    """The node around a group. ``time``, ``call_soon`` and ``call_at`` are those of an asyncio loop."""

    @property
    def node_id(self) -> str: ...  # noqa: D102
    @property
    def incarnation(self) -> int: ...  # noqa: D102
    def time(self) -> float: ...  # noqa: D102
    def call_soon(self, callback: Callable[[], None]) -> object: ...  # noqa: D102
    def call_at(self, when: float, callback: Callable[[], None]) -> Timer: ...  # noqa: D102

    def rng(self) -> float:
        """A number in [0, 1)."""
        ...

    def send(self, node_id: str, group_id: int, message: RaftMessage) -> bool:
        """Send to a node; False if it surely will not arrive."""
        ...

    def log_is_full(self) -> bool:
        """Whether too much waits for the disk to take in more entries."""
        ...

    def apply_until(self) -> float:
        """A group begins to apply: when it has to give others a turn. All groups share a slice of each turn."""
        ...

    def applied(self) -> None:
        """The group that began to apply has stopped."""
        ...

    def heard_at(self, node_id: str) -> float:
        """When a connected node gave its last sign of life, as ``time`` has it; minus infinity for others."""
        ...

    def fetch_checkpoint(self, group_id: int, node_id: str, index: int) -> None:
        """Begin to fetch a checkpoint of a group, at ``index`` or beyond, from a node; in the end ``Group.install`` is
        called. Does nothing while one is under way for this group.
        """
        ...

    def wake_when_durable(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once, when all that is in the log now is on disk; the same ``wake`` twice counts once."""
        ...

    def fail(self, error: BaseException) -> None:
        """Stop the node."""
        ...
