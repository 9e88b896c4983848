"""What each command of the controller does to the parts of its state.

A handler answers, or raises its refusal before it has changed anything. What belongs to several parts at once (a
topic, a session, a resource that is a partition) is put together here.
"""

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from ..partition.errors import InvalidRequest, UnknownTopicOrPartition
from .acquiring import check_set, check_shape, resolve
from .catalog import Topic, group_id, topic_partition
from .commands import (
    Acquire,
    CancelTicket,
    CloseSession,
    Command,
    CreateTopic,
    DeleteTopic,
    Done,
    Enrol,
    Enrolled,
    FenceInstalled,
    FenceProducer,
    ForgetNames,
    Freed,
    GrantState,
    GroupId,
    InitProducer,
    OpenSession,
    ProducerFenceInstalled,
    ProducerState,
    Release,
    RenewSession,
    RenewSessions,
    Result,
    SessionState,
    Tick,
    TicketState,
    TopicCreated,
    TopicDeleted,
    WithdrawProducers,
)
from .group_commands import Disown, ForgetResources, Own, Owned, ReaderFenceInstalled
from .membership_commands import AddNode, CheckMove, MoveDone, Reassign, RegisterNode, RemoveNode
from .parts import Parts
from .refs import FenceRef, ReaderRef
from .resources import Key, Owning, partition_named
from .topic_commands import ChangeTopic, FenceTopic, TopicChanged, TopicFenced

FENCE_REASON_CHARACTERS_MAX = 200
_GROUP = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


