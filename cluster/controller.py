"""The controller group's machine: applies commands to catalog, sessions, ownership and registry, and answers
questions.

Every replica applies the same commands and so reaches the same state (SEMANTICS 8): time is what commands
carry, ids come from the log index. The parts raise refusals, always before they change anything, and apply
returns them. The questions are for the leader's shell, after a read barrier; nothing here knows who leads.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import assert_never

from ..partition.errors import StockadeError, UnknownTopicOrPartition
from ..partition.image import FileExtent, Image, ImageDamaged
from . import ownership
from .catalog import Catalog, Topic, topic_partition
from .commands import (
    Acquire,
    CloseSession,
    Command,
    CreateTopic,
    DeleteTopic,
    Done,
    Enrol,
    Enrolled,
    FenceCleared,
    FenceInstalled,
    FenceProducer,
    FenceRef,
    Freed,
    GrantState,
    GroupId,
    InitProducer,
    OpenSession,
    ProducerFence,
    ProducerFenceInstalled,
    ProducerState,
    Release,
    RenewSession,
    Result,
    SessionState,
    Tick,
    TopicCreated,
    TopicDeleted,
    decode_command,
)
from .membership import Membership
from .membership_commands import AddNode, Arranged, CheckMove, MoveDone, Reassign, RegisterNode, RemoveNode
from .ownership import Ownership
from .registry import Registry
from .sessions import Sessions
from .state import State, decode, encode
from .work import Work


class ControllerMachine:
    """Implements raft.machine.Machine; apply answers commands.Result or the StockadeError instance.

    ``lease_clock_ms`` is the replicated clock; ``term`` and ``applied_index`` are the last command's;
    ``catalog_index`` is that of the last command that changed what nodes must know of topics and of each other. The
    parts are open to reading: tests and invariants look at them, nobody but apply changes them.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.applied_index = 0
        self.term = 0
        self.lease_clock_ms = 0
        self.catalog = Catalog()
        self.sessions = Sessions()
        self.ownership = Ownership(self.catalog)
        self.registry = Registry()
        self.membership = Membership(self.catalog)
        self.catalog_index = 0

    def apply(self, index: int, term: int, command: bytes) -> Result | StockadeError:
        """Let time pass up to the command, then decide it."""
        decoded = decode_command(command)
        self.applied_index = index
        self._advance_clock(term, decoded.now_ms)
        try:
            result = self._decide(index, decoded)
        except StockadeError as refusal:
            return refusal.with_traceback(None)
        if isinstance(result, TopicCreated | TopicDeleted | Arranged):
            self.catalog_index = index
        return result

    def _advance_clock(self, term: int, now_ms: int) -> None:
        self.lease_clock_ms = max(self.lease_clock_ms, now_ms)
        if term != self.term:
            self.term = term
            self.sessions.rearm(self.lease_clock_ms)
        while (session := self.sessions.expire_next(self.lease_clock_ms)) is not None:
            self.ownership.end_session(session)

    def _decide(self, index: int, command: Command) -> Result:  # noqa: PLR0911, PLR0912 (a case for each command)
        match command:
            case CreateTopic():
                return self.catalog.create(index, command, self.membership.nodes)
            case DeleteTopic():
                return self._delete_topic(command)
            case OpenSession(session=session, client_id=client_id, ttl_ms=ttl_ms):
                return self.sessions.open(session, client_id, ttl_ms, self.lease_clock_ms).state()
            case RenewSession(session=session):
                return self.sessions.renew(session, self.lease_clock_ms).state()
            case CloseSession(session=session):
                return self._close_session(session)
            case Acquire():
                return self._acquire(index, command)
            case Release():
                return self._release(command)
            case FenceInstalled(group_id=group, grant_id=grant_id):
                self.ownership.fences.installed(group, grant_id)
            case FenceCleared(group_id=group, grant_id=grant_id):
                self.ownership.fences.cleared(group, grant_id)
            case InitProducer():
                return self.registry.init(command)
            case FenceProducer(name=name):
                return self.registry.fence(name)
            case Enrol():
                return self._enrol(index, command)
            case ProducerFenceInstalled(pid=pid, epoch=epoch, group_id=group):
                self.registry.enrolments.installed(pid, epoch, group)
            case Tick():
                pass
            case RegisterNode() | AddNode() | RemoveNode() | Reassign() | CheckMove() | MoveDone():
                return self.membership.decide(index, command)
            case _:
                assert_never(command)
        return Done()

    def _delete_topic(self, command: DeleteTopic) -> TopicDeleted:
        topic = self.catalog.delete(command.name, command.topic_id)
        self.ownership.end_topic(topic)
        self.membership.forget(topic)
        self.registry.enrolments.forget(topic.groups())
        return TopicDeleted(topic.topic_id, topic.partitions)

    def _close_session(self, session: str) -> Freed:
        self.sessions.close(session)
        self.ownership.end_session(session)
        return Freed(self.ownership.fences.uncleared(lambda grant: grant.session == session))

    def _acquire(self, index: int, command: Acquire) -> GrantState:
        ownership.check_shape(command)
        self.sessions.find(command.session)
        return self.ownership.acquire(index, command).state()

    def _release(self, command: Release) -> Freed:
        self.sessions.find(command.session)
        self.ownership.release(command.session, command.grant_id)
        return Freed(self.ownership.fences.uncleared(lambda grant: grant.grant_id == command.grant_id))

    def _enrol(self, index: int, command: Enrol) -> Enrolled:
        if self.catalog.locate(command.group_id) is None:
            raise UnknownTopicOrPartition(topic=None, partition=topic_partition(command.group_id)[1])
        return self.registry.enrol(index, command)

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
        """Before this lease clock no Tick has anything to do; None: there is no session."""
        return self.sessions.next_deadline_ms()

    def grant(self, grant_id: str) -> GrantState | None:
        """A live grant."""
        grant = self.ownership.grants.get(grant_id)
        return grant.state() if grant is not None else None

    def grant_by_ticket(self, ticket_id: str) -> GrantState | None:
        """The live grant of a ticket."""
        grant = self.ownership.grant_by_ticket(ticket_id)
        return grant.state() if grant is not None else None

    def ticket(self, ticket_id: str, session: str) -> GrantState:
        """The grant of a ticket, for its session.

        Raises UnknownSession, SessionExpired, NotFound, ProducerFenced.
        """
        self.sessions.find(session)
        return self.ownership.ticket(session, ticket_id).state()

    def holder(self, group: GroupId) -> GrantState | None:
        """The live grant of a partition."""
        grant = self.ownership.holders.get(group)
        return grant.state() if grant is not None else None

    def is_in_force(self, grant_id: str) -> bool | None:
        """Whether every partition of a grant is known to have it; None: the grant has ended."""
        grant = self.ownership.grants.get(grant_id)
        return not grant.pending if grant is not None else None

    def is_over(self, fence: FenceRef) -> bool:
        """Whether a partition is known to refuse the token of an ended grant; so does one that is no more."""
        return self.ownership.fences.is_over(fence) or self.catalog.locate(fence.group_id) is None

    def producer(self, name: str) -> ProducerState | None:
        """The pair of a name."""
        row = self.registry.rows.get(name)
        return self.registry.state(row) if row is not None else None

    def producer_by_pid(self, pid: int) -> ProducerState | None:
        """The present pair of the name that this id belongs to or belonged to."""
        row = self.registry.by_pid(pid)
        return self.registry.state(row) if row is not None else None

    def is_installed(self, fence: ProducerFence) -> bool:
        """Whether a partition is known to refuse older epochs of a producer; so does one that is no more."""
        return self.registry.enrolments.is_installed(fence)

    def work(self) -> Iterator[Work]:
        """Everything the leader's reconciler has to bring about now, partition by partition: fences first, then
        producers, the oldest first. Lazy: stop whenever enough is at hand, and do not apply in between.
        """
        fences, owed = self.ownership.fences, self.registry.enrolments.owed
        for group in chain(fences.installs, fences.clears):
            yield from self.work_on(group)
        for group in owed:
            if group not in fences.installs and group not in fences.clears:
                yield from self.work_on(group)

    def work_on(self, group: GroupId) -> list[Work]:
        """The part of it that concerns one partition."""
        fence = self.ownership.fences.work_on(group)
        producers = self.registry.enrolments.work_on(group, self.applied_index)
        return [*producers] if fence is None else [fence, *producers]

    def save(self) -> State:
        """Everything that decides future answers."""
        return State(
            self.applied_index,
            self.term,
            self.lease_clock_ms,
            self.catalog_index,
            self.catalog.save(),
            self.sessions.save(),
            self.ownership.save(),
            self.registry.save(),
            self.membership.save(),
        )

    def load(self, state: State) -> None:
        """Inverse of save, in place of all that is here."""
        self._begin()
        self.applied_index, self.term, self.lease_clock_ms = state.applied_index, state.term, state.lease_clock_ms
        self.catalog_index = state.catalog_index
        self.catalog.load(state.catalog)
        self.sessions.load(state.sessions)
        self.ownership.load(state.ownership)
        self.registry.load(state.registry)
        self.membership.load(state.membership)

    def start(self, directory: Path) -> None:
        """Begin with no state; this machine keeps no files."""
        self._begin()

    def capture(self) -> Image:
        """The whole state as bytes: equal on every replica that has applied the same commands."""
        return Image(encode(self.save()))

    def restore(self, directory: Path, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Be what was captured. Raises ImageDamaged, and changes nothing then."""
        self.inspect(directory, captured, files)
        self.load(decode(captured))

    def inspect(self, directory: Path, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Raises ImageDamaged unless these bytes can be restored."""
        if files:
            raise ImageDamaged("the controller keeps no files")
        decode(captured)
