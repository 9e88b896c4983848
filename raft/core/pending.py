"""Calls that wait for an answer in one group until a deadline: proposals, read barriers and leadership transfers.

Each is answered exactly once: with its outcome, or with what ``expired`` returns when its deadline passes. Proposals of
one turn of the loop share an entry, and so its cost in log and messages, if the machine allows it
(``Machine.bundles``): the commands of one entry have one index.
"""

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Generic, TypeVar

from ..log.group_log import NO_OP
from ..outcomes import NotLeader, Outcome, Unknown
from ..settings import RaftSettings
from .leader import FEW_BYTES, LeaderState

_log = logging.getLogger(__name__)

EXPIRY_STEP_S = 0.01
"""Shortest time between two checks of the deadlines, so that many that pass together cost one check."""

REGULAR = b"\x00"
"""An entry's first byte is pysyncobj's command type. In an entry of this type one command follows."""
BUNDLE = b"\x10"
"""A type that pysyncobj has not. There follow the number of commands (u8), the length of each (u32), the commands."""
COMMANDS_MAX = 64
"""Most commands of one entry: a replica does nothing else while it applies an entry."""
BYTES_MAX = 64 << 10
"""Most bytes of commands that share an entry: windows and messages are filled by whole entries."""

_HEAD_BYTES = 2

_Answer = TypeVar("_Answer")


class Pending(Generic[_Answer]):
    """A call that waits in a queue until it is answered or ``deadline`` passes. ``size`` counts towards the queue's
    bytes; ``index`` is the log index that the call waits for, 0 while there is none.
    """

    __slots__ = ("_settle", "deadline", "index", "queue", "size")

    def __init__(
        self,
        queue: "DeadlineQueue[Any]",
        deadline: float,
        settle: Callable[[_Answer], None],
        *,
        size: int = 0,
        index: int = 0,
    ) -> None:
        self.queue: DeadlineQueue[Any] = queue
        self.deadline: float = deadline
        self.size: int = size
        self.index: int = index
        self._settle = settle

    def settle(self, answer: _Answer) -> None:
        """Answer the call unless it was answered. An exception of its callback is logged and not raised, so that it
        does not stop Raft (D5).
        """
        if self.queue.remove(self):
            try:
                self._settle(answer)
            except Exception:
                _log.exception("the callback of a %s failed on its outcome %r", type(self).__name__, answer)

    def expired(self) -> _Answer:
        """The answer when the deadline has passed."""
        raise NotImplementedError


_Waiting = TypeVar("_Waiting", bound=Pending[Any])


class DeadlineQueue(Generic[_Waiting]):
    """Calls that wait, in the order in which they came."""

    def __init__(self) -> None:
        self.waiting: dict[_Waiting, None] = {}
        """The calls that are not answered. Only this class changes it."""
        self.next_deadline: float = float("inf")
        """No deadline passes before this time."""
        self.bytes: int = 0
        """The sizes of the calls that wait."""

    def add(self, call: _Waiting) -> None:
        """Add a call that waits."""
        self.waiting[call] = None
        self.bytes += call.size
        self.next_deadline = min(self.next_deadline, call.deadline)

    def remove(self, call: _Waiting) -> bool:
        """Remove a call; False if it was not waiting."""
        if call not in self.waiting:
            return False
        del self.waiting[call]
        self.bytes -= call.size
        return True

    def expire(self, now: float) -> None:
        """Answer the calls with ``deadline <= now`` by their ``expired``; with infinity, all calls."""
        if now < self.next_deadline:
            return
        for call in [each for each in self.waiting if each.deadline <= now]:
            call.settle(call.expired())
        earliest = min((each.deadline for each in self.waiting), default=float("inf"))
        self.next_deadline = max(earliest, now + EXPIRY_STEP_S)


class PendingProposal(Pending[Outcome]):
    """A proposal that was accepted. ``index`` is its index in the log once it is appended."""

    __slots__ = ()

    def expired(self) -> Outcome:
        return Unknown(self.index or None)


class Proposals(DeadlineQueue[PendingProposal]):
    """The proposals of a group, bounded in count and bytes."""

    def __init__(self, settings: RaftSettings) -> None:
        super().__init__()
        self._count_max = settings.pending_count_max
        self._bytes_max = settings.pending_bytes_max

    def accept(self, size: int, deadline: float, settle: Callable[[Outcome], None]) -> PendingProposal | None:
        """Add a proposal of ``size`` bytes; None if it would exceed a bound on those that wait."""
        if len(self.waiting) >= self._count_max or self.bytes + size > self._bytes_max:
            return None
        proposal = PendingProposal(self, deadline, settle, size=size)
        self.add(proposal)
        return proposal


