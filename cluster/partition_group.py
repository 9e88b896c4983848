"""A partition's Raft group as its replica uses it: who leads, propose and wait for the verdict, read what is committed.

Verdicts are made in apply. This shell never answers a refusal of its own making except that another node leads, and it
never calls a lost proposal a failure.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from ..partition import commands
from ..partition.commands import Result
from ..partition.errors import (
    InconsistentTopicId,
    InternalError,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from ..partition.image import FileExtent, Image
from ..partition.machine import PartitionMachine
from ..partition.stored import StoredMachine
from ..raft.group import Group, NotLeader
from .handover import hand_over
from .messages import GroupStatus
from .model import Leader
from .outcomes import barrier, decided
from .signal import Signal

RETRY_AFTER_MS = 100
"""After so long a write that a partition was too busy for may be tried again."""

_Answer = TypeVar("_Answer", bound=Result)


class AppliedMachine:
    """A partition's machine and files as its group runs them; wakes waiting readers whenever the state changed."""

    bundles: bool = True
    """No command of a partition looks at its index."""

    def __init__(self, stored: StoredMachine, changed: Signal) -> None:
        self._stored = stored
        self._apply = stored.apply
        self._changed = changed
        self.start: Callable[[Path], None] = stored.start
        self.flush: Callable[[], None] = stored.flush
        self.capture: Callable[[], Image] = stored.capture
        self.begin_sync: Callable[[], Callable[[], None] | None] = stored.begin_sync
        self.inspect: Callable[[Path, bytes, Sequence[FileExtent]], None] = stored.inspect

    @property
    def reclaimable(self) -> int:
        """Bytes on disk that a checkpoint sets free."""
        return self._stored.reclaimable

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of batches that were written, and that no sync was begun of."""
        return self._stored.unsynced_bytes

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Apply, then notify."""
        result = self._apply(index, term, command)
        self._changed.notify()
        return result

    def restore(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None:
        """Be what was captured, then notify."""
        self._stored.restore(directory, state, files)
        self._changed.notify()


class PartitionGroup:
    """The group of one partition, its machine, and how this node may speak of it."""

    def __init__(
        self,
        name: tuple[str, int, int],
        stored: StoredMachine,
        open_group: Callable[[AppliedMachine], Group],
        url_of: Callable[[str | None], str | None],
        timeout_s: float,
    ) -> None:
        """``name`` is (topic, topic id, partition); ``timeout_s`` bounds every call."""
        self.topic: str = name[0]
        self.topic_id: int = name[1]
        self.partition: int = name[2]
        self.machine: PartitionMachine = stored.machine
        self.changed: Signal = Signal()
        self._log = stored.log
        self._url_of = url_of
        self._timeout_s = timeout_s
        self._end: Literal["deleted", "moved"] | None = None
        self._clock: tuple[int, int, float] = (-1, 0, 0.0)  # term, lease clock at its start, own time then
        self.group: Group = open_group(AppliedMachine(stored, self.changed))

    @property
    def is_leading(self) -> bool:
        """Whether this node leads this partition, as far as it knows."""
        return self.group.is_leader

    def leader(self) -> Leader:
        """Who leads this partition, as far as this node knows."""
        return Leader(self.group.leader, self._url_of(self.group.leader), self.group.term)

    @property
    def ready(self) -> bool:
        """Whether it has applied what was committed when it first heard of a leader."""
        return self.group.ready

    async def hand_over(self, node_id: str | None) -> Leader:
        """Let another replica lead (None: any); answers when it does. Raises as handover.hand_over."""
        self._check_leading()
        try:
            await hand_over(self.group, node_id, self._timeout_s)
        except NotLeader as error:
            raise self.not_leading() from error
        return self.leader()

    def status(self) -> GroupStatus:
        """What this replica knows, for other nodes."""
        machine, group = self.machine, self.group
        mode = machine.slot.mode if machine.slot is not None else "Shared" if machine.fence.seats else None
        return GroupStatus(group.group_id, group.leader, group.term, machine.topic_epoch, mode, machine.config_order)

    def retire(self, *, is_deleted: bool) -> None:
        """The topic was deleted, or this replica moved away: whoever waits here, or comes late, learns it at once."""
        self._end = "deleted" if is_deleted else "moved"
        self.changed.notify()

    def close(self) -> None:
        """Close the files."""
        self._log.close()

    def check_topic_id(self, topic_id: int | None) -> None:
        """Raises InconsistentTopicId when the caller means another incarnation."""
        if topic_id is not None and topic_id != self.topic_id:
            raise InconsistentTopicId(topic_id=self.topic_id)

    def not_leading(self) -> NotLeaderOrFollower:
        """The answer that sends the caller to the leader. Raises UnknownTopicOrPartition when the topic was deleted."""
        if self._end == "deleted":
            self._check_not_ended()
        leader = self.leader()
        return NotLeaderOrFollower(leader.url, leader.term if leader.url else None)

    def now_ms(self) -> int:
        """The partition's lease clock, for commands (SEMANTICS 8): where it stood when this node's term began, and this
        node's own time since. It stands still while nobody leads.
        """
        term, base_ms, began_s = self._clock
        now_s = time.monotonic()
        now_ms = base_ms + int((now_s - began_s) * 1000)
        # A leader that has not yet applied what came before its term does not know yet where the clock stood.
        if term != self.group.term or now_ms < self.machine.clock_ms:
            now_ms = self.machine.clock_ms
            self._clock = (self.group.term, now_ms, now_s)
        return now_ms

    def _check_not_ended(self) -> None:
        if self._end == "deleted":
            raise UnknownTopicOrPartition(topic=self.topic, partition=None)
        if self._end == "moved":
            raise self.not_leading()

    def _check_leading(self) -> None:
        if not self.group.is_leader:
            raise self.not_leading()

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_s

    async def _barrier(self) -> None:
        """Return when a read of the machine is linearizable."""
        await barrier(self.group, self._timeout_s, self.not_leading)

    async def _ask(self, command: commands.Command, answer: type[_Answer]) -> _Answer:
        """Propose a command that has one kind of answer."""
        result = await self._propose(command, self._deadline())
        if not isinstance(result, answer):
            raise InternalError(f"a partition answered {result!r}")
        return result

    async def _propose(self, command: commands.Command, deadline: float) -> Result:
        remaining = deadline - asyncio.get_running_loop().time()
        outcome = await self.group.propose(commands.encode_command(command), remaining)
        return decided(outcome, self.not_leading, RETRY_AFTER_MS)  # type: ignore[return-value]
