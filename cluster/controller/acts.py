"""The ledger's entries about commands: acts of administration, and commands that change who may write. Pure.

Every command is in one of three tables, or in UNRECORDED with the reason: tests compare them with all commands. The
effects of a command on slots are recorded where they are decided (ownership/slots.py), as ``grant``, ``grant.end`` and
so on; the entries that are made here are about the command itself.
"""

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import Any

import msgspec

from ...partition.api.ledger import Outcome, ranges, session_handle
from ...partition.errors import FeatureUpdateFailed, StockadeError, TopicAlreadyExists, UnknownTopicOrPartition
from ...partition.internal_names import LEDGER_TOPIC
from ..access.principals import Principal, token_id, unix_ms
from ..features import LEDGER
from .backups import NoteBackup
from .balance import ChooseControllers, PlacedMove, Rebalance, SetBalance
from .commands import (
    Acquire,
    AddNode,
    CancelTicket,
    ChangeTopic,
    CheckMove,
    CloseSession,
    Command,
    CreateTopic,
    DeleteTopic,
    Disown,
    Enrol,
    FenceInstalled,
    FenceProducer,
    FenceSession,
    FenceTopic,
    ForgetNames,
    ForgetResources,
    InitProducer,
    MoveDone,
    OpenSession,
    Own,
    ProducerFenceInstalled,
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
    Tick,
    TopicChanged,
    TopicCreated,
    TopicFenced,
    WithdrawProducers,
)
from .ledger import BeginLedger, KeepLedger, Ledger, LedgerCopied, Noted, NoteIntent, NoteOutcome
from .ownership.acquire import resolve
from .ownership.resources import Key, Owning, Resources
from .ownership.slots import Slots
from .principals import AddPrincipalToken, DeletePrincipal, DeletePrincipalToken, Principals, PutPrincipal
from .producers import ProducerRegistry
from .sessions import Sessions
from .timed import Asked, Done
from .topology.catalog import CONTROLLER_GROUP, Catalog, Topic, group_id
from .topology.replica_assignment import ReplicaAssignment

ADMINISTRATION: dict[type[Command], str] = {
    CreateTopic: "topic.create",
    ChangeTopic: "topic.change",
    DeleteTopic: "topic.delete",
    FenceTopic: "topic.fence",
    FenceProducer: "producer.fence",
    FenceSession: "session.fence",
    AddNode: "node.add",
    RemoveNode: "node.remove",
    RemoveZone: "zone.remove",
    Reassign: "replicas.move",
    PutPrincipal: "principal.put",
    DeletePrincipal: "principal.delete",
    AddPrincipalToken: "principal.add_token",
    DeletePrincipalToken: "principal.delete_token",
    RaiseFeatureLevel: "cluster.feature_level",
    SetBalance: "balance.change",
    ChooseControllers: "controllers.choose",
}
"""Commands of which the ledger has exactly one entry each, also when they are refused or find nothing to do."""
CHANGES: dict[type[Command], str] = {
    InitProducer: "producer.init",
    RegisterNode: "node.register",
    MoveDone: "replicas.moved",
    Rebalance: "replicas.balance",
    KeepLedger: "ledger.keep",
}
"""Commands that have an entry only if they change the state. A Rebalance that an operator orders is an act of
administration.
"""
DECIDED_INSIDE: tuple[type[Command], ...] = (
    *(Acquire, Release, CloseSession, CancelTicket, Tick, Own, Disown),
    *(FenceInstalled, BeginLedger, NoteIntent, NoteOutcome, NoteBackup),
)
"""Commands whose effects on slots, owners, sessions or the ledger itself are recorded where they are decided."""
UNRECORDED: dict[type[Command], str] = {
    OpenSession: "a session may write nothing until it has a grant",
    RenewSession: "nothing changes but a deadline",
    RenewSessions: "nothing changes but deadlines",
    CheckMove: "it only asks",
    Enrol: "it carries to a partition what was decided before",
    ProducerFenceInstalled: "it reports what was decided before",
    ReaderFenceInstalled: "it reports what was decided before",
    WithdrawProducers: "the partition has forgotten the producer, which may not write until it enrols again",
    ForgetNames: "the name was not in use for days, and no partition knows it",
    ForgetResources: "the resource had no owner for days",
    LedgerCopied: "it would never end",
}
REFUSED_WHEN_FULL = frozenset({*ADMINISTRATION, NoteIntent}) - {FenceTopic, FenceProducer, FenceSession}
"""Commands that are refused at the ledger's bounds (see ledger.py); so is a Rebalance that an operator orders."""

NAME_TAKEN = f"a topic has the name {LEDGER_TOPIC}, which is the ledger's from feature level {LEDGER} on"
FINGERPRINT_DIGITS = 16
"""Hexadecimal digits in the fingerprint of a token: the SHA-256 of the hash that is kept of it."""
RESOURCES_TOLD_MAX = 100
"""Resources in one entry; further ones are in further entries."""


