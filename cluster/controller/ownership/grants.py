"""Live grants, by id, by partition and by session; why the grants of live sessions ended; and the queue of tickets that
wait for grants, first come first served (SEMANTICS 6.3).

An exclusive grant holds its partitions alone; Shared grants hold theirs beside each other. acquire.py decides which
acquire gets a grant. A session that asks about an ended grant or ticket is answered with the reason instead of
NOT_FOUND. Pure state of the controller's machine.
"""

from collections.abc import Collection, Iterable
from heapq import heapify, heappop, heappush
from typing import TypeVar

import msgspec

from ....partition.errors import WaitQueueFull
from ..commands import GroupId
from ..topology.catalog import group_id, topic_partition

ENDED_PER_SESSION_MAX = 16
"""The most ended grants and tickets remembered of a live session; beyond it the oldest is forgotten."""
TICKETS_PER_TOPIC_MAX = 1_000
"""Tickets that wait for partitions of one topic."""
RETRY_AFTER_MS = 1000
DEADLINES_SPARE = 64
"""The heap of deadlines is rebuilt, without tickets that left, beyond ``2 * tickets + DEADLINES_SPARE`` entries."""


class EndedGrant(msgspec.Struct, frozen=True):
    """Why a grant or ticket ended, and one of its partitions. ``reason``: one of PRODUCER_FENCED's, or ``cancelled``.
    ``granted``: a grant ended, which may have evicted others and been in force; False: a ticket that never got one.
    """

    reason: str
    group_id: GroupId
    granted: bool = True


SavedEndings = list[tuple[str, list[tuple[str, EndedGrant]]]]
"""The saved state of EndedGrants: by session, then by ticket, the oldest first."""


class EndedGrants:
    """Why grants and tickets of live sessions ended, by session and ticket; at most ENDED_PER_SESSION_MAX of each
    session.
    """

    def __init__(self) -> None:
        self._ended: dict[str, dict[str, EndedGrant]] = {}

    def remember(self, session: str, ticket_id: str, ending: EndedGrant) -> None:
        """Note why a grant or ticket has ended."""
        ended = self._ended.setdefault(session, {})
        ended.pop(ticket_id, None)
        ended[ticket_id] = ending
        if len(ended) > ENDED_PER_SESSION_MAX:
            del ended[next(iter(ended))]

    def find(self, session: str, ticket_id: str) -> EndedGrant | None:
        """Why a ticket, or its grant, ended; None: it has not ended, is forgotten, or never existed."""
        return self._ended.get(session, {}).get(ticket_id)

    def topics(self, session: str) -> set[int] | None:
        """The ids of the topics of all ended grants of a live session; None: some of the grants may be forgotten."""
        ended = self._ended.get(session, {})
        if len(ended) >= ENDED_PER_SESSION_MAX:
            return None
        return {topic_partition(ending.group_id)[0] for ending in ended.values() if ending.granted}

    def forget(self, session: str) -> None:
        """Forget what is known of a session that has ended."""
        self._ended.pop(session, None)

    def save(self) -> SavedEndings:
        """The state on which future answers depend."""
        return [(session, list(ended.items())) for session, ended in sorted(self._ended.items())]

    def load(self, saved: SavedEndings) -> None:
        """Inverse of ``save``, on an empty instance."""
        self._ended = {session: dict(ended) for session, ended in saved}


_Key = TypeVar("_Key", int, str)