class Decisions:
    """One handler for each kind of command."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._handlers: dict[type[Command], Callable[[int, Any], Result]] = {
            CreateTopic: self._create_topic,
            ChangeTopic: self._change_topic,
            DeleteTopic: self._delete_topic,
            FenceTopic: self._fence_topic,
            OpenSession: self._open_session,
            RenewSession: self._renew_session,
            RenewSessions: self._renew_sessions,
            CloseSession: self._close_session,
            Acquire: self._acquire,
            CancelTicket: self._cancel_ticket,
            Release: self._release,
            Own: self._own,
            Disown: self._disown,
            ForgetResources: self._forget_resources,
            InitProducer: self._init_producer,
            FenceProducer: self._fence_producer,
            Enrol: self._enrol,
            WithdrawProducers: self._withdraw_producers,
            ForgetNames: self._forget_names,
            Tick: lambda index, command: Done(),
        }
        reports = (FenceInstalled, ReaderFenceInstalled, ProducerFenceInstalled)
        self._handlers |= dict.fromkeys(reports, self._note_installed)
        arrangements = (RegisterNode, AddNode, RemoveNode, Reassign, CheckMove, MoveDone)
        self._handlers |= dict.fromkeys(arrangements, self._arrange)

    def decide(self, index: int, command: Command) -> Result:
        """Apply the command at ``index``. Raises its refusals."""
        return self._handlers[type(command)](index, command)

    def advance_clock(self, term: int, now_ms: int) -> None:
        """Let time pass: what is due goes, and then who waits for it is promoted (SEMANTICS 8)."""
        parts = self._parts
        parts.lease_clock_ms = parts.ownership.now_ms = parts.resources.now_ms = max(parts.lease_clock_ms, now_ms)
        if term != parts.term:
            parts.term = term
            parts.sessions.rearm(parts.lease_clock_ms)
        while (session := parts.sessions.expire_next(parts.lease_clock_ms)) is not None:
            self._end_session(session, "expired")
        parts.ownership.pass_time()
        parts.ownership.promote()

    def _create_topic(self, index: int, command: CreateTopic) -> TopicCreated:
        created = self._parts.catalog.create(index, command, self._parts.membership.nodes)
        if created.created:
            topic = self._parts.catalog.find(command.name, None)
            self._introduce(topic, list(range(topic.partitions)))
        return created

    def _change_topic(self, index: int, command: ChangeTopic) -> TopicChanged:
        topic = self._parts.catalog.find(command.name, command.topic_id)
        more = self._parts.catalog.change(index, command, self._parts.membership.nodes)
        self._parts.ownership.grow(topic, more)
        self._introduce(topic, more)
        return TopicChanged(topic.topic_id, topic.config_order)

    def _introduce(self, topic: Topic, partitions: list[int]) -> None:
        """New partitions are told who owned them, as resources of groups, when they were of another incarnation."""
        keys = self._parts.resources.of_topic(topic.name)
        self._tell_readers(key for key in keys if _number(key) in partitions)

    def _delete_topic(self, index: int, command: DeleteTopic) -> TopicDeleted:
        parts = self._parts
        topic = parts.catalog.find(command.name, command.topic_id)
        parts.ownership.end_topic(topic)
        parts.catalog.delete(topic)
        parts.membership.forget(topic)
        parts.registry.enrolments.forget(topic.groups())
        parts.reader_fences.forget(topic.groups())
        return TopicDeleted(topic.topic_id, topic.partitions)

    def _fence_topic(self, index: int, command: FenceTopic) -> TopicFenced:
        check_set(command.partitions)
        if command.reason is not None and len(command.reason) > FENCE_REASON_CHARACTERS_MAX:
            raise InvalidRequest(f"reason: over {FENCE_REASON_CHARACTERS_MAX} characters")
        topic = self._parts.catalog.find(command.topic, command.topic_id)
        partitions = resolve(topic, command.partitions)
        return TopicFenced(topic.topic_id, self._parts.ownership.fence(topic, partitions, command.reason))

    def _open_session(self, index: int, command: OpenSession) -> SessionState:
        clock_ms = self._parts.lease_clock_ms
        return self._parts.sessions.open(command.session, command.client_id, command.ttl_ms, clock_ms).state()

    def _renew_session(self, index: int, command: RenewSession) -> SessionState:
        return self._parts.sessions.renew(command.session, self._parts.lease_clock_ms).state()

    def _renew_sessions(self, index: int, command: RenewSessions) -> Done:
        self._parts.sessions.extend(command.deadlines_ms)
        return Done()

    def _close_session(self, index: int, command: CloseSession) -> Freed:
        self._parts.sessions.close(command.session)
        self._end_session(command.session, "closed")
        return Freed(self._left_by({command.session}), self._parts.leaving.open(command.session)[1])

    def _end_session(self, session: str, ends: str) -> None:
        parts = self._parts
        parts.ownership.end_session(session, ends)
        freed = parts.resources.end_session(session)
        self._tell_readers(freed)
        parts.leaving.make(session, (), self._pending(freed))
        parts.severing.forget(session)

    def _left_by(self, sessions: Collection[str]) -> list[FenceRef]:
        """Where these may be in slots still that they had to leave."""
        return self._parts.ownership.fences.uncleared(lambda _, session: session in sessions)

    def _acquire(self, index: int, command: Acquire) -> GrantState | TicketState:
        check_shape(command)
        client_id = self._parts.sessions.find(command.session).client_id
        return self._parts.ownership.state(self._parts.acquiring.acquire(index, command, client_id))

    def _cancel_ticket(self, index: int, command: CancelTicket) -> GrantState | TicketState:
        self._parts.sessions.find(command.session)
        ticket = self._parts.ownership.queue.find(command.ticket_id)
        granted = self._parts.ownership.cancel(command.session, command.ticket_id)
        if granted is not None:
            return self._parts.ownership.grant_state(granted)
        topic, partitions = (ticket.topic, ticket.partitions) if ticket is not None else ("", [])
        return TicketState(command.ticket_id, command.session, topic, partitions, None)

    def _release(self, index: int, command: Release) -> Freed:
        self._parts.sessions.find(command.session)
        self._parts.ownership.release(command.session, command.grant_id)
        return Freed(self._parts.ownership.fences.uncleared(lambda grant_id, _: grant_id == command.grant_id))

    def _own(self, index: int, command: Own) -> Owned:
        self._check_member(command)
        done = self._parts.resources.own(command)
        for victim in done.severed:
            self._parts.ownership.empty(victim, "evicted", "severed")
        self._tell_readers(done.changed)
        self._promise(command.session, done)
        fences, readers = self._parts.severing.open(command.session)
        claimed = self._pending((command.group, claim.resource) for claim in command.claims)
        return Owned(done.verdicts, list(dict.fromkeys([*claimed, *readers])), fences)

    def _promise(self, session: str, done: Owning) -> None:
        """Whoever severed others waits until they are out everywhere, and so do they when they close."""
        if done.severed:
            readers = self._pending(done.changed)
            self._parts.severing.make(session, self._left_by(done.severed), readers)
            for victim in done.severed:
                self._parts.leaving.make(victim, (), readers)

    def _disown(self, index: int, command: Disown) -> Owned:
        self._check_member(command)
        done = self._parts.resources.disown(command)
        self._tell_readers(done.changed)
        return Owned(done.verdicts, self._pending((command.group, resource) for resource in command.resources))

    def _forget_resources(self, index: int, command: ForgetResources) -> Done:
        self._parts.resources.forget(command.keys)
        return Done()

    def _check_member(self, command: Own | Disown) -> None:
        if not _GROUP.match(command.group):
            raise InvalidRequest("group: 1 to 249 of letters, digits, '.', '_', '-'")
        self._parts.sessions.find(command.session)

    def _tell_readers(self, keys: Iterable[Key]) -> None:
        """Partitions that are resources learn what became of them."""
        for group, resource in keys:
            partition = self._partition(resource)
            if partition is not None:
                row = self._parts.resources.find(group, resource)
                self._parts.reader_fences.owe(partition, group, row.fence_epoch, owned=row.owner is not None)

    def _pending(self, keys: Iterable[Key]) -> list[ReaderRef]:
        """What partitions that are resources have still to be told of these."""
        refs = []
        for group, resource in dict.fromkeys(keys):
            partition = self._partition(resource)
            if partition is not None:
                ref = ReaderRef(partition, group, self._parts.resources.find(group, resource).fence_epoch)
                if not self._parts.reader_fences.is_installed(ref):
                    refs.append(ref)
        return refs

    def _partition(self, resource: str) -> GroupId | None:
        named = partition_named(resource)
        topic = self._parts.catalog.topic(named[0]) if named is not None else None
        if named is None or topic is None or named[1] >= topic.partitions:
            return None
        return group_id(topic.topic_id, named[1])

    def _init_producer(self, index: int, command: InitProducer) -> ProducerState:
        return self._parts.registry.init(index, self._parts.lease_clock_ms, command)

    def _fence_producer(self, index: int, command: FenceProducer) -> ProducerState:
        return self._parts.registry.fence(index, self._parts.lease_clock_ms, command.name)

    def _enrol(self, index: int, command: Enrol) -> Enrolled:
        if self._parts.catalog.locate(command.group_id) is None:
            raise UnknownTopicOrPartition(topic=None, partition=topic_partition(command.group_id)[1])
        return self._parts.registry.enrol(index, self._parts.lease_clock_ms, command)

    def _withdraw_producers(self, index: int, command: WithdrawProducers) -> Done:
        self._parts.registry.withdraw(self._parts.lease_clock_ms, command)
        return Done()

    def _forget_names(self, index: int, command: ForgetNames) -> Done:
        """Whoever holds something under a name keeps it."""
        parts = self._parts
        held = {grant.producer_name for grant in parts.ownership.grants.by_id.values()}
        for name in command.names:
            if name not in held and parts.registry.is_idle(name, parts.lease_clock_ms):
                parts.registry.forget(name)
        return Done()

    def _note_installed(
        self,
        index: int,
        report: FenceInstalled | ReaderFenceInstalled | ProducerFenceInstalled,
    ) -> Done:
        """A partition was told."""
        parts = self._parts
        match report:
            case FenceInstalled():
                parts.ownership.fences.confirmed(report.group_id, report.order)
            case ReaderFenceInstalled():
                parts.reader_fences.installed(report.group_id, report.group, report.fence_epoch, owned=report.owned)
            case ProducerFenceInstalled():
                parts.registry.enrolments.installed(report.pid, report.epoch, report.group_id)
        return Done()

    def _arrange(self, index: int, command: Any) -> Result:
        return self._parts.membership.decide(index, command)


def _number(key: Key) -> int | None:
    named = partition_named(key[1])
    return named[1] if named is not None else None
