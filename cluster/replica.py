"""One partition's replica on this node: the asynchronous shell around its machine, its log on disk and its Raft group.

Verdicts are made in apply; this shell proposes, waits and reads. It never answers a refusal of its own making except
that another node leads, and it never calls a lost proposal a failure.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ..partition import commands
from ..partition.commands import Append, Appended, InstallProducer, NotEnrolled, Offset, Stamp, Token
from ..partition.errors import (
    InconsistentTopicId,
    InternalError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    RequestTimedOut,
    StockadeError,
    ThrottlingQuotaExceeded,
    UnknownTopicOrPartition,
)
from ..partition.image import FileExtent
from ..partition.records import Batch
from ..partition.segments import Slice
from ..partition.stored import StoredMachine
from ..raft.group import Committed, Group, NotLeader, Overloaded, Rejected, Unknown
from .handover import hand_over
from .messages import GroupStatus
from .model import Leader, TopicConfig
from .signal import Signal

Enrol = Callable[[int, int, float], Awaitable[tuple[int, int]]]
"""(pid, group id, timeout in seconds) -> the producer epoch in force and the order of this answer among others.
Raises what the registry answers.
"""


class AppliedMachine:
    """A partition's machine and files as its group runs them; wakes waiting readers whenever the state changed."""

    def __init__(self, stored: StoredMachine, changed: Signal) -> None:
        self._stored = stored
        self._changed = changed
        self.start = stored.start
        self.capture = stored.capture
        self.inspect = stored.inspect

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Apply, then notify."""
        result = self._stored.apply(index, term, command)
        self._changed.notify()
        return result

    def restore(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None:
        """Be what was captured, then notify."""
        self._stored.restore(directory, state, files)
        self._changed.notify()


class Replica:
    """A partition as this node holds it. Implements service.Partition."""

    def __init__(
        self,
        name: tuple[str, int, int],
        config: TopicConfig,
        stored: StoredMachine,
        open_group: Callable[[AppliedMachine], Group],
        *,
        url_of: Callable[[str | None], str | None],
        enrol: Enrol,
        timeout_s: float,
    ) -> None:
        """``name`` is (topic, topic id, partition); ``timeout_s`` bounds every call."""
        self.topic, self.topic_id, self.partition = name
        self.config = config
        self.machine = stored.machine
        self.changed = Signal()
        self._log = stored.log
        self._url_of = url_of
        self._enrol = enrol
        self._timeout_s = timeout_s
        self._end: Literal["deleted", "moved"] | None = None
        self.group = open_group(AppliedMachine(stored, self.changed))

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
        slot = self.machine.slot
        mode = slot.mode if slot is not None else None
        group = self.group
        return GroupStatus(group.group_id, group.leader, group.term, self.machine.topic_epoch, mode)

    async def append(
        self,
        batch: Batch,
        *,
        topic_id: int | None,
        token: Token | None,
        stamp: Stamp | None,
        if_log_end: Offset | None,
    ) -> Appended:
        """Propose the batch; a producer that is new here is enrolled first and the batch proposed again."""
        self._check_leading()
        command = Append(
            message=batch.message,
            count=batch.count,
            crc=batch.crc,
            timestamp_ms=batch.received_ms,
            max_timestamp_ms=batch.max_timestamp_ms,
            topic_id=topic_id,
            token=token,
            stamp=stamp,
            if_log_end=if_log_end,
        )
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        result = await self._propose(command, deadline)
        while isinstance(result, NotEnrolled):
            await self._introduce(result.pid, deadline)
            result = await self._propose(command, deadline)
        assert isinstance(result, Appended), result
        return result

    async def read(
        self, offset: Offset | None, *, max_bytes: int, min_bytes: int, max_wait_ms: int, local: bool
    ) -> Slice:
        """Committed batches from ``offset`` (None: log end, -1: log start), linearizable unless ``local``."""
        if not local:
            await self._barrier()
        machine = self.machine
        start = machine.log_end if offset is None else machine.log_start if offset == -1 else offset
        if not machine.log_start <= start <= machine.log_end:
            raise OffsetOutOfRange(start, machine.log_start, machine.log_end)

        def enough() -> bool | None:
            if self._end:
                return True
            if min_bytes <= 1:
                return True if machine.log_end - start >= min_bytes else None
            found = self._log.read(start, max_bytes)
            return True if found.size >= min_bytes or found.next_offset < machine.log_end else None

        if max_wait_ms:
            await self.changed.until(enough, max_wait_ms / 1000)
        self._check_not_ended()
        return msgspec.structs.replace(self._log.read(start, max_bytes), stale=local)

    async def read_tail(self, count: int) -> tuple[Slice, int]:
        """The batches that hold the last ``count`` records, and topic_epoch."""
        await self._barrier()
        return self._log.tail(count), self.machine.topic_epoch

    async def find_offset(self, timestamp_ms: int | None) -> tuple[Offset, int | None, Offset, Offset]:
        """First record at or after a time; None: first record with the greatest timestamp."""
        await self._barrier()
        return *self._log.find_timestamp(timestamp_ms), self.machine.log_start, self.machine.log_end

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

    def _check_not_ended(self) -> None:
        if self._end == "deleted":
            raise UnknownTopicOrPartition(topic=self.topic, partition=None)
        if self._end == "moved":
            raise self.not_leading()

    def _check_leading(self) -> None:
        if not self.group.is_leader:
            raise self.not_leading()

    async def _introduce(self, pid: int, deadline: float) -> None:
        """Make a producer known here. Nothing of the append was stored yet, so even a lost step is no unknown
        outcome.
        """
        try:
            epoch, order = await self._enrol(pid, self.group.group_id, deadline - asyncio.get_running_loop().time())
            await self._propose(InstallProducer(pid, epoch, order), deadline)
        except RequestTimedOut as error:
            raise LeaderNotAvailable("the producer could not be looked up in time") from error
        except UnknownTopicOrPartition as error:
            # The controller knows topics by id here; this partition is being deleted.
            raise UnknownTopicOrPartition(topic=self.topic, partition=None) from error

    async def _barrier(self) -> None:
        try:
            await self.group.read_barrier(self._timeout_s)
        except NotLeader as error:
            raise self.not_leading() from error
        except TimeoutError as error:
            raise LeaderNotAvailable("no majority confirmed that this node leads") from error

    async def _propose(self, command: commands.Command, deadline: float) -> commands.Result:
        remaining = deadline - asyncio.get_running_loop().time()
        outcome = await self.group.propose(commands.encode_command(command), remaining)
        match outcome:
            case Committed(result=StockadeError() as refusal):
                raise refusal
            case Committed(result=result):
                return _as_result(result)
            case Unknown(index=index):
                raise RequestTimedOut(raft_index=index)
            case Overloaded():
                raise ThrottlingQuotaExceeded(retry_after_ms=100)
            case Rejected():
                raise self.not_leading()


def _as_result(value: object) -> commands.Result:
    if isinstance(value, commands.Appended | commands.SlotState | commands.ProducerInstalled | NotEnrolled):
        return value
    raise InternalError(f"a partition answered {value!r}")