class Grant(msgspec.Struct):
    """The right of a session to a set of partitions, which begins and ends as a whole.

    ``grant_index`` is its place in the order of all decisions about slots. ``epoch`` is None for Shared, whose epochs
    are those of the partitions. ``resume_epoch`` is what its acquire asked for. ``operation`` says how it was made
    (acquire, resume, promotion, eviction), at ``at_ms`` of the lease clock and ``wall_ms`` of the leader's wall clock
    (0: not known). ``ttl_ms`` and ``principal`` are those of its session. ``pending`` has the partitions that are not
    known to have committed its install.
    """

    grant_id: str
    ticket_id: str
    grant_index: int
    session: str
    client_id: str
    topic: str
    topic_id: int
    partitions: list[int]
    all_partitions: bool
    mode: str
    producer_name: str
    epoch: int | None
    resume_epoch: int | None
    operation: str
    at_ms: int
    pending: set[int]
    wall_ms: int = 0
    ttl_ms: int = 0
    principal: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether it holds its partitions beside other Shared grants."""
        return self.mode == "Shared"

    def groups(self) -> list[GroupId]:
        """The Raft groups of the set, ascending."""
        return [group_id(self.topic_id, partition) for partition in self.partitions]


class Grants:
    """Indexes over the live grants. ``holders`` has the exclusive grants, ``sharers`` the Shared ones, by partition."""

    def __init__(self) -> None:
        self.by_id: dict[str, Grant] = {}
        self.holders: dict[GroupId, Grant] = {}
        self.sharers: dict[GroupId, dict[str, Grant]] = {}
        self._by_session: dict[str, dict[str, Grant]] = {}
        self._whole: dict[int, dict[str, Grant]] = {}

    def add(self, grant: Grant) -> None:
        """Add a new grant to the indexes."""
        self.by_id[grant.grant_id] = grant
        self._by_session.setdefault(grant.session, {})[grant.grant_id] = grant
        if grant.all_partitions:
            self._whole.setdefault(grant.topic_id, {})[grant.grant_id] = grant
        for group in grant.groups():
            self._take(grant, group)

    def remove(self, grant: Grant) -> None:
        """Take a grant that has ended out of the indexes."""
        del self.by_id[grant.grant_id]
        _drop(self._by_session, grant.session, grant.grant_id)
        if grant.all_partitions:
            _drop(self._whole, grant.topic_id, grant.grant_id)
        for group in grant.groups():
            if grant.is_shared:
                _drop(self.sharers, group, grant.grant_id)
            else:
                del self.holders[group]

    def grow(self, grant: Grant, partitions: Iterable[int]) -> None:
        """Extend a grant of the whole topic by partitions that are new in the topic."""
        for partition in partitions:
            grant.partitions.append(partition)
            self._take(grant, group_id(grant.topic_id, partition))

    def of_session(self, session: str) -> list[Grant]:
        """The grants of a session, the oldest first."""
        return list(self._by_session.get(session, {}).values())

    def of_whole_topic(self, topic_id: int) -> list[Grant]:
        """The grants of a topic that were asked for all of its partitions."""
        return list(self._whole.get(topic_id, {}).values())

    def on(self, group: GroupId) -> list[Grant]:
        """The exclusive grant of a partition, or all Shared ones there."""
        holder = self.holders.get(group)
        return [holder] if holder is not None else list(self.sharers.get(group, {}).values())

    def on_any(self, groups: Collection[GroupId]) -> list[Grant]:
        """The grants on any of these partitions: each once, in the order of the first of ``groups`` that it holds."""
        found = {grant.grant_id: grant for group in groups for grant in self.on(group)}
        return list(found.values())

    def _take(self, grant: Grant, group: GroupId) -> None:
        if grant.is_shared:
            self.sharers.setdefault(group, {})[grant.grant_id] = grant
        else:
            self.holders[group] = grant


def _drop(index: dict[_Key, dict[str, Grant]], key: _Key, grant_id: str) -> None:
    del index[key][grant_id]
    if not index[key]:
        del index[key]


class Ticket(msgspec.Struct):
    """A place in the queue. ``deadline_ms``: the lease clock at which it leaves the queue without a grant (None: never
    by time). ``ttl_ms`` and ``principal`` are its session's; ``request`` and ``client`` its acquire's, for the ledger.
    """

    ticket_id: str
    session: str
    client_id: str
    topic: str
    topic_id: int
    partitions: list[int]
    all_partitions: bool
    producer_name: str
    resume_epoch: int | None
    deadline_ms: int | None
    ttl_ms: int = 0
    principal: str = ""
    request: str = ""
    client: str = ""


class WaitQueue:
    """All queued tickets: by topic in the order in which they were queued, by session and by id; only ``add`` and
    ``remove`` change these indexes.

    A waiting session reserves nothing and holds nothing, and has one ticket at most.
    ``departures`` counts the tickets that left the queue on this replica: the machine notifies waiters when it changes.
    The count is no replicated state.
    """

    def __init__(self) -> None:
        self.departures: int = 0
        self._by_topic: dict[int, dict[str, Ticket]] = {}
        self.by_session: dict[str, Ticket] = {}
        self.by_id: dict[str, Ticket] = {}
        self._deadlines: list[tuple[int, str]] = []  # a heap of (deadline, session), with some of tickets that left

    def add(self, ticket: Ticket) -> None:
        """Put a ticket at the end of its topic's queue. Raises WaitQueueFull."""
        if len(self._by_topic.get(ticket.topic_id, ())) >= TICKETS_PER_TOPIC_MAX:
            text = f"{TICKETS_PER_TOPIC_MAX} wait for partitions of {ticket.topic}"
            raise WaitQueueFull(text, retry_after_ms=RETRY_AFTER_MS)
        assert ticket.session not in self.by_session
        self._by_topic.setdefault(ticket.topic_id, {})[ticket.ticket_id] = ticket
        self.by_session[ticket.session] = self.by_id[ticket.ticket_id] = ticket
        if ticket.deadline_ms is not None:
            heappush(self._deadlines, (ticket.deadline_ms, ticket.session))

    def remove(self, ticket: Ticket) -> None:
        """Take a ticket out of the queue."""
        self.departures += 1
        del self.by_session[ticket.session], self.by_id[ticket.ticket_id]
        del self._by_topic[ticket.topic_id][ticket.ticket_id]
        if not self._by_topic[ticket.topic_id]:
            del self._by_topic[ticket.topic_id]
        if len(self._deadlines) > 2 * len(self.by_id) + DEADLINES_SPARE:
            waiting = self.by_id.values()
            self._deadlines = [(each.deadline_ms, each.session) for each in waiting if each.deadline_ms is not None]
            heapify(self._deadlines)

    def of_topic(self, topic_id: int) -> list[Ticket]:
        """The tickets of a topic, in the order of the queue."""
        return list(self._by_topic.get(topic_id, {}).values())

    def touching(self, topic_id: int, partitions: Collection[int]) -> list[Ticket]:
        """The tickets of a topic whose sets have any of these partitions, in the order of the queue."""
        waiting = self._by_topic.get(topic_id)
        if waiting is None:
            return []
        wanted = set(partitions)
        return [ticket for ticket in waiting.values() if not wanted.isdisjoint(ticket.partitions)]

    def position(self, ticket: Ticket) -> int:
        """The number of earlier tickets that touch its set; 0: it is next."""
        before = self.touching(ticket.topic_id, ticket.partitions)
        return before.index(ticket)

    def grow(self, topic_id: int, partitions: Iterable[int]) -> None:
        """A topic got more partitions: tickets for the whole topic wait for these too."""
        more = list(partitions)
        for ticket in self._by_topic.get(topic_id, {}).values():
            if ticket.all_partitions:
                ticket.partitions.extend(more)

    def due(self, clock_ms: int) -> Ticket | None:
        """The ticket past its deadline that is first by (deadline, session); it stays queued until it is removed."""
        while self._deadlines and self._deadlines[0][0] <= clock_ms:
            deadline_ms, session = self._deadlines[0]
            ticket = self.by_session.get(session)
            if ticket is not None and ticket.deadline_ms == deadline_ms:
                return ticket
            heappop(self._deadlines)
        return None

    def next_deadline_ms(self) -> int | None:
        """The lease clock before which no ticket leaves by time; None: no ticket will."""
        return self._deadlines[0][0] if self._deadlines else None

    def save(self) -> list[Ticket]:
        """All tickets: the topics' queues, in the order in which these queues began, each in its own order."""
        return [ticket for line in self._by_topic.values() for ticket in line.values()]

    def load(self, tickets: list[Ticket]) -> None:
        """Inverse of ``save``, on an empty instance."""
        for ticket in tickets:
            self.add(ticket)
        heapify(self._deadlines)
