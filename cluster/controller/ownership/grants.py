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
"""Ended grants and tickets remembered of a live session; beyond it the oldest is forgotten."""
TICKETS_PER_TOPIC_MAX = 1_000
"""Tickets that wait for partitions of one topic."""
RETRY_AFTER_MS = 1000
DEADLINES_SPARE = 64
"""Deadlines of tickets that left the queue, on top of as many as there are tickets, that are kept until all go."""


class EndedGrant(msgspec.Struct, frozen=True):
    """Why a grant or ticket ended, and one of its partitions. ``reason``: of PRODUCER_FENCED, or ``cancelled``.
    ``granted``: it was a grant, which may have evicted others and been in force; False: a ticket that never got one.
    """

    reason: str
    group_id: GroupId
    granted: bool = True


SavedEndings = list[tuple[str, list[tuple[str, EndedGrant]]]]
"""By session, then by ticket, the oldest first."""


class EndedGrants:
    """By session and ticket."""

    def __init__(self) -> None:
        self._ended: dict[str, dict[str, EndedGrant]] = {}

    def remember(self, session: str, ticket_id: str, ending: EndedGrant) -> None:
        """A grant or ticket has ended."""
        ended = self._ended.setdefault(session, {})
        ended.pop(ticket_id, None)
        ended[ticket_id] = ending
        if len(ended) > ENDED_PER_SESSION_MAX:
            del ended[next(iter(ended))]

    def find(self, session: str, ticket_id: str) -> EndedGrant | None:
        """None: it has not ended, is forgotten, or was never there."""
        return self._ended.get(session, {}).get(ticket_id)

    def topics(self, session: str) -> set[int] | None:
        """The topics of all grants of a live session that have ended; None: some may be forgotten."""
        ended = self._ended.get(session, {})
        if len(ended) >= ENDED_PER_SESSION_MAX:
            return None
        return {topic_partition(ending.group_id)[0] for ending in ended.values() if ending.granted}

    def forget(self, session: str) -> None:
        """A session has ended."""
        self._ended.pop(session, None)

    def save(self) -> SavedEndings:
        """Everything that decides future answers."""
        return [(session, list(ended.items())) for session, ended in sorted(self._ended.items())]

    def load(self, saved: SavedEndings) -> None:
        """Inverse of save, into an empty one."""
        self._ended = {session: dict(ended) for session, ended in saved}


_Key = TypeVar("_Key", int, str)