def is_administration(command: Command) -> bool:
    """Whether the ledger has exactly one entry of this command, also when it is refused or finds nothing to do."""
    return type(command) in ADMINISTRATION or (isinstance(command, Rebalance) and command.is_ordered)


def check_name_is_free(catalog: Catalog, ledger: Ledger, level: int) -> None:
    """Check that no other topic has the name of the ledger's. Raises FeatureUpdateFailed; ``level``: the cluster's."""
    if catalog.topic(LEDGER_TOPIC) is not None and not ledger.is_recording:
        raise FeatureUpdateFailed(f"{NAME_TAKEN}: delete it first", nodes=[], feature_level=level)


class Recorder:
    """Records in the ledger what commands do to the parts of the machine's state. It only reads these, but for the
    commands about the ledger itself, which it decides (``handlers``).
    """

    def __init__(
        self,
        ledger: Ledger,
        catalog: Catalog,
        assignment: ReplicaAssignment,
        slots: Slots,
        registry: ProducerRegistry,
        principals: Principals,
        resources: Resources,
        sessions: Sessions,
    ) -> None:
        self._ledger = ledger
        self._catalog = catalog
        self._assignment = assignment
        self._slots = slots
        self._registry = registry
        self._principals = principals
        self._resources = resources
        self._sessions = sessions
        self.handlers: dict[type[Command], Callable[[int, Any], Result]] = {
            BeginLedger: self._begin,
            KeepLedger: self._keep,
            LedgerCopied: self._copied,
            NoteIntent: self._intend,
            NoteOutcome: self._conclude,
        }

    def decide(self, index: int, command: Command, handler: Callable[[int, Any], Result]) -> Result:
        """Let the handler decide the command, record it, and return the handler's answer. Raises its refusal, and
        LedgerFull.
        """
        ledger, kind = self._ledger, type(command)
        if isinstance(command, RaiseFeatureLevel) and command.level >= LEDGER and not ledger.is_recording:
            return self._raise_to_ledger(index, command, handler)
        if not ledger.is_recording:
            return handler(index, command)
        ledger.by = command.by if isinstance(command, Asked) else None
        is_act = is_administration(command)
        if kind in REFUSED_WHEN_FULL or (is_act and kind is Rebalance):
            ledger.check_room()
        act = ADMINISTRATION.get(kind) or CHANGES.get(kind)
        if act is None:
            return handler(index, command)
        about, before = self._about(command), self._state(command)
        try:
            result = handler(index, command)
        except StockadeError as refusal:
            if is_act:
                ledger.record(act, outcome="refused", reserve=1, code=refusal.code, before=before, **about)
            raise
        after = {"reason": command.reason} if isinstance(command, FenceSession) else self._state(command)
        has_changed = after != before
        about |= {name: value for name, value in self._about(command).items() if value is not None}
        if isinstance(command, FenceTopic) and isinstance(result, TopicFenced):
            after = (after or {}) | {"order": result.partitions[0].order, "reason": command.reason}
        if isinstance(command, Rebalance) and command.leaders:
            leaders = {f"{topic}/{number}": {"from": come, "to": go} for topic, number, come, go in command.leaders}
            after, has_changed = (after or {}) | {"leaders": leaders}, True
        if has_changed or is_act:
            outcome: Outcome = "done" if has_changed else "unchanged"
            reserve = 1 if is_act else 0
            ledger.record(act, outcome=outcome, reserve=reserve, before=before, after=after, **about)
        return result

    def _raise_to_ledger(self, index: int, command: RaiseFeatureLevel, handler: Callable[[int, Any], Result]) -> Result:
        """Raise the feature level and begin the ledger, which records this command too. Raises FeatureUpdateFailed."""
        check_name_is_free(self._catalog, self._ledger, self._assignment.feature_level)
        before = self._state(command)
        result = handler(index, command)
        self._begin(index, BeginLedger(now_ms=0))
        self._ledger.by = command.by
        self._ledger.record(ADMINISTRATION[type(command)], reserve=1, before=before, after=self._state(command))
        return result

    def installed(self, report: FenceInstalled) -> None:
        """Record that a partition has confirmed a decision about its slot."""
        located = self._catalog.locate(report.group_id)
        if located is not None:
            topic, partition = located
            after = {"order": report.order, "log_end": report.log_end, "previous": report.previous}
            about: dict[str, Any] = {"topic": topic.name, "topic_id": topic.topic_id, "partitions": str(partition)}
            self._ledger.record("slot.installed", after=after, **about)

    def owners(self, command: Own) -> dict[str, str | None]:
        """The handles of the sessions that own the claimed resources, before the claims are decided."""
        if not self._ledger.is_recording:
            return {}
        rows = ((claim.resource, self._resources.find(command.group, claim.resource)) for claim in command.claims)
        return {resource: None if row.owner is None else session_handle(row.owner) for resource, row in rows}

    def owned(self, command: Own, done: Owning, before: dict[str, str | None]) -> None:
        """Record the decision on claims. ``before``: what ``owners`` returned."""
        if not self._ledger.is_recording:
            return
        told = {"session": session_handle(command.session), "severed": [*map(session_handle, done.severed)]}
        for keys in _chunks(done.changed):
            rows = [(group, resource, self._resources.find(group, resource)) for group, resource in keys]
            taken = {
                resource: {"generation": row.generation, "fence_epoch": row.fence_epoch}
                for group, resource, row in rows
                if group == command.group and row.owner == command.session
            }
            freed = [f"{group}/{resource}" for group, resource, row in rows if row.owner is None]
            owners = {resource: before.get(resource) for resource in taken}
            self._ledger.record(
                "own", name=command.group, before={"owners": owners}, after=told | {"owned": taken, "freed": freed}
            )

    def freed(self, act: str, session: str, keys: Iterable[Key], reason: str) -> None:
        """Record that a session owns these resources no more."""
        if not self._ledger.is_recording:
            return
        for some in _chunks(keys):
            after = {"freed": [f"{group}/{resource}" for group, resource in some], "reason": reason}
            self._ledger.record(act, before={"session": session_handle(session)}, after=after)

    def _begin(self, index: int, command: BeginLedger) -> Done:
        if self._ledger.begin():
            self._slots.tell_held()
        return Done()

    def _keep(self, index: int, command: KeepLedger) -> TopicCreated | TopicChanged:
        """Create the ledger's topic, or change its configuration. Raises TopicAlreadyExists for a topic of that name
        that was there before the ledger.
        """
        topic, where = self._catalog.topic(LEDGER_TOPIC), (self._assignment.nodes, self._assignment.feature_level)
        of_ledger: dict[str, Any] = {
            "now_ms": command.now_ms,
            "name": LEDGER_TOPIC,
            "nodes": command.nodes,
            "scattered": True,
        }
        if self._ledger.topic_id is None:
            if topic is not None:
                raise TopicAlreadyExists(NAME_TAKEN, topic_id=topic.topic_id)
            one = CreateTopic(partitions=1, replication_factor=None, config=command.config, **of_ledger)
            created = self._catalog.create(index, one, *where)
            self._ledger.topic_id = created.topic_id
            return created
        config = msgspec.structs.asdict(command.config)
        change = ChangeTopic(topic_id=self._ledger.topic_id, partitions=None, seal=False, config=config, **of_ledger)
        self._catalog.change(index, change, *where)
        changed = self._catalog.find(LEDGER_TOPIC, self._ledger.topic_id)
        return TopicChanged(changed.topic_id, changed.config_order)

    def _copied(self, index: int, command: LedgerCopied) -> Done:
        self._ledger.copied(command.number)
        return Done()

    def _intend(self, index: int, command: NoteIntent) -> Noted:
        topic = None if command.topic is None else self._catalog.topic(command.topic)
        return self._ledger.intend(command, None if topic is None else topic.topic_id)

    def _conclude(self, index: int, command: NoteOutcome) -> Done:
        self._ledger.conclude(command)
        return Done()

    def _about(self, command: Command) -> dict[str, Any]:  # noqa: PLR0911  # a case each
        """The fields of an entry that name the object of the command, as far as the command names one."""
        match command:
            case CreateTopic(name=name) | ChangeTopic(name=name) | DeleteTopic(name=name):
                return self._of_topic(name)
            case FenceTopic(topic=name, partitions=partitions):
                return self._of_topic(name) | {"partitions": ranges(self._chosen(name, partitions))}
            case Reassign(topic=name, partition=partition):
                return self._of_topic(name) | {"partitions": str(partition)}
            case KeepLedger():
                return self._of_topic(LEDGER_TOPIC)
            case MoveDone(group_id=group) | Rebalance(moves=[PlacedMove(group_id=group)], leaders=[]):
                located = self._catalog.locate(group)
                if located is None:
                    return {"name": "controller"}
                return self._of_topic(located[0].name) | {"partitions": str(located[1])}
            case AddNode(node_id=name) | RemoveNode(node_id=name) | RegisterNode(node_id=name) | RemoveZone(zone=name):
                return {"name": name}
            case FenceSession(handle=handle):
                return {"name": handle}
            case Rebalance(if_plan=None):
                return {}
            case SetBalance() | Rebalance():
                return {"name": "balance"}
            case ChooseControllers():
                return {"name": "controller"}
            case _:
                return {"name": getattr(command, "name", None)}

    def _of_topic(self, name: str) -> dict[str, Any]:
        topic = self._catalog.topic(name)
        return {"topic": name, "topic_id": None if topic is None else topic.topic_id}

    def _chosen(self, name: str, partitions: list[int] | None) -> list[int]:
        topic = self._catalog.topic(name)
        try:
            return [] if topic is None else resolve(topic, partitions)
        except UnknownTopicOrPartition:
            return []

    def _state(self, command: Command) -> dict[str, Any] | None:  # noqa: PLR0911, PLR0912  # a case each
        """The present state of the object that a command may change; None: there is no such object."""
        match command:
            case CreateTopic(name=name) | ChangeTopic(name=name) | DeleteTopic(name=name):
                return _topic(self._catalog.topic(name))
            case KeepLedger():
                return _topic(self._catalog.topic(LEDGER_TOPIC))
            case FenceTopic(topic=name, partitions=partitions):
                topic = self._catalog.topic(name)
                return None if topic is None else {"epochs": _epochs(topic, self._chosen(name, partitions))}
            case FenceSession(handle=handle):
                session = self._sessions.with_handle(handle)
                if session is None:
                    return None
                grants = [grant.grant_id for grant in self._slots.grants.of_session(session.session)]
                return {"grants": grants, "resources": len(self._resources.owned_by(session.session))}
            case Reassign(topic=name, partition=partition):
                topic = self._catalog.topic(name)
                is_there = topic is not None and 0 <= partition < topic.partitions
                return self._replicas(group_id(topic.topic_id, partition)) if topic is not None and is_there else None
            case MoveDone(group_id=group) | Rebalance(moves=[PlacedMove(group_id=group)], leaders=[]):
                return self._replicas(group)
            case Rebalance(moves=moves):
                return {self._catalog.name_of(move.group_id): self._replicas(move.group_id) for move in moves}
            case SetBalance():
                return msgspec.structs.asdict(self._assignment.balance)
            case ChooseControllers():
                return self._replicas(CONTROLLER_GROUP) | {"are_chosen": self._assignment.are_chosen}
            case AddNode(node_id=name) | RemoveNode(node_id=name) | RegisterNode(node_id=name):
                return self._node(name)
            case RemoveZone(zone=zone):
                rows = self._assignment.nodes.rows.values()
                return {"draining": {row.node_id: row.draining for row in rows if row.zone == zone}}
            case RaiseFeatureLevel():
                return {"feature_level": self._assignment.feature_level}
            case FenceProducer(name=name) | InitProducer(name=name):
                row = None if name is None else self._registry.rows.get(name)
                return None if row is None else {"pid": row.pid, "epoch": row.epoch, "principal": row.principal}
            case _:
                return _principal(self._principals.rows.get(getattr(command, "name", "")))

    def _replicas(self, group: int) -> dict[str, Any]:
        move = self._assignment.moves.get(group)
        return {
            "replicas": list(self._assignment.replicas(group) or ()),
            "target": None if move is None else move.target,
        }

    def _node(self, node_id: str) -> dict[str, Any] | None:
        row = self._assignment.nodes.rows.get(node_id)
        return None if row is None else msgspec.structs.asdict(row)


