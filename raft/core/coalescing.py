"""Coalescing: the messages that one turn of the loop has for a node go in one frame, and are acked in one frame.

With many groups on a node most messages are alike: one small entry that follows the log of a follower, and its ack.
``Coalescer`` stands between the groups of a node and its connections. It gathers such messages of a turn in an
AppendMany; the node that receives it hands each one to its group, waits once for its disk, and answers all of them by
one AckMany.

Each group acts as if its message had come alone. Group has a fast path for the common messages: ``take`` does what
``receive`` does with an AppendEntries, and ``acked`` what ``receive`` does with an AppendAck. A message that ``take``
refuses is handed to ``receive``, and the AckMany does not ack it. For every other message the AckMany stands for a
successful AppendAck: when it is sent, the entry is on the follower's disk, and the follower is still in the message's
term, under the same leader. The order of the messages of a group is kept.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from ..messages import APPENDS_MAX, AckMany, AppendEntries, AppendMany, RaftMessage
from .leader import FEW_BYTES

SINCE_PROTOCOL = 7
"""To nodes that speak an older version of the protocol (net/codec.py) each message goes alone."""
UNANSWERED_MAX = 1024
"""Most AppendMany of a connection that are not answered; while there are so many, messages go alone."""


class Member(Protocol):
    """The part of Group that Coalescer calls."""

    def receive(self, node_id: str, message: RaftMessage) -> None: ...
    def take(self, node_id: str, message: AppendEntries, now: float) -> bool: ...
    def taken_is_durable(self, node_id: str, message: AppendEntries, now: float) -> bool: ...
    def acked(self, node_id: str, message: AppendEntries, now: float) -> None: ...


class Node(Protocol):
    """The part of ``ports.NodePorts`` that Coalescer calls."""

    def time(self) -> float: ...
    def speaks(self, node_id: str, version: int) -> bool: ...
    def log_is_full(self) -> bool: ...
    def wake_when_durable(self, wake: Callable[[], None]) -> None: ...


class Link:
    """The messages of one connection that are gathered, and those that were sent together and are not answered."""

    def __init__(self) -> None:
        self.open: dict[int, AppendEntries] = {}
        """The messages gathered in this turn, by group id, in the order in which they came."""
        self.unanswered: dict[int, list[tuple[int, AppendEntries]]] = {}
        """(group id, message) of each AppendMany that was sent, by its number, in their order."""

    def answered(self, number: int) -> Sequence[tuple[int, AppendEntries]]:
        """Take out the messages that the AckMany of this number answers. An AppendMany that is older by UNANSWERED_MAX
        numbers is dropped: it or its answer was lost.
        """
        unanswered = self.unanswered
        while unanswered and (oldest := next(iter(unanswered))) <= number - UNANSWERED_MAX:
            del unanswered[oldest]
        return unanswered.pop(number, ())


class Coalescer:
    """Gathers the messages of one node's ``groups``, and hands those that arrive to the groups.

    ``send`` takes a group id, a node id and a message; the group id is 0 for a message to the node itself.
    ``flush_soon`` is called when a turn's first message is gathered: it has ``flush`` called at the end of the turn. Up
    to ``alone_max`` messages of a turn to one node go alone.
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
        """This turn's latest AppendMany: nodes that get the same messages get this very object, encoded once."""

    # Connections.

    def up(self, node_id: str) -> None:
        """Begin to gather for a node that is connected now, if it knows AppendMany."""
        if self._node.speaks(node_id, SINCE_PROTOCOL):
            self._links[node_id] = Link()

    def down(self, node_id: str) -> None:
        """Drop the messages gathered for a node, and the record of those sent to it, since its connection broke. Acks
        that are owed to the node are not sent.
        """
        self._links.pop(node_id, None)
        self._gathering.pop(node_id, None)

    # Sending.

    def post(self, group_id: int, node_id: str, message: RaftMessage) -> bool:
        """Send a message of a group; one that can be coalesced is sent at the end of this turn. False if it surely will
        not arrive.

        A gathered message that does not fit in the connection's buffer is lost, as when the connection breaks; the next
        heartbeat finds the gap.
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
        """Send all gathered messages, at the end of a turn of the loop."""
        gathering, self._gathering = self._gathering, {}
        for node_id, link in gathering.items():
            self._close(node_id, link)
        self._last = None

    def _close(self, node_id: str, link: Link) -> None:
        """Send the messages gathered for a node: each alone, or if they are more than ``alone_max``, together."""
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
        """Hand the messages of an AppendMany to their groups, and ack them together once they are on disk."""
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
        """Send the AckMany, now that all taken messages are on disk, unless their connection broke meanwhile."""
        now = self._node.time()
        for position, group, message in taken:
            if not group.taken_is_durable(node_id, message, now):
                silent.append(position)
        if link is not None and link is self._links.get(node_id):
            self._send(0, node_id, AckMany(number, silent))

    def acked(self, node_id: str, ack: AckMany) -> None:
        """Hand an AckMany to the groups that it answers. One for an AppendMany that is unknown here is ignored."""
        link = self._links.get(node_id)
        appends = () if link is None else link.answered(ack.number)
        now, silent, groups = self._node.time(), set(ack.silent), self._groups
        for position, (group_id, message) in enumerate(appends):
            group = groups.get(group_id)
            if group is not None and position not in silent:
                group.acked(node_id, message, now)


def _is_usual(message: AppendEntries) -> bool:
    """Whether ``message`` has exactly one entry, which is small and of the message's own term."""
    entries = message.entries
    return len(entries) == 1 and entries[0][1] == message.term and len(entries[0][2]) < FEW_BYTES
