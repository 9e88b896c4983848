"""What a turn of the loop has for many groups goes to each node in one frame, and is acked in one frame.

With many groups on a node most messages are alike: one small entry that follows the log of a follower, and its ack.
``Coalescer`` stands between the groups of a node and its connections. It gathers such messages of a turn in an
AppendMany; the node that receives it hands each one to its group, waits once for its disk, and answers all of them by
one AckMany.

What the groups do is as if each message had come alone. Group has a short way for usual messages: ``take`` does what
``receive`` does with an AppendEntries, and ``acked`` what ``receive`` does with an AppendAck. A message that ``take``
does not take goes to ``receive``, and the AckMany leaves it out. An AckMany is an AppendAck of each other message: the
follower is in the message's term, under the same leader, when the entry is on its disk and the answer leaves. The order
of the messages of a group is kept.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from ..messages import APPENDS_MAX, AckMany, AppendEntries, AppendMany, RaftMessage
from .leader import FEW_BYTES

SINCE_PROTOCOL = 7
"""Nodes that speak an older version of the protocol (net/codec.py) are sent each message alone."""
UNANSWERED_MAX = 1024
"""Most AppendMany on a connection that are not answered; beyond it messages go alone."""


class Member(Protocol):
    """A group, as far as its messages go together with those of others."""

    def receive(self, node_id: str, message: RaftMessage) -> None: ...
    def take(self, node_id: str, message: AppendEntries, now: float) -> bool: ...
    def taken_is_durable(self, node_id: str, message: AppendEntries, now: float) -> bool: ...
    def acked(self, node_id: str, message: AppendEntries, now: float) -> None: ...


class Node(Protocol):
    """The node of the groups, as ports.py has it."""

    def time(self) -> float: ...
    def speaks(self, node_id: str, version: int) -> bool: ...
    def log_is_full(self) -> bool: ...
    def wake_when_durable(self, wake: Callable[[], None]) -> None: ...


class Link:
    """What is under way on one connection."""

    def __init__(self) -> None:
        self.open: dict[int, AppendEntries] = {}
        """What is gathered, by group, in its order."""
        self.unanswered: dict[int, list[tuple[int, AppendEntries]]] = {}
        """The messages of each AppendMany that was sent, by its number, in their order."""

    def answered(self, number: int) -> Sequence[tuple[int, AppendEntries]]:
        """What an AckMany answers. What is older by UNANSWERED_MAX numbers gets no answer any more: that was lost."""
        unanswered = self.unanswered
        while unanswered and (oldest := next(iter(unanswered))) <= number - UNANSWERED_MAX:
            del unanswered[oldest]
        return unanswered.pop(number, ())


class Coalescer:
    """``groups`` are those of the node. ``send`` sends a message to a group of a node, or, with 0, one to a node.

    ``flush_soon`` is called when a first message is gathered: ``flush`` has to be called at the end of the turn.
    ``alone_max``: so many messages of a turn to a node go alone.
    """

    def __init__(
        self,
        groups: Mapping[int, Member],
        send: Callable[[int, str, RaftMessage | AppendMany | AckMany], bool],
        node: Node,
        flush_soon: Callable[[], object],
        alone_max: int = 1,
    ) -> None:
        self._groups = groups
        self._send = send
        self._node = node
        self._flush_soon = flush_soon
        self._alone_max = alone_max
        self._links: dict[str, Link] = {}
        self._gathering: dict[str, Link] = {}
        self._number = 0
        """Number of the latest AppendMany."""
        self._last: AppendMany | None = None
        """The latest one of this turn: followers of the same groups get the very same, so it is encoded once."""

    # Connections.

    def up(self, node_id: str) -> None:
        """A connection came up."""
        if self._node.speaks(node_id, SINCE_PROTOCOL):
            self._links[node_id] = Link()

    def down(self, node_id: str) -> None:
        """A connection broke: what was gathered for it or sent on it is lost, as is any ack that is still owed."""
        self._links.pop(node_id, None)
        self._gathering.pop(node_id, None)

    # Sending.

    def post(self, group_id: int, node_id: str, message: RaftMessage) -> bool:
        """Send a message of a group at the end of this turn. False if it surely will not arrive.

        What is gathered and then does not fit in the buffer of the connection is lost, as it is when that breaks: the
        next heartbeat finds the gap.
        """
        link = self._links.get(node_id)
        if link is None:
            return self._send(group_id, node_id, message)
        if group_id in link.open or len(link.open) >= APPENDS_MAX:
            self._close(node_id, link)
        if type(message) is not AppendEntries or not _is_usual(message) or len(link.unanswered) >= UNANSWERED_MAX:
            return self._send(group_id, node_id, message)
        if not link.open:
            if not self._gathering:
                self._flush_soon()
            self._gathering[node_id] = link
        link.open[group_id] = message
        return True

    def flush(self) -> None:
        """The turn is over: send what was gathered."""
        gathering, self._gathering = self._gathering, {}
        for node_id, link in gathering.items():
            self._close(node_id, link)
        self._last = None

    def _close(self, node_id: str, link: Link) -> None:
        """Send what is gathered for a node."""
        if len(link.open) <= self._alone_max:
            for group_id, message in link.open.items():
                self._send(group_id, node_id, message)
        else:
            appends, many = list(link.open.items()), self._last
            if many is None or many.appends != appends:
                self._number += 1
                self._last = many = AppendMany(self._number, appends)
            if self._send(0, node_id, many):
                link.unanswered[many.number] = appends
        link.open = {}

    # Receiving.

    def take(self, node_id: str, many: AppendMany) -> None:
        """Messages for many groups of this node arrived."""
        now, groups, has_room = self._node.time(), self._groups, not self._node.log_is_full()
        taken: list[tuple[int, Member, AppendEntries]] = []
        silent: list[int] = []
        for position, (group_id, message) in enumerate(many.appends):
            group = groups.get(group_id)
            if group is not None and has_room and group.take(node_id, message, now):
                taken.append((position, group, message))
            else:
                silent.append(position)
                if group is not None:
                    group.receive(node_id, message)
        ack = partial(self._ack, node_id, self._links.get(node_id), many.number, taken, silent)
        if taken:
            self._node.wake_when_durable(ack)
        else:
            ack()

    def _ack(
        self,
        node_id: str,
        link: Link | None,
        number: int,
        taken: list[tuple[int, Member, AppendEntries]],
        silent: list[int],
    ) -> None:
        """What was taken is on disk."""
        now = self._node.time()
        for position, group, message in taken:
            if not group.taken_is_durable(node_id, message, now):
                silent.append(position)
        if link is not None and link is self._links.get(node_id):
            self._send(0, node_id, AckMany(number, silent))

    def acked(self, node_id: str, ack: AckMany) -> None:
        """A follower has answered. An answer to an AppendMany that this node does not know is ignored."""
        link = self._links.get(node_id)
        appends = () if link is None else link.answered(ack.number)
        now, silent, groups = self._node.time(), set(ack.silent), self._groups
        for position, (group_id, message) in enumerate(appends):
            group = groups.get(group_id)
            if group is not None and position not in silent:
                group.acked(node_id, message, now)


def _is_usual(message: AppendEntries) -> bool:
    """Whether ``message`` has one entry, of its own term, and small."""
    entries = message.entries
    return len(entries) == 1 and entries[0][1] == message.term and len(entries[0][2]) < FEW_BYTES
