"""The controller group's state machine: applies commands to catalog, sessions, slots, resources, registry and nodes.

Every replica applies the same commands and so reaches the same state (SEMANTICS 8): commands carry the only time, ids
come from the log index. A handler returns its answer, or raises a refusal before it has changed anything. Decisions on
several parts of the state (a topic, a session, a resource that is a partition) are made here. The leader's services
read this state after a read barrier; the machine does not know which replica leads.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec import structs

from ...partition.api.ownership import grants_digest
from ...partition.errors import (
    InvalidRequest,
    NotFound,
    PermissionDenied,
    PlanChanged,
    StockadeError,
    UnknownTopicOrPartition,
)
from ...partition.internal_names import LEDGER_TOPIC
from ...partition.log.image import FileExtent, Image, ImageDamaged
from ...raft.machine import Machine
from ..access.rights import lacks
from ..features import AWAITED_OWNERS, CHECKED_WRITERS, FORGOTTEN_PARTITIONS, WITHDRAWN_TICKETS
from ..model import By
from .acts import Recorder
from .backups import Backups, NoteBackup
from .balance import ChooseControllers, Rebalance, SetBalance
from .commands import (
    Acquire,
    AddNode,
    Arranged,
    CancelTicket,
    ChangeTopic,
    CheckMove,
    CloseSession,
    Command,
    CreateTopic,
    DeleteTopic,
    Disown,
    Done,
    Enrol,
    Enrolled,
    FenceInstalled,
    FenceProducer,
    FenceRef,
    FenceSession,
    FenceTopic,
    ForgetNames,
    ForgetResources,
    Freed,
    GrantState,
    GroupId,
    InitProducer,
    MoveDone,
    OpenSession,
    Own,
    Owned,
    ProducerFenceInstalled,
    ProducerState,
    RaiseFeatureLevel,
    ReaderFenceInstalled,
    Reassign,
    RegisterNode,
    Release,
    RemoveNode,
    RemoveZone,
    RenewSession,
    RenewSessions,
    Result,
    SessionEnded,
    SessionState,
    Tick,
    TicketState,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    TopicFenced,
    WithdrawProducers,
    decode_command,
)
from .ledger import Ledger
from .ownership.acquire import AcquireRules, check_set, check_shape, resolve
from .ownership.pending_installs import PendingInstalls
from .ownership.reader_fences import PartitionOwners, ReaderFenceInstalls
from .ownership.resources import Key, Owning, Resources, partition_named
from .ownership.slots import Slots
from .ownership.work import Work
from .principals import AddPrincipalToken, DeletePrincipal, DeletePrincipalToken, PrincipalPut, Principals, PutPrincipal
from .producers import ProducerRegistry
from .sessions import Sessions
from .state import SavedState, decode, encode, no_garbage_collection
from .topology.catalog import Catalog, Topic, group_id, topic_partition
from .topology.replica_assignment import ReplicaAssignment

FENCE_REASON_CHARACTERS_MAX = 200
_GROUP = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_NO_FILES = "the controller keeps no files"


def _ignore() -> None:
    pass


_OTHER_GRANTS = "other grants would end than those that the order names"


class ControllerMachine(Machine):
    """The controller's state, one handler for each kind of command, and queries for the leader's services.

    ``lease_clock_ms`` is the replicated clock; ``term`` and ``applied_index`` are the last command's; ``catalog_index``
    is the index of the last command that changed the topics, placements or nodes that every node follows. Only apply
    and restore change the parts; services, invariants and tests read them. ``severing`` has the installs that claims of
    a session wait for because they evicted others (Own with sever=session), ``leaving`` those that its close waits for.
    """

    def __init__(
        self,
        changed: Callable[[], None] = _ignore,
        queue_changed: Callable[[], None] = _ignore,
        catalog_changed: Callable[[], None] = _ignore,
        principals_changed: Callable[[], None] = _ignore,
    ) -> None:
        """``changed`` is called after each apply and restore, ``queue_changed`` only when a ticket may have left the
        queue, ``catalog_changed`` only when the catalog changed: many tasks wait long for these two, and no other
        command need wake them. ``principals_changed`` is called before the others, when principals changed.
        """
        self._changed = changed
        self._queue_changed = queue_changed
        self._catalog_changed = catalog_changed
        self._principals_changed = principals_changed
        self._handlers: dict[type[Command], Callable[[int, Any], Result]] = {
            CreateTopic: self._create_topic,
            ChangeTopic: self._change_topic,
            DeleteTopic: self._delete_topic,
            FenceTopic: self._fence_topic,
            OpenSession: self._open_session,
            RenewSession: self._renew_session,
            RenewSessions: self._renew_sessions,
            CloseSession: self._close_session,
            FenceSession: self._fence_session,
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
            NoteBackup: self._note_backup,
            Tick: lambda index, command: Done(),
        }
        reports = (FenceInstalled, ReaderFenceInstalled, ProducerFenceInstalled)
        self._handlers |= dict.fromkeys(reports, self._note_installed)
        self._reset()

    def _reset(self) -> None:
        self.applied_index: int = 0
        self.term: int = 0
        self.lease_clock_ms: int = 0
        self.catalog_index: int = 0
        self.catalog: Catalog = Catalog()
        self.ledger: Ledger = Ledger()
        self.backups: Backups = Backups()
        self.sessions: Sessions = Sessions()
        self.slots: Slots = Slots(self.catalog, self.ledger)
        self.acquire_rules: AcquireRules = AcquireRules(self.catalog, self.slots)
        self.resources: Resources = Resources(self._is_partition)
        self.reader_fences: ReaderFenceInstalls = ReaderFenceInstalls()
        self.owners: PartitionOwners = PartitionOwners(
            self.catalog, self.resources, self.reader_fences, self.sessions.principal
        )
        self.severing: PendingInstalls = PendingInstalls(self.is_over, self.reader_fences.is_installed)
        self.leaving: PendingInstalls = PendingInstalls(self.is_over, self.reader_fences.is_installed)
        self.registry: ProducerRegistry = ProducerRegistry()
        self.assignment: ReplicaAssignment = ReplicaAssignment(self.catalog)
        self.principals: Principals = Principals()
        parts = (
            self.catalog,
            self.assignment,
            self.slots,
            self.registry,
            self.principals,
            self.resources,
            self.sessions,
        )
        self._recorder = Recorder(self.ledger, *parts)
        self._handlers |= self._recorder.handlers
        self._handlers |= dict.fromkeys((PutPrincipal, DeletePrincipal), self._change_principal)
        self._handlers |= dict.fromkeys((AddPrincipalToken, DeletePrincipalToken), self.principals.decide)
        arrangements = (RegisterNode, AddNode, RemoveNode, RemoveZone, Reassign, CheckMove, MoveDone, RaiseFeatureLevel)
        self._handlers |= dict.fromkeys(arrangements, self.assignment.decide)
        self._handlers |= dict.fromkeys((Rebalance, SetBalance, ChooseControllers), self.assignment.decide)

    def apply(self, index: int, term: int, command: bytes) -> Result | StockadeError:
        """Advance the lease clock to the command's, expire due sessions (SEMANTICS 8), then decide the command; after
        each step, queued tickets get the slots that it freed. Returns a refusal instead of raising it.
        """
        decoded, departures = decode_command(command), self.slots.queue.departures
        self.applied_index = index
        self.slots.wall_ms = decoded.wall_ms
        self.lease_clock_ms = self.slots.now_ms = self.resources.now_ms = max(self.lease_clock_ms, decoded.now_ms)
        self.ledger.at(index, decoded.wall_ms, self.lease_clock_ms)
        if term != self.term:
            self.term = term
            self.sessions.rearm(self.lease_clock_ms)
        while (session := self.sessions.expire_next(self.lease_clock_ms)) is not None:
            self._end_session(session, "expired")
        self.slots.promote()
        result: Result | StockadeError
        try:
            result = self._recorder.decide(index, decoded, self._handlers[type(decoded)])
        except StockadeError as refusal:
            result = refusal.with_traceback(None)
        else:
            self.slots.promote()
            if isinstance(result, TopicCreated | TopicChanged | TopicDeleted | Arranged):
                self.catalog_index = index
        if self.principals.index == index:
            self._principals_changed()
        self._changed()
        if self.slots.queue.departures != departures:
            self._queue_changed()
        if self.catalog_index == index:
            self._catalog_changed()
        return result

    def start(self, directory: object) -> None:
        """Begin with no state; this machine keeps no files."""
        self._reset()

    def capture(self) -> Image:
        """The whole state as bytes: equal on every replica that has applied the same commands."""
        state = SavedState(
            applied_index=self.applied_index,
            term=self.term,
            lease_clock_ms=self.lease_clock_ms,
            catalog_index=self.catalog_index,
            catalog=self.catalog.save(),
            sessions=self.sessions.save(),
            ownership=self.slots.save(),
            resources=self.resources.save(),
            resources_floor=self.resources.floor,
            reader_fences=self.reader_fences.save(),
            severing=self.severing.save(),
            leaving=self.leaving.save(),
            registry=self.registry.save(),
            membership=self.assignment.save(),
            principals=self.principals.save(),
            group_founders=self.resources.founders(),
            ledger=self.ledger.save(),
            backups=self.backups.save(),
        )
        return Image(encode(state))

    def restore(self, directory: object, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Replace the whole state by the captured one. Raises ImageDamaged before anything has changed."""
        if files:
            raise ImageDamaged(_NO_FILES)
        with no_garbage_collection():
            self._load(decode(captured))
        self._principals_changed()
        self._changed()
        self._queue_changed()
        self._catalog_changed()

    def inspect(self, directory: object, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Check that these bytes can be restored. Raises ImageDamaged."""
        if files:
            raise ImageDamaged(_NO_FILES)
        decode(captured)

    def _load(self, state: SavedState) -> None:
        self._reset()
        self.applied_index, self.term, self.lease_clock_ms = state.applied_index, state.term, state.lease_clock_ms
        self.catalog_index = state.catalog_index
        self.catalog.load(state.catalog)
        self.sessions.load(state.sessions)
        self.slots.load(state.ownership)
        self.resources.load(state.resources, state.resources_floor, state.group_founders)
        self.reader_fences.load(state.reader_fences)
        self.severing.load(state.severing)
        self.leaving.load(state.leaving)
        self.registry.load(state.registry)
        self.assignment.load(state.membership)
        self.principals.load(state.principals)
        self.ledger.load(state.ledger)
        self.backups.load(state.backups)

    def is_over(self, fence: FenceRef) -> bool:
        """Whether a partition is known to refuse the token of the grant that this decision ended, or was deleted."""
        return self.slots.fences.is_over(fence) or self.catalog.locate(fence.group_id) is None

    def next_deadline_ms(self) -> int | None:
        """The lease clock before which a Tick has no effect; None: no session, ticket or intent can expire."""
        parts = (self.sessions, self.slots.queue, self.ledger)
        deadlines = (part.next_deadline_ms() for part in parts)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def ticket(self, ticket_id: str, session: str, principal: str = "") -> GrantState | TicketState:
        """The state of a ticket, or of its grant, for the session that asked for it.

        Raises UnknownSession, SessionExpired, PermissionDenied, NotFound, ProducerFenced.
        """
        self.sessions.of(session, principal)
        return self.slots.ticket(session, ticket_id)

    def work(self) -> Iterator[Work]:
        """Yield the installs that the leader's reconciler has to carry out, partition by partition: first those with a
        due slot, the longest due first. Lazy: the caller may stop at any item, and applies no command in between.
        """
        slots, readers, producers = self.slots.fences, self.reader_fences, self.registry.enrolments
        seen: set[GroupId] = set()
        for group in chain(slots.due, readers.owed, producers.owed):
            if group in seen:
                continue
            seen.add(group)
            if group in slots.due:
                yield slots.work_on(group)
            if group in readers.owed:
                yield from readers.work_on(group)
            if group in producers.owed:
                yield from self.registry.work_on(group, self.applied_index)

    def _note_backup(self, index: int, command: NoteBackup) -> Done:
        noted = self.backups.note(command)
        self.ledger.record("backup.note", name=noted.place, after=structs.asdict(noted))
        return Done()

    def _create_topic(self, index: int, command: CreateTopic) -> TopicCreated:
        self._check_is_open(command.name)
        created = self.catalog.create(index, command, self.assignment.nodes, self.assignment.feature_level)
        if created.created:
            topic = self.catalog.find(command.name, None)
            self._free_writers(topic, None, command.by)
            self.owners.introduce(topic, list(range(topic.partitions)))
        return created

    def _change_topic(self, index: int, command: ChangeTopic) -> TopicChanged:
        self._check_is_open(command.name)
        topic = self.catalog.find(command.name, command.topic_id)
        writers = topic.config.writer_group
        more = self.catalog.change(index, command, self.assignment.nodes, self.assignment.feature_level)
        self._free_writers(topic, writers, command.by)
        self.slots.grow(topic, more)
        self.owners.introduce(topic, more)
        return TopicChanged(topic.topic_id, topic.config_order)

    def _free_writers(self, topic: Topic, before: str | None, by: By) -> None:
        """After a change of a topic's writer_group from ``before``, free the topic's partitions that sessions of other
        principals than ``by`` own in the new group: they claimed them when an ownership there gave no right to write.
        """
        group = topic.config.writer_group
        if group in (None, before) or not by.principal or self.assignment.feature_level < CHECKED_WRITERS:
            return
        freed = self.resources.free_partitions(topic.name, group, by.principal, self.sessions.principal)
        for session, key in freed:
            self._recorder.freed("disown", session, [key], "writer_group")
        self.owners.owe(key for _, key in freed)
        self._await_lost(freed)

    def _check_is_open(self, topic: str) -> None:
        """Raises PermissionDenied for the topic of a ledger that records: only the controller changes it."""
        if topic == LEDGER_TOPIC and self.ledger.is_recording:
            raise PermissionDenied(f"{LEDGER_TOPIC} keeps the ledger: no request changes it")

    def _delete_topic(self, index: int, command: DeleteTopic) -> TopicDeleted:
        self._check_is_open(command.name)
        topic = self.catalog.find(command.name, command.topic_id)
        grants = self._grants(topic, range(topic.partitions))
        if command.if_grants not in (None, grants_digest(grants)):
            raise PlanChanged(_OTHER_GRANTS, grants=grants)
        self.slots.end_topic(topic)
        self.catalog.delete(topic)
        self.assignment.forget(topic)
        self.registry.enrolments.forget(topic.groups())
        self.reader_fences.forget(topic.groups())
        return TopicDeleted(topic.topic_id, topic.partitions)

    def _fence_topic(self, index: int, command: FenceTopic) -> TopicFenced:
        self._check_is_open(command.topic)
        check_set(command.partitions)
        ends = _fenced(command.reason)
        topic = self.catalog.find(command.topic, command.topic_id)
        partitions = resolve(topic, command.partitions)
        grants = self._grants(topic, partitions)
        if command.if_grants is not None and sorted(command.if_grants) != grants:
            raise PlanChanged(_OTHER_GRANTS, grants=grants)
        fenced = self.slots.fence(topic, partitions, ends, self.assignment.feature_level)
        return TopicFenced(topic.topic_id, fenced)

    def _grants(self, topic: Topic, partitions: Iterable[int]) -> list[str]:
        """The ids of the grants that hold any of these partitions, ascending."""
        groups = [group_id(topic.topic_id, partition) for partition in partitions]
        return sorted(grant.grant_id for grant in self.slots.grants.on_any(groups))

    def _open_session(self, index: int, command: OpenSession) -> SessionState:
        opened = self.sessions.open(command.session, command.client_id, command.ttl_ms, self.lease_clock_ms, command.by)
        return opened.state()

    def _renew_session(self, index: int, command: RenewSession) -> SessionState:
        return self.sessions.renew(command.session, self.lease_clock_ms, command.by.principal).state()

    def _renew_sessions(self, index: int, command: RenewSessions) -> Done:
        self.sessions.extend(command.deadlines_ms)
        return Done()

    def _close_session(self, index: int, command: CloseSession) -> Freed:
        self.sessions.close(command.session, command.by.principal)
        self._end_session(command.session, "closed")
        return self.freed(command.session)

    def _fence_session(self, index: int, command: FenceSession) -> SessionEnded:
        ends, evicted = _fenced(command.reason), self.sessions.with_handle(command.handle)
        if evicted is None:
            raise NotFound(what="session")
        session = evicted.session
        grants = sorted(grant.grant_id for grant in self.slots.grants.of_session(session))
        resources = len(self.resources.owned_by(session))
        if command.if_grants not in (None, grants_digest(grants)):
            raise PlanChanged(_OTHER_GRANTS, grants=grants)
        if command.if_resources not in (None, resources):
            raise PlanChanged("the number of resources that the session owns has changed since then", grants=grants)
        self.sessions.evict(session, self.lease_clock_ms)
        self._end_session(session, ends)
        freed = self.freed(session)
        client_id = evicted.client_id
        return SessionEnded(freed.fences, freed.readers, client_id=client_id, grants=grants, resources=resources)

    def _end_session(self, session: str, ends: str) -> None:
        unremembered = self.slots.end_session(session, ends, self.assignment.feature_level)
        freed = self.resources.end_session(session)
        self._recorder.freed("session.end", session, freed, ends)
        self.owners.owe(freed)
        self.leaving.add([session], unremembered, self.owners.pending(freed))
        self.severing.forget(session)

    def freed(self, session: str) -> Freed:
        """The installs that became due because this session ended."""
        fences, readers = self.leaving.outstanding(session)
        return Freed(list(dict.fromkeys([*self.slots.fences.uncleared(sessions=[session]), *fences])), readers)

    def _acquire(self, index: int, command: Acquire) -> GrantState | TicketState:
        self._check_is_open(command.topic)
        check_shape(command)
        session = self.sessions.of(command.session, command.by.principal)
        return self.slots.state(self.acquire_rules.acquire(index, command, session, self.assignment.feature_level))

    def _cancel_ticket(self, index: int, command: CancelTicket) -> GrantState | TicketState:
        self.sessions.of(command.session, command.by.principal)
        ticket = self.slots.queue.by_id.get(command.ticket_id)
        granted = self.slots.cancel(command.session, command.ticket_id)
        if granted is not None:
            return self.slots.state(granted)
        topic, partitions = (ticket.topic, ticket.partitions) if ticket is not None else ("", [])
        return TicketState(command.ticket_id, command.session, topic, partitions, None)

    def _release(self, index: int, command: Release) -> Freed:
        self.sessions.of(command.session, command.by.principal)
        return Freed(self.slots.release(command.session, command.grant_id))

    def _own(self, index: int, command: Own) -> Owned:
        self._check_member(command)
        self._check_may_write(command)
        self.resources.check_may_take(command, self.sessions.principal)
        before = self._recorder.owners(command)
        done = self.resources.own(command)
        for victim in done.severed:
            self.slots.empty(victim, "evicted", "severed")
        self._recorder.owned(command, done, before)
        self.owners.owe(done.changed)
        self._await_lost(done.lost)
        self._await_evicted(command.session, done)
        fences, readers = self.severing.outstanding(command.session)
        claimed = self.owners.pending((command.group, claim.resource) for claim in command.claims)
        return Owned(done.verdicts, list(dict.fromkeys([*claimed, *readers])), fences)

    def _await_evicted(self, session: str, done: Owning) -> None:
        """Note the installs that the answers to ``session`` wait for because it severed others; the severed sessions'
        closes wait for them, too.
        """
        if done.severed:
            readers = self.owners.pending(done.changed)
            more = self.slots.unremembered(done.severed, self.assignment.feature_level)
            self.severing.add([session], [*self.slots.fences.uncleared(sessions=set(done.severed)), *more], readers)
            self.leaving.add(done.severed, (), readers)

    def _await_lost(self, lost: Sequence[tuple[str, Key]]) -> None:
        """Note that the close of a session waits for partitions that it owned, and that may not know its end there."""
        if self.assignment.feature_level >= AWAITED_OWNERS:
            keys: dict[str, list[Key]] = {}
            for session, key in lost:
                keys.setdefault(session, []).append(key)
            for session, those in keys.items():  # once a session: each time looks at all that it waits for already
                self.leaving.add([session], (), self.owners.pending(those))

    def _disown(self, index: int, command: Disown) -> Owned:
        self._check_member(command)
        done = self.resources.disown(command)
        self._recorder.freed("disown", command.session, done.changed, "disowned")
        self.owners.owe(done.changed)
        self._await_lost(done.lost)
        return Owned(done.verdicts, self.owners.pending((command.group, resource) for resource in command.resources))

    def _forget_resources(self, index: int, command: ForgetResources) -> Done:
        self.resources.forget(command.keys)
        return Done()

    def _check_member(self, command: Own | Disown) -> None:
        if not _GROUP.match(command.group):
            raise InvalidRequest("group: 1 to 249 of letters, digits, '.', '_', '-'")
        self.sessions.of(command.session, command.by.principal)

    def _check_may_write(self, command: Own) -> None:
        """Raises PermissionDenied for a topic that the caller may not acquire: owners in its writer_group may write."""
        for name in command.unwritable:
            topic = self.catalog.topic(name)
            if topic is not None and topic.config.writer_group == command.group:
                raise lacks(command.by, f"acquire topic:{name}", f"{command.group} is its writer_group")

    def _is_partition(self, resource: str) -> bool:
        """Whether a partition may know the owner of this resource; at feature level 1, whether its name has the form of
        a partition's.
        """
        forgets = self.assignment.feature_level >= FORGOTTEN_PARTITIONS
        return (self.owners.partition(resource) if forgets else partition_named(resource)) is not None

    def _init_producer(self, index: int, command: InitProducer) -> ProducerState:
        return self.registry.init(index, self.lease_clock_ms, command, self.assignment.feature_level)

    def _change_principal(self, index: int, command: PutPrincipal | DeletePrincipal) -> PrincipalPut | Done:
        answer = self.principals.decide(index, command)
        if self.assignment.feature_level >= WITHDRAWN_TICKETS:
            self.slots.withdraw(command.name, self.principals.rights(command.name))
        return answer

    def _fence_producer(self, index: int, command: FenceProducer) -> ProducerState:
        return self.registry.fence(index, self.lease_clock_ms, command.name)

    def _enrol(self, index: int, command: Enrol) -> Enrolled:
        if self.catalog.locate(command.group_id) is None:
            raise UnknownTopicOrPartition(topic=None, partition=topic_partition(command.group_id)[1])
        return self.registry.enrol(index, self.lease_clock_ms, command)

    def _withdraw_producers(self, index: int, command: WithdrawProducers) -> Done:
        self.registry.withdraw(self.lease_clock_ms, command)
        return Done()

    def _forget_names(self, index: int, command: ForgetNames) -> Done:
        """Forget the idle names, except those that a live grant uses."""
        held = {grant.producer_name for grant in self.slots.grants.by_id.values()}
        for name in command.names:
            if name not in held and self.registry.is_idle(name, self.lease_clock_ms):
                self.registry.forget(name)
        return Done()

    def _note_installed(
        self,
        index: int,
        report: FenceInstalled | ReaderFenceInstalled | ProducerFenceInstalled,
    ) -> Done:
        """Note that a partition has committed an install, which is no longer due."""
        match report:
            case FenceInstalled():
                if self.slots.fences.confirmed(report.group_id, report.order):
                    self._recorder.installed(report)
            case ReaderFenceInstalled():
                self.reader_fences.installed(report.group_id, report.group, report.fence_epoch, owned=report.owned)
            case ProducerFenceInstalled():
                self.registry.enrolments.installed(report.pid, report.epoch, report.group_id)
        return Done()


def _fenced(reason: str | None) -> str:
    """The end of a tenure by an operator's order, as histories have it. Raises InvalidRequest for a long reason."""
    if reason is not None and len(reason) > FENCE_REASON_CHARACTERS_MAX:
        raise InvalidRequest(f"reason: over {FENCE_REASON_CHARACTERS_MAX} characters")
    return "fenced" if reason is None else f"fenced: {reason}"
