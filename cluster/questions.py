"""What the controller's shell asks of the machine's state, as of the last command applied. Changes nothing."""

from collections.abc import Iterable, Iterator
from itertools import chain

from ..partition.commands import ProducerId
from .catalog import Topic
from .commands import GrantState, GroupId, ProducerFence, ProducerState, SessionState, TicketState
from .parts import Parts
from .refs import ReaderRef
from .resources import Resource
from .work import Work


class Questions(Parts):
    """Answers from the parts."""

    def topics(self) -> list[Topic]:
        """Ascending by name."""
        return self.catalog.topics()

    def topic(self, name: str) -> Topic | None:
        """The present incarnation of a name."""
        return self.catalog.topic(name)

    def topic_by_id(self, topic_id: int) -> Topic | None:
        """None: deleted, or never there."""
        return self.catalog.topic_by_id(topic_id)

    def replicas(self, group: GroupId) -> list[str] | None:
        """Node ids of a group, the first replica first; None: deleted, or never there."""
        return self.membership.replicas(group)

    def session(self, session: str) -> SessionState:
        """A live session. Raises UnknownSession, SessionExpired."""
        return self.sessions.find(session).state()

    def next_deadline_ms(self) -> int | None:
        """Before this lease clock no Tick has anything to do; None: nothing ends by itself."""
        deadlines = (self.sessions.next_deadline_ms(), self.ownership.queue.next_deadline_ms())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def grant(self, grant_id: str) -> GrantState | None:
        """A live grant."""
        grant = self.ownership.grants.by_id.get(grant_id)
        return self.ownership.grant_state(grant) if grant is not None else None

    def ticket(self, ticket_id: str, session: str) -> GrantState | TicketState:
        """What became of a ticket, for its session.

        Raises UnknownSession, SessionExpired, NotFound, ProducerFenced.
        """
        self.sessions.find(session)
        return self.ownership.ticket(session, ticket_id)

    def holder(self, group: GroupId) -> GrantState | None:
        """The exclusive grant of a partition."""
        grant = self.ownership.grants.holders.get(group)
        return self.ownership.grant_state(grant) if grant is not None else None

    def is_waiting(self, ticket_id: str) -> bool:
        """Whether a ticket is in line."""
        return self.ownership.queue.find(ticket_id) is not None

    def is_in_force(self, grant_id: str) -> bool | None:
        """Whether every partition of a grant is known to have it; None: the grant has ended."""
        grant = self.ownership.grants.by_id.get(grant_id)
        return not grant.pending if grant is not None else None

    def producer(self, name: str) -> ProducerState | None:
        """The pair of a name."""
        row = self.registry.rows.get(name)
        return self.registry.state(row) if row is not None else None

    def producer_by_pid(self, pid: int) -> ProducerState | None:
        """The present pair of the name that this id belongs to or belonged to."""
        row = self.registry.by_pid(pid)
        return self.registry.state(row) if row is not None else None

    def is_anonymous(self, pid: ProducerId) -> bool:
        """Whether this id was given to a producer without a name."""
        return self.registry.is_anonymous(pid)

    def is_installed(self, fence: ProducerFence) -> bool:
        """Whether a partition is known to refuse older epochs of a producer; so does one that is no more."""
        return self.registry.enrolments.is_installed(fence)

    def is_reader_installed(self, ref: ReaderRef) -> bool:
        """Whether a partition is known to refuse older owners; so does one that is no more."""
        return self.reader_fences.is_installed(ref)

    def enrolled_on(self, pid: ProducerId) -> list[GroupId]:
        """The partitions that asked about a producer with a name."""
        return self.registry.enrolments.groups(pid)

    def resources_of(self, group: str) -> list[tuple[str, Resource]]:
        """Every resource ever owned in a group, ascending."""
        return sorted(self.resources.rows.get(group, {}).items())

    def work(self) -> Iterator[Work]:
        """Everything the leader's reconciler has to bring about now, partition by partition: slots first, the oldest
        first. Lazy: stop whenever enough is at hand, and do not apply in between.
        """
        seen: set[GroupId] = set()
        for group in chain(self.ownership.fences.due, *self._owed()):
            if group not in seen:
                seen.add(group)
                yield from self.work_on(group)

    def work_on(self, group: GroupId) -> list[Work]:
        """The part of it that concerns one partition."""
        slot = self.ownership.fences.work_on(group)
        return [
            *([slot] if slot is not None else []),
            *self.reader_fences.work_on(group),
            *self.registry.enrolments.work_on(group, self.applied_index),
        ]

    def _owed(self) -> tuple[Iterable[GroupId], ...]:
        return self.reader_fences.owed, self.registry.enrolments.owed
