"""The rules of acquire: its checks in their order, and what each mode does (SEMANTICS 5.2, 6.1).

Pure; everything here raises its refusal before anything is changed.
"""

from typing import cast, get_args

import msgspec

from ....partition.api.topics import Mode, SlotHolder
from ....partition.commands import belongs_to_another
from ....partition.errors import (
    HoldAndWait,
    InvalidFencingToken,
    InvalidRequest,
    ProducerBusy,
    ProducerFenced,
    ThrottlingQuotaExceeded,
    UnknownTopicOrPartition,
)
from ...access.rights import lacks
from ...features import RESUMED_TOPICS
from ..commands import Acquire
from ..sessions import Session
from ..topology.catalog import Catalog, Topic, group_id
from .grants import Grant, Ticket
from .slots import Slots

PRODUCER_NAME_CHARACTERS_MAX = 249
SHARERS_PER_PARTITION_MAX = 1_000
"""Sessions that share a partition."""
RETRY_AFTER_MS = 1000


def check_shape(command: Acquire) -> None:
    """Check the fields that need no state. An unknown mode is an error, never another mode. Raises InvalidRequest."""
    if command.mode not in get_args(Mode):
        raise InvalidRequest(f"mode: not one of {', '.join(get_args(Mode))}")
    if not 1 <= len(command.producer_name) <= PRODUCER_NAME_CHARACTERS_MAX:
        raise InvalidRequest(f"producer_name: not 1 to {PRODUCER_NAME_CHARACTERS_MAX} characters")
    if command.ticket_ttl_ms is not None and command.ticket_ttl_ms < 1:
        raise InvalidRequest("ticket_ttl_ms: not positive")
    check_set(command.partitions)


def check_set(partitions: list[int] | None) -> None:
    """Check that a set of partitions is not empty and has distinct numbers from 0 up. Raises InvalidRequest."""
    if partitions is not None:
        if not partitions:
            raise InvalidRequest("partitions: empty")
        if len(set(partitions)) != len(partitions):
            raise InvalidRequest("partitions: one is named twice")
        if min(partitions) < 0:
            raise InvalidRequest("partitions: one is negative")


def resolve(topic: Topic, partitions: list[int] | None) -> list[int]:
    """The partitions of the set, ascending; None: all of the topic. Raises UnknownTopicOrPartition."""
    if partitions is None:
        return list(range(topic.partitions))
    for partition in sorted(partitions):
        if partition >= topic.partitions:
            raise UnknownTopicOrPartition(topic=topic.name, partition=partition)
    return sorted(partitions)


def check_resume(topic: Topic, partitions: list[int], resume_epoch: int | None, *, ignore_unused: bool = False) -> None:
    """Check that an epoch can be resumed: ``resume_epoch == epoch`` on every partition of the set. A lower one was
    superseded (ProducerFenced), a higher one was never issued (InvalidFencingToken). With an equal epoch another grant
    may still have written in between: a Shared grant, and one that resumes, raise no epoch.

    ``ignore_unused``: partitions that never had an epoch do not count, unless none had one: the topic may have grown
    after the grant had ended.
    """
    if resume_epoch is None:
        return
    epochs = [topic.epochs[partition] for partition in partitions]
    if ignore_unused:
        epochs = list(filter(None, epochs)) or epochs
    if resume_epoch < max(epochs):
        raise ProducerFenced(reason="superseded", current_epoch=max(epochs))
    if resume_epoch > min(epochs):
        raise InvalidFencingToken(current_epoch=min(epochs))


class _Conflicts(msgspec.Struct):
    """The conflicts of an acquire: the other sessions' grants on its set, with one item for each partition that they
    hold, and the tickets whose sets intersect it. ``own_shared``: the session's own Shared grants on the set, which
    block no acquire of its own.
    """

    topic: Topic
    holders: list[tuple[int, Grant]]
    sharers: list[tuple[int, Grant]]
    own_shared: list[Grant]
    tickets: list[Ticket]


