"""Who waits for partitions: tickets, first come first served (SEMANTICS 6.3). Pure state of the controller's machine.

A waiting session reserves nothing and holds nothing, and has one ticket at most.
"""

from collections.abc import Collection, Iterable
from heapq import heapify, heappop, heappush

import msgspec

from ..partition.errors import WaitQueueFull

TICKETS_PER_TOPIC_MAX = 1_000
"""Tickets that wait for partitions of one topic."""
RETRY_AFTER_MS = 1000


class Ticket(msgspec.Struct):
    """A place in line. ``deadline_ms``: when it leaves the line by itself, on the lease clock."""

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


class Queue:
    """All tickets, by topic in the order of their coming, and by session.

    ``departures`` counts those that left the line here, for whoever waits for that; it is no replicated state.
    """

    def __init__(self) -> None:
        self.departures: int = 0
        self._by_topic: dict[int, dict[str, Ticket]] = {}
        self._by_session: dict[str, Ticket] = {}
        self._by_id: dict[str, Ticket] = {}
        self._deadlines: list[tuple[int, str]] = []  # of (deadline, session); tickets that left may be in it still

    def add(self, ticket: Ticket) -> None:
        """To the end of the line. Raises WaitQueueFull."""
        if len(self._by_topic.get(ticket.topic_id, ())) >= TICKETS_PER_TOPIC_MAX:
            text = f"{TICKETS_PER_TOPIC_MAX} wait for partitions of {ticket.topic}"
            raise WaitQueueFull(text, retry_after_ms=RETRY_AFTER_MS)
        assert ticket.session not in self._by_session
        self._by_topic.setdefault(ticket.topic_id, {})[ticket.ticket_id] = ticket
        self._by_session[ticket.session] = self._by_id[ticket.ticket_id] = ticket
        if ticket.deadline_ms is not None:
            heappush(self._deadlines, (ticket.deadline_ms, ticket.session))

    def remove(self, ticket: Ticket) -> None:
        """Out of the line."""
        self.departures += 1
        del self._by_session[ticket.session], self._by_id[ticket.ticket_id]
        del self._by_topic[ticket.topic_id][ticket.ticket_id]
        if not self._by_topic[ticket.topic_id]:
            del self._by_topic[ticket.topic_id]

    def of_session(self, session: str) -> Ticket | None:
        """The ticket of a session."""
        return self._by_session.get(session)

    def of_topic(self, topic_id: int) -> list[Ticket]:
        """In the order of the line."""
        return list(self._by_topic.get(topic_id, {}).values())

    def find(self, ticket_id: str) -> Ticket | None:
        """A ticket that waits."""
        return self._by_id.get(ticket_id)

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
        """The topic has more partitions: who waits for all of them waits for these too."""
        more = list(partitions)
        for ticket in self._by_topic.get(topic_id, {}).values():
            if ticket.all_partitions:
                ticket.partitions.extend(more)

    def due(self, clock_ms: int) -> Ticket | None:
        """The ticket whose time is over, the first by (deadline, session); it stays in line until it is removed."""
        while self._deadlines and self._deadlines[0][0] <= clock_ms:
            deadline_ms, session = self._deadlines[0]
            ticket = self._by_session.get(session)
            if ticket is not None and ticket.deadline_ms == deadline_ms:
                return ticket
            heappop(self._deadlines)
        return None

    def next_deadline_ms(self) -> int | None:
        """No ticket leaves by itself before this lease clock; None: there is none to leave."""
        return self._deadlines[0][0] if self._deadlines else None

    def save(self) -> list[Ticket]:
        """Everything that decides future answers: each topic's line, in the order in which lines began."""
        return [ticket for line in self._by_topic.values() for ticket in line.values()]

    def load(self, tickets: list[Ticket]) -> None:
        """Inverse of save, into an empty one."""
        for ticket in tickets:
            self.add(ticket)
        heapify(self._deadlines)