class ProposalQueue:
    """Proposals that are not in the leader's log yet. ``Proposals`` bounds them.

    While the last entry of the log is not committed, a small queue waits for that commit. It then becomes one entry,
    with one record in each log, one message to each follower and one ack. That delays no follower, since messages with
    few entries wait for each other anyway (``Progress.may_be_sent``); and a deposed leader can reject a command that it
    has not appended, while the outcome of an appended one is unknown. After a commit, clients propose again, so the
    queue waits for one more turn of the loop, to include these proposals.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[bytes, PendingProposal]] = []
        """The commands and their proposals, in their order. Only this class changes it."""
        self._bytes = 0

    @property
    def is_small(self) -> bool:
        """Whether all proposals in the queue fit in one entry, and are few bytes for a message."""
        return len(self.waiting) < COMMANDS_MAX and self._bytes < FEW_BYTES

    def add(self, command: bytes, proposal: PendingProposal) -> None:
        """Queue a command with its proposal."""
        self.waiting.append((command, proposal))
        self._bytes += len(command)

    def take(self) -> list[tuple[bytes, PendingProposal]]:
        """Take all proposals out of the queue, in their order."""
        proposals, self.waiting, self._bytes = self.waiting, [], 0
        return proposals


Entry = tuple[bytes, list[PendingProposal]]
"""An entry's payload, and the proposals of its commands in their order."""


def entries_of(queue: Sequence[tuple[bytes, PendingProposal]], *, bundles: bool) -> Iterator[Entry]:
    """The entries for these commands, in order. ``bundles``: commands may share an entry."""
    first = size = 0
    for number, (command, _) in enumerate(queue):
        size += len(command)
        if number > first and not (bundles and size <= BYTES_MAX and number - first < COMMANDS_MAX):
            yield _entry(queue[first:number])
            first, size = number, len(command)
    if queue:
        yield _entry(queue[first:])


def commands_of(payload: bytes) -> list[bytes]:
    """The commands in an entry's payload, which is no configuration. Raises ValueError if it is malformed."""
    kind = payload[:1]
    if kind == REGULAR:
        return [payload[1:]]
    if payload == NO_OP:
        return []
    if kind != BUNDLE:
        raise ValueError(f"an entry of an unknown type: {kind!r}")
    try:
        layout = _lengths(payload[1])
        ends = list(accumulate(layout.unpack_from(payload, _HEAD_BYTES), initial=_HEAD_BYTES + layout.size))
    except (IndexError, struct.error) as error:
        raise ValueError(f"an entry of {len(payload)} bytes ends before its commands begin") from error
    if ends[-1] != len(payload):
        raise ValueError(f"commands end at byte {ends[-1]} of an entry of {len(payload)} bytes")
    return [payload[start:end] for start, end in pairwise(ends)]


def _entry(some: Sequence[tuple[bytes, PendingProposal]]) -> Entry:
    commands = [command for command, _ in some]
    proposals = [proposal for _, proposal in some]
    if len(commands) == 1:
        return REGULAR + commands[0], proposals
    lengths = _lengths(len(commands)).pack(*map(len, commands))
    return b"".join([BUNDLE, bytes([len(commands)]), lengths, *commands]), proposals


@lru_cache(COMMANDS_MAX)
def _lengths(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")


class ReadBarrier(Pending[Exception | None]):
    """A read that waits until a majority has answered ``round`` of this leadership and ``index`` is applied."""

    __slots__ = ("leading", "round")

    def __init__(
        self,
        queue: "ReadBarriers",
        leading: LeaderState,
        round_: int,
        index: int,
        deadline: float,
        settle: Callable[[Exception | None], None],
    ) -> None:
        super().__init__(queue, deadline, settle, index=index)
        self.leading: LeaderState = leading
        self.round: int = round_

    def expired(self) -> Exception | None:
        return TimeoutError("no majority confirmed the leader in time")


class ReadBarriers(DeadlineQueue[ReadBarrier]):
    """The read barriers of a group. Their rounds and indexes only grow, so they pass in their order."""

    def check(self, leading: LeaderState | None, applied_index: int, refusal: NotLeader) -> None:
        """Settle with None the barriers for which ``round <= majority_round and index <= applied_index``, and with
        ``refusal`` those of a leadership that is over.
        """
        for barrier in [each for each in self.waiting if each.leading is not leading]:
            barrier.settle(refusal)
        if leading is None or not self.waiting:
            return
        answered_round = leading.majority_round()
        passed = []
        for barrier in self.waiting:
            if barrier.round > answered_round or barrier.index > applied_index:
                break
            passed.append(barrier)
        for barrier in passed:
            barrier.settle(None)


class LeadershipTransfer(Pending[Exception | None]):
    """A call that waits until ``transferee`` (None: any other node) leads in place of the leader of ``term``."""

    __slots__ = ("term", "transferee")

    def __init__(
        self,
        queue: "LeadershipTransfers",
        transferee: str | None,
        term: int,
        deadline: float,
        settle: Callable[[Exception | None], None],
    ) -> None:
        super().__init__(queue, deadline, settle)
        self.transferee: str | None = transferee
        self.term: int = term

    def expired(self) -> Exception | None:
        return TimeoutError("the leadership was not transferred in time")


class LeadershipTransfers(DeadlineQueue[LeadershipTransfer]):
    """The leadership transfers of a group that callers wait for."""

    def check(self, node_id: str, leader: str | None, term: int) -> None:
        """Settle the transfers that were begun in an older term, if ``term`` has a known ``leader``: done, or not."""
        for each in [each for each in self.waiting if each.term != term and leader is not None]:
            is_done = leader == each.transferee or (each.transferee is None and leader != node_id)
            each.settle(None if is_done else NotLeader(leader, term))