def _chunks(keys: Iterable[Key]) -> Iterator[list[Key]]:
    left = iter(keys)
    while some := list(islice(left, RESOURCES_TOLD_MAX)):
        yield some


def _topic(topic: Topic | None) -> dict[str, Any] | None:
    if topic is None:
        return None
    config = msgspec.structs.asdict(topic.config)
    if topic.config.quota_bytes < 0:
        del config["quota_bytes"]  # so that software that does not know this field makes the same bytes
    return {
        "topic_id": topic.topic_id,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "sealed": topic.sealed,
        "principal": topic.principal,
        "config": config,
    }


def _epochs(topic: Topic, partitions: Iterable[int]) -> dict[str, str]:
    """The partitions by their epochs."""
    found: dict[int, list[int]] = {}
    for partition in partitions:
        found.setdefault(topic.epochs[partition], []).append(partition)
    return {str(epoch): ranges(numbers) for epoch, numbers in found.items()}


def _principal(row: Principal | None) -> dict[str, Any] | None:
    """A principal as entries have it. A token is its id, its expiry, and a fingerprint of its hash, which tells a token
    that was exchanged from the one before it.
    """
    if row is None:
        return None
    return {
        "rights": list(row.rights),
        "certificates": list(row.certificates),
        "subjects": list(row.subjects),
        "tokens": [
            {
                "id": token_id(token),
                "expires_ms": unix_ms(token.expires),
                "fingerprint": sha256(token.hash.encode()).hexdigest()[:FINGERPRINT_DIGITS],
            }
            for token in row.tokens
        ],
        "quota": msgspec.to_builtins(row.quota),
    }