class Grant(msgspec.Struct):
    """A grant, which lives and dies as one.

    ``grant_index`` is its place in the order of all decisions about slots. ``epoch`` is None for Shared, whose epochs
    are those of the partitions. ``resume_epoch`` is what its acquire asked for. ``operation`` says how it was made
    (acquire, resume, promotion, eviction), at ``at_ms`` of the lease clock and ``wall_ms`` of the leader's wall clock
    (0: not known). ``ttl_ms`` and ``principal`` are its session's. ``pending`` has the partitions that are not known to
    have committed its install.
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
        """Holds its partitions beside other Shared grants."""
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
        """A new grant."""
        self.by_id[grant.grant_id] = grant
        self._by_session.setdefault(grant.session, {})[grant.grant_id] = grant
        if grant.all_partitions:
            self._whole.setdefault(grant.topic_id, {})[grant.grant_id] = grant
        for group in grant.groups():
            self._take(grant, group)

    def remove(self, grant: Grant) -> None:
        """The grant has ended."""
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
        """The topic has more partitions, and the grant was asked for all of them."""
        for partition in partitions:
            grant.partitions.append(partition)
            self._take(grant, group_id(grant.topic_id, partition))

    def of_session(self, session: str) -> list[Grant]:
        """The oldest first."""
        return list(self._by_session.get(session, {}).values())

    def of_whole_topic(self, topic_id: int) -> list[Grant]:
        """Those that were asked for all partitions."""
        return list(self._whole.get(topic_id, {}).values())

    def on(self, group: GroupId) -> list[Grant]:
        """The exclusive grant of a partition, or all Shared ones there."""
        holder = self.holders.get(group)
        return [holder] if holder is not None else list(self.sharers.get(group, {}).values())

    def on_any(self, groups: Collection[GroupId]) -> list[Grant]:
        """Each grant once, in the order of its first partition here."""
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
    """A place in the queue. ``deadline_ms``: when it leaves the queue by itself, on the lease clock. ``ttl_ms`` and
    ``principal`` are its session's. ``request`` and ``client``: of its acquire, for the ledger.
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
    """All tickets: by topic in the order in which they were queued, by session and by id; only ``add`` and ``remove``
    change these.

    A waiting session reserves nothing and holds nothing, and has one ticket at most.
    ``departures`` counts the tickets that left the queue on this replica: the machine notifies waiters when it changes.
    It is no replicated state.
    """

    def __init__(self) -> None:
        self.departures: int = 0
        self._by_topic: dict[int, dict[str, Ticket]] = {}
        self.by_session: dict[str, Ticket] = {}
        self.by_id: dict[str, Ticket] = {}
        self._deadlines: list[tuple[int, str]] = []  # of (deadline, session); tickets that left may be in it still

    def add(self, ticket: Ticket) -> None:
        """To the end of the queue. Raises WaitQueueFull."""
        if len(self._by_topic.get(ticket.topic_id, ())) >= TICKETS_PER_TOPIC_MAX:
            text = f"{TICKETS_PER_TOPIC_MAX} wait for partitions of {ticket.topic}"
            raise WaitQueueFull(text, retry_after_ms=RETRY_AFTER_MS)
        assert ticket.session not in self.by_session
        self._by_topic.setdefault(ticket.topic_id, {})[ticket.ticket_id] = ticket
        self.by_session[ticket.session] = self.by_id[ticket.ticket_id] = ticket
        if ticket.deadline_ms is not None:
            heappush(self._deadlines, (ticket.deadline_ms, ticket.session))

    def remove(self, ticket: Ticket) -> None:
        """The ticket leaves the queue."""
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
        """In the order of the queue."""
        return list(self._by_topic.get(topic_id, {}).values())

    def touching(self, topic_id: int, partitions: Collection[int]) -> list[Ticket]:
        """The tickets whose set shares a partition with this one."""
        waiting = self._by_topic.get(topic_id)
        if waiting is None:
            return []
        wanted = set(partitions)
        return [ticket for ticket in waiting.values() if not wanted.isdisjoint(ticket.partitions)]

    def position(self, ticket: Ticket) -> int:
        """How many tickets before this one touch its set; 0: it is next."""
        before = self.touching(ticket.topic_id, ticket.partitions)
        return before.index(ticket)

    def grow(self, topic_id: int, partitions: Iterable[int]) -> None:
        """A topic got more partitions: tickets for the whole topic wait for these too."""
        more = list(partitions)
        for ticket in self._by_topic.get(topic_id, {}).values():
            if ticket.all_partitions:
                ticket.partitions.extend(more)

    def due(self, clock_ms: int) -> Ticket | None:
        """The ticket whose time is over, the first by (deadline, session); it stays queued until it is removed."""
        while self._deadlines and self._deadlines[0][0] <= clock_ms:
            deadline_ms, session = self._deadlines[0]
            ticket = self.by_session.get(session)
            if ticket is not None and ticket.deadline_ms == deadline_ms:
                return ticket
            heappop(self._deadlines)
        return None

    def next_deadline_ms(self) -> int | None:
        """No ticket leaves by itself before this lease clock; None: there is none to leave."""
        return self._deadlines[0][0] if self._deadlines else None

    def save(self) -> list[Ticket]:
        """Everything that decides future answers: each topic's queue, in the order in which these began."""
        return [ticket for line in self._by_topic.values() for ticket in line.values()]

    def load(self, tickets: list[Ticket]) -> None:
        """Inverse of save, into an empty one."""
        for ticket in tickets:
            self.add(ticket)
        heapify(self._deadlines)