class AcquireRules:
    """Decides acquires by the state of the catalog and the slots, and changes the slots."""

    def __init__(self, catalog: Catalog, slots: Slots) -> None:
        self._catalog = catalog
        self._slots = slots

    def acquire(self, index: int, command: Acquire, session: Session, level: int) -> Grant | Ticket:
        """The grant of the whole set, or a queued ticket, for a live session. ``level``: the cluster's feature level.

        The caller has called ``check_shape`` before, and calls ``Slots.promote`` afterwards.
        """
        topic = self._catalog.find(command.topic, None)
        partitions = resolve(topic, command.partitions)
        self._catalog.find(command.topic, command.topic_id)
        held = self._held_already(topic, partitions, command)
        # Without this condition, the retry of an acquire that evicted another grant would be refused because its
        # own grant superseded it.
        if held is None or held.resume_epoch != command.resume_epoch:
            ignore_unused = command.partitions is None and level >= RESUMED_TOPICS
            check_resume(topic, partitions, command.resume_epoch, ignore_unused=ignore_unused)
        if held is not None:
            return held
        ticket = self._slots.queue.by_session.get(command.session)
        if ticket is not None and command.mode == "WaitForExclusive" and _is_for(ticket, topic, partitions):
            return ticket
        conflicts = self._look(topic, partitions, command.session)
        if ticket is not None:
            raise self._hold_and_wait(command.session)
        request = _request(index, topic, partitions, command, session, self._slots.now_ms)
        return self._decide(request, command, conflicts)

    def _held_already(self, topic: Topic, partitions: list[int], command: Acquire) -> Grant | None:
        """The grant that answers a repeated acquire: the session's own, of the same set and producer name. A Shared one
        answers only an acquire in mode Shared.
        """
        for grant in self._slots.grants.on(group_id(topic.topic_id, partitions[0])):
            mine = (grant.session, grant.producer_name) == (command.session, command.producer_name)
            if mine and grant.partitions == partitions and (not grant.is_shared or command.mode == "Shared"):
                return grant
        return None

    def _look(self, topic: Topic, partitions: list[int], session: str) -> _Conflicts:
        """Collect the conflicts of the acquire. Raises InvalidRequest for the session's own exclusive grant."""
        conflicts = _Conflicts(topic, [], [], [], self._slots.queue.touching(topic.topic_id, partitions))
        own: dict[str, Grant] = {}
        for partition in partitions:
            for grant in self._slots.grants.on(group_id(topic.topic_id, partition)):
                if grant.session != session:
                    (conflicts.sharers if grant.is_shared else conflicts.holders).append((partition, grant))
                elif grant.is_shared:
                    own[grant.grant_id] = grant
                else:
                    text = "partitions: this session holds some of them under another grant; release it first"
                    raise InvalidRequest(text)
        conflicts.own_shared = list(own.values())
        return conflicts

    def _decide(self, request: Ticket, command: Acquire, conflicts: _Conflicts) -> Grant | Ticket:
        match command.mode:
            case "Shared":
                return self._share(request, conflicts)
            case "ExclusiveWithFencing":
                _check_may_evict(command, conflicts)
                return self._evict(request, conflicts)
            case "WaitForExclusive" if conflicts.holders or conflicts.sharers or conflicts.tickets:
                return self._wait(request)
            case _:
                if conflicts.holders or conflicts.sharers or conflicts.tickets:
                    raise _busy(request, conflicts)
                self._upgrade(conflicts)
                return self._slots.give(request, command.mode, "acquire", slot_was_free=True)

    def _share(self, request: Ticket, conflicts: _Conflicts) -> Grant:
        if conflicts.holders or conflicts.tickets:
            raise _busy(request, conflicts, sharers_matter=False)
        grants = self._slots.grants
        groups = [group_id(request.topic_id, partition) for partition in request.partitions]
        if any(len(grants.sharers.get(group, ())) >= SHARERS_PER_PARTITION_MAX for group in groups):
            text = f"{SHARERS_PER_PARTITION_MAX} share a partition"
            raise ThrottlingQuotaExceeded(text, retry_after_ms=RETRY_AFTER_MS)
        return self._slots.give(request, "Shared", "acquire", slot_was_free=True)

    def _evict(self, request: Ticket, conflicts: _Conflicts) -> Grant:
        for ticket in conflicts.tickets:
            self._slots.leave(ticket, "evicted")
        victims = {grant.grant_id: grant for _, grant in (*conflicts.holders, *conflicts.sharers)}
        for victim in victims.values():
            self._slots.end(victim, "evicted", "evicted")
        self._upgrade(conflicts)
        operation = "eviction" if victims else "acquire"
        return self._slots.give(request, "ExclusiveWithFencing", operation, slot_was_free=not victims)

    def _wait(self, request: Ticket) -> Ticket:
        if self._slots.grants.of_session(request.session):
            raise self._hold_and_wait(request.session)
        self._slots.queue.add(request)
        return request

    def _upgrade(self, conflicts: _Conflicts) -> None:
        """End the session's own Shared grants, whole as every grant ends, to make room for its exclusive one."""
        for grant in conflicts.own_shared:
            self._slots.end(grant, "superseded", "upgraded")

    def _hold_and_wait(self, session: str) -> HoldAndWait:
        held = [grant.grant_id for grant in self._slots.grants.of_session(session)]
        ticket = self._slots.queue.by_session.get(session)
        return HoldAndWait(held_grants=held, ticket=ticket.ticket_id if ticket is not None else None)


def _check_may_evict(command: Acquire, conflicts: _Conflicts) -> None:
    """Raises PermissionDenied where another principal's grant or ticket would end by a caller that may not evict."""
    if command.by.evicts:
        return
    there = {grant.principal for _, grant in (*conflicts.holders, *conflicts.sharers)}
    there.update(ticket.principal for ticket in conflicts.tickets)
    if any(belongs_to_another(each, command.by.principal) for each in there):
        raise lacks(command.by, f"evict topic:{command.topic}", "another principal holds it, or waits for it")


def _request(
    index: int, topic: Topic, partitions: list[int], command: Acquire, session: Session, now_ms: int
) -> Ticket:
    ttl_ms = command.ticket_ttl_ms
    return Ticket(
        ticket_id=f"t-{topic.topic_id}-{index}",
        session=command.session,
        client_id=session.client_id,
        topic=topic.name,
        topic_id=topic.topic_id,
        partitions=partitions,
        all_partitions=command.partitions is None,
        producer_name=command.producer_name,
        resume_epoch=command.resume_epoch,
        deadline_ms=now_ms + ttl_ms if ttl_ms is not None else None,
        ttl_ms=session.ttl_ms,
        principal=session.principal,
        request=command.by.request,
        client=command.by.client,
    )


def _is_for(ticket: Ticket, topic: Topic, partitions: list[int]) -> bool:
    return (ticket.topic_id, ticket.partitions) == (topic.topic_id, partitions)


def _busy(request: Ticket, conflicts: _Conflicts, sharers_matter: bool = True) -> ProducerBusy:
    """The refusal, which names what blocks the request: an exclusive grant, or else a Shared one, or else tickets."""
    in_the_way = conflicts.holders or (conflicts.sharers if sharers_matter else [])
    partition, holder = in_the_way[0] if in_the_way else (request.partitions[0], None)
    reason = "waiters_present"
    if holder is not None:
        reason = "shared_present" if holder.is_shared else "exclusive_present"
    return ProducerBusy(
        reason=reason,
        holder_mode=holder.mode if holder is not None else None,
        current_epoch=conflicts.topic.epochs[partition],
        queue_len=len(conflicts.tickets),
        holder=msgspec.to_builtins(_slot_holder(holder)) if holder is not None else None,
    )


def _slot_holder(grant: Grant) -> SlotHolder:
    """A grant as refusals describe it to others. Its session's ttl is only an upper bound of ``expires_in_ms``; the
    leader, which hears renewals, knows the end of the session more exactly.
    """
    return SlotHolder(
        grant.grant_id,
        cast(Mode, grant.mode),
        grant.producer_name,
        grant.client_id,
        grant.at_ms,
        grant.wall_ms or None,
        grant.ttl_ms or None,
        grant.operation,
    )
