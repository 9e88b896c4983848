"""Who owns which partitions: grants made and ended, all partitions of a set in one command or none; and who waits.

Pure state of the controller's machine. The controller decides, partitions enforce. The argument why they agree:

*What a partition does.* It keeps one place in the order of decisions, (topic_epoch, order), and a slot: an exclusive
grant, shared holders, or no holder. Every install has a place. An install with a later place moves the partition there
and sets its slot; one with the same place changes nothing; one with an earlier place is refused. Hence the place never
goes down, the slot is the one decided at that place, and no older one comes back.

*What the controller does.* Every change of who has a partition (a grant made, a grant ended, a fence without a new
owner) is a decision with the next number in one order, at an epoch of that partition that never falls. So on one
partition the places rise, and the order of the partition is that of the controller. The controller wants one thing of
each partition: the slot of the last decision. A partition that is not known to have that slot is work, and a report
ends the work only if it names that decision.

*So, with any message lost, repeated or late, sent by the leader of any term:*

1. In force means alone. A grant is in force when each of its partitions has committed its install. From that entry on
   the place is at this grant or above, so every older token is refused there. Before it, an older owner may still write
   on that partition, at an epoch that is not higher: epochs along a log never fall.
2. Nothing old comes back. A late install of an ended grant does nothing once a later decision was committed. If it
   comes before, the slot is taken wrongly for a while; but then the last decision is still due, for only its own commit
   ends that work. Meanwhile the slot refuses every session but the departed owner.
3. Nothing new is undone. A late clear leaves later grants alone, in the slot or on their way.
4. A grant may end before any partition had it, having evicted an older one. Its end is a decision after both, so its
   install ends the older one as well, and refuses both from then on.
5. A resumed epoch is no special case. Equal epochs are ordered by the decisions, so the resuming grant may take the
   place of its predecessor, cleared or not, and a late install of the predecessor is refused all the same.
6. It ends. Work is derived from replicated state and each step may be repeated, so a step that is committed and
   reported goes away, and when no work is left every slot is what the controller says.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import Any, Literal

import msgspec

from ....partition.api.ledger import ranges, session_handle
from ....partition.commands import ClearFence, InstallFence, InstallSeats, SharedHolder, SlotState
from ....partition.errors import NotFound, ProducerFenced
from ...access.rights import Rights
from ...features import AWAITED_DEPARTURES, FENCED_WAITERS
from ...model import By
from ..commands import FencedPartition, FenceInstalled, FenceRef, GrantState, GroupId, TicketState
from ..ledger import Ledger
from ..topology.catalog import Catalog, Topic, group_id, topic_partition
from .grants import EndedGrant, EndedGrants, Grant, Grants, SavedEndings, Ticket, WaitQueue

DEPARTED_MAX = 16
"""The most ended grants remembered of a partition that has not committed their end yet; a retried release or close
waits for these. Beyond it the first, which the partition may have, and the latest are kept. If the report of an install
was lost, the partition may hold a grant that was dropped from this list; so a retry about a grant that is in no list
waits for every full partition.
"""
TAKEN = frozenset({"evicted", "severed", "fenced"})
"""The ends of a tenure by a takeover, a severing claim or an operator's fence; ``fenced`` may be followed by a colon
and a reason.
"""


class SlotDecision(msgspec.Struct, frozen=True):
    """The last decision about a partition's slot: its place (``epoch``, ``order``), and when it was made.

    ``ends`` says why the tenure before it ended (None: there was none), ``departed`` has (grant, session) of the
    grants that have ended since the partition was last known to have the decided slot.
    """

    epoch: int
    order: int
    at_ms: int
    ends: str | None
    departed: list[tuple[str, str]]


_NOT_DUE = SlotDecision(0, 0, 0, None, [])  # of a partition without one; as of any decision, its list never changes


class SavedFenceInstalls(msgspec.Struct, frozen=True):
    """The saved state of FenceInstalls; ``due`` is in the order in which partitions became due."""

    order: int
    due: list[tuple[GroupId, SlotDecision]]
    reached: list[tuple[GroupId, int]]


class SlotInstall(msgspec.Struct, frozen=True):
    """The install that gives a partition the slot of the last decision about it, whose place is ``order``."""

    group_id: GroupId
    order: int
    command: InstallFence | InstallSeats | ClearFence
    """The command to propose to the partition's group."""

    def report(self, answer: SlotState, now_ms: int) -> FenceInstalled | None:
        """The command to propose to the controller's group; None when the partition refused: a later place is there."""
        if not answer.done:
            return None
        return FenceInstalled(
            now_ms=now_ms,
            group_id=self.group_id,
            order=self.order,
            log_end=answer.log_end,
            previous=answer.previous,
        )

    def told(self, partition: str) -> str:
        """The log's text about the writer of ``partition`` after a takeover, without its session: that id is secret."""
        command = self.command
        if not isinstance(command, InstallFence):
            return f"{partition} refuses its writers before epoch {command.epoch} ({command.ends})"
        writer = command.client_id or "a session"
        name = f" as {command.producer_name}" if command.producer_name else ""
        by = f" of principal {command.principal}" if command.principal else ""
        return f"{writer}{name}{by} writes to {partition} alone, in epoch {command.epoch} ({command.ends})"


class FenceInstalls:
    """The fence protocol's bookkeeping: the last decision about each slot, until the partition has committed it.

    ``due`` has the partitions that are not known to have the decided slot; it covers ``pending`` of every live grant.
    """

    def __init__(self, grants: Grants) -> None:
        """``grants``: the live ones, which are read, and of which ``confirmed`` updates ``pending``."""
        self._grants = grants
        self._order = 0
        self.due: dict[GroupId, SlotDecision] = {}
        # By the id of a grant or session that ``due`` has in ``departed``: its partitions. Derived from ``due``.
        self._departed: defaultdict[str, set[GroupId]] = defaultdict(set)
        # Partitions of ``due`` with DEPARTED_MAX departed grants, so that one may be forgotten. Derived from ``due``.
        self._full: set[GroupId] = set()
        # The place that each partition is known to have reached: it refuses every earlier place for ever.
        self._reached: dict[GroupId, int] = {}

    def next_order(self) -> int:
        """The place of a new decision: one above the last."""
        self._order += 1
        return self._order

    def record_grant(self, group: GroupId, epoch: int, order: int, at_ms: int) -> None:
        """Note that a grant was made on a partition, which has to install it."""
        before = self.due.get(group, _NOT_DUE)
        self.due[group] = SlotDecision(epoch, order, at_ms, before.ends, before.departed)

    def record_end(self, grant: Grant, group: GroupId, epoch: int, order: int, at_ms: int, ends: str) -> None:
        """Note that a grant on a partition has ended, which the partition may never have installed."""
        before = self.due.get(group, _NOT_DUE)
        departed = [*before.departed, (grant.grant_id, grant.session)]
        if len(departed) > DEPARTED_MAX:
            self._forget_departed(group, [departed.pop(1)], departed)
        for name in departed[-1]:
            self._departed[name].add(group)
        if len(departed) == DEPARTED_MAX:
            self._full.add(group)
        self.due[group] = SlotDecision(epoch, order, at_ms, before.ends or ends, departed)

    def record_fence(self, group: GroupId, epoch: int, order: int, at_ms: int, ends: str) -> None:
        """Note that a partition, which no grant holds, has to refuse all epochs below ``epoch``."""
        before = self.due.get(group, _NOT_DUE)
        self.due[group] = SlotDecision(epoch, order, at_ms, before.ends or ends, before.departed)

    def confirmed(self, group: GroupId, order: int) -> bool:
        """Note that the partition has reached this place. Returns whether that is news."""
        decision = self.due.get(group)
        if decision is None or decision.order < order:
            return False
        is_news = order > self._reached.get(group, 0)
        self._reached[group] = max(order, self._reached.get(group, 0))
        if decision.order == order:
            del self.due[group]
            self._full.discard(group)
            self._forget_departed(group, decision.departed)
        for grant in self._grants.on(group):
            if grant.grant_index <= order:
                grant.pending.discard(topic_partition(group)[1])
        return is_news

    def forget(self, groups: Iterable[GroupId]) -> None:
        """Drop the state of partitions that were deleted."""
        for group in groups:
            self._full.discard(group)
            self._forget_departed(group, self.due.pop(group, _NOT_DUE).departed)
            self._reached.pop(group, None)

    def _forget_departed(
        self, group: GroupId, gone: Iterable[tuple[str, str]], others: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Take grants (``gone``: id and session) of a partition out of the index; ``others`` stay there."""
        for name in set(chain(*gone)).difference(chain(*others)):
            self._departed[name].discard(group)
            if not self._departed[name]:
                del self._departed[name]

    def is_over(self, fence: FenceRef) -> bool:
        """Whether the partition is known to have reached the place of that decision."""
        return self._reached.get(fence.group_id, 0) >= fence.order

    def reached(self, group: GroupId) -> int:
        """The latest decision that a partition is known to have confirmed; 0: none."""
        return self._reached.get(group, 0)

    def uncleared(self, *, grants: Collection[str] = (), sessions: Collection[str] = ()) -> list[FenceRef]:
        """The partitions whose slot may still have one of these ended grants, or one that such a session had."""
        here = {group for name in (*grants, *sessions) for group in self._departed.get(name, ())}
        return [
            FenceRef(group, self.due[group].order)
            for group in sorted(here)
            if any(grant in grants or session in sessions for grant, session in self.due[group].departed)
        ]

    def full(self, concerns: Callable[[int], bool]) -> list[FenceRef]:
        """The partitions with DEPARTED_MAX departed grants or more, of topics for whose id ``concerns`` holds."""
        return [
            FenceRef(group, self.due[group].order)
            for group in sorted(self._full)
            if concerns(topic_partition(group)[0])
        ]

    def departed_names(self) -> set[str]:
        """The ids of ended grants that partitions may still have, and of the sessions that had them."""
        return set(self._departed)

    def work_on(self, group: GroupId) -> SlotInstall:
        """The install that a due partition needs."""
        decision = self.due[group]
        return SlotInstall(group, decision.order, self._wanted(group, decision))

    def _wanted(self, group: GroupId, decision: SlotDecision) -> InstallFence | InstallSeats | ClearFence:
        holder = self._grants.holders.get(group)
        if holder is not None:
            return InstallFence(
                grant_id=holder.grant_id,
                epoch=decision.epoch,
                session=holder.session,
                producer_name=holder.producer_name,
                mode=holder.mode,
                grant_index=decision.order,
                client_id=holder.client_id,
                now_ms=decision.at_ms,
                operation=holder.operation,
                ends=decision.ends or "superseded",
                wall_ms=holder.wall_ms,
                ttl_ms=holder.ttl_ms,
                principal=holder.principal,
            )
        ends = decision.ends or "released"
        sharers = self._grants.sharers.get(group)
        if sharers is not None:
            holders = [_shared_holder(grant) for grant in sharers.values()]
            return InstallSeats(decision.epoch, decision.order, holders, decision.at_ms, ends)
        last = decision.departed[-1][0] if decision.departed else ""
        return ClearFence(last, decision.epoch, decision.order, decision.at_ms, ends)

    def save(self) -> SavedFenceInstalls:
        """The state on which future answers depend."""
        return SavedFenceInstalls(self._order, list(self.due.items()), sorted(self._reached.items()))

    def load(self, saved: SavedFenceInstalls) -> None:
        """Inverse of ``save``, on an empty instance."""
        self._order = saved.order
        self.due = dict(saved.due)
        for group, decision in saved.due:
            for name in chain(*decision.departed):
                self._departed[name].add(group)
            if len(decision.departed) >= DEPARTED_MAX:
                self._full.add(group)
        self._reached = dict(saved.reached)


def _shared_holder(grant: Grant) -> SharedHolder:
    return SharedHolder(
        grant.grant_id,
        grant.session,
        grant.producer_name,
        grant.client_id,
        grant.at_ms,
        grant.wall_ms,
        grant.principal,
    )


class SavedSlots(msgspec.Struct, frozen=True):
    """The saved state of Slots: grants, the oldest first; queued tickets; why grants and tickets ended; installs."""

    grants: list[Grant]
    tickets: list[Ticket]
    endings: SavedEndings
    fences: SavedFenceInstalls


class Slots:
    """All grants and tickets, and how they begin and end; acquire.py decides which acquire gets one. The machine sets
    ``now_ms``, the lease clock, and ``wall_ms``, the leader's wall clock (0: not known), for each command.
    """

    def __init__(self, catalog: Catalog, ledger: Ledger) -> None:
        """Of ``catalog`` it changes the epochs of topics alone; in ``ledger`` it records grants."""
        self._catalog = catalog
        self._ledger = ledger
        self.grants: Grants = Grants()
        self.queue: WaitQueue = WaitQueue()
        self.endings: EndedGrants = EndedGrants()
        self.fences: FenceInstalls = FenceInstalls(self.grants)
        self.now_ms = 0
        self.wall_ms = 0
        self._freed: dict[int, None] = {}  # ids of topics where a grant or ticket ended since the last promotion

    def give(self, ticket: Ticket, mode: str, operation: str, *, slot_was_free: bool) -> Grant:
        """Make the grant of a ticket that is not in the queue. No exclusive grant is on its partitions, and for an
        exclusive one no other grant at all.

        A resumed epoch is kept if ``slot_was_free``: a grant that evicts gets a new epoch. The caller has checked that
        no partition has a later epoch than the resumed one.
        """
        topic = self._catalog.by_id[ticket.topic_id]
        epoch = None if mode == "Shared" else 1 + max(topic.epochs[partition] for partition in ticket.partitions)
        if epoch is not None and ticket.resume_epoch is not None and slot_was_free:
            epoch, operation = ticket.resume_epoch, "resume"
        grant = Grant(
            grant_id=_grant_id(ticket.ticket_id),
            ticket_id=ticket.ticket_id,
            grant_index=self.fences.next_order(),
            session=ticket.session,
            client_id=ticket.client_id,
            topic=topic.name,
            topic_id=topic.topic_id,
            partitions=ticket.partitions,
            all_partitions=ticket.all_partitions,
            mode=mode,
            producer_name=ticket.producer_name,
            epoch=epoch,
            resume_epoch=ticket.resume_epoch,
            operation=operation,
            at_ms=self.now_ms,
            pending=set(),
            wall_ms=self.wall_ms,
            ttl_ms=ticket.ttl_ms,
            principal=ticket.principal,
        )
        before = max(topic.epochs[partition] for partition in grant.partitions)
        self.grants.add(grant)
        for partition in grant.partitions:
            self._hold(grant, topic, partition, grant.grant_index)
        by = By(grant.principal, request=ticket.request, client=ticket.client)
        self._record("grant", grant, by=by, before={"epoch": before})
        return grant

    def tell_held(self) -> None:
        """Record the live grants, as the ledger begins."""
        for grant in self.grants.by_id.values():
            self._record("grant.held", grant)

    def _record(
        self,
        act: str,
        grant: Grant,
        partitions: list[int] | None = None,
        *,
        tells: Literal["before", "after"] = "after",
        by: By | None = None,
        **details: Any,
    ) -> None:
        """Record an act. ``tells``: the side of the entry that has the grant; ``details``: more of both sides."""
        if self._ledger.is_recording:
            details[tells] = _told(grant) | details.get(tells, {})
            about: dict[str, Any] = {"topic": grant.topic, "topic_id": grant.topic_id}
            numbers = ranges(grant.partitions if partitions is None else partitions)
            self._ledger.record(act, by=by, partitions=numbers, **about, **details)

    def end(self, grant: Grant, reason: str, ends: str) -> None:
        """End a grant. ``reason`` is for its session, ``ends`` for the history of its partitions."""
        self.grants.remove(grant)
        epochs, order = self._catalog.by_id[grant.topic_id].epochs, self.fences.next_order()
        for partition, group in zip(grant.partitions, grant.groups(), strict=True):
            self.fences.record_end(grant, group, epochs[partition], order, self.now_ms, ends)
        self._record("grant.end", grant, tells="before", after={"order": order, "reason": ends})
        self.endings.remember(grant.session, grant.ticket_id, EndedGrant(reason, grant.groups()[0]))
        self._freed[grant.topic_id] = None

    def leave(self, ticket: Ticket, reason: str) -> None:
        """Take a ticket out of the queue without a grant; ``reason`` is for its session."""
        self.queue.remove(ticket)
        group = group_id(ticket.topic_id, ticket.partitions[0])
        self.endings.remember(ticket.session, ticket.ticket_id, EndedGrant(reason, group, granted=False))
        self._freed[ticket.topic_id] = None

    def release(self, session: str, grant_id: str) -> list[FenceRef]:
        """End a grant, unless it has ended. Returns the partitions whose slot may still have it."""
        grant = self.grants.by_id.get(grant_id)
        if grant is not None:
            self._check_is_of(grant, session)
            self.end(grant, "slot_free", "released")
        fences = self.fences.uncleared(grants=[grant_id])
        if grant is None:
            fences += self.fences.full(lambda topic_id: grant_id.startswith(f"g-{topic_id}-"))
        return list(dict.fromkeys(fences))

    def unremembered(self, sessions: Iterable[str], level: int) -> list[FenceRef]:
        """The partitions whose slots may still have an ended grant of these live sessions that ``departed`` lacks."""
        if level < AWAITED_DEPARTURES:
            return []
        found: list[FenceRef] = []
        seen: set[int] = set()
        for topics in map(self.endings.topics, sessions):
            if topics is None:
                return found + self.fences.full(lambda topic_id: True)
            if more := topics - seen:
                found += self.fences.full(more.__contains__)
                seen |= more
        return found

    def cancel(self, session: str, ticket_id: str) -> Grant | None:
        """Take a ticket out of the queue. Returns its grant instead if it has one already."""
        found = self.grants.by_id.get(_grant_id(ticket_id)) or self.queue.by_id.get(ticket_id)
        if found is not None:
            self._check_is_of(found, session)
        if isinstance(found, Ticket):
            self.leave(found, "cancelled")
        return found if isinstance(found, Grant) else None

    def empty(self, session: str, reason: str, ends: str) -> None:
        """End all grants of a session, and take its ticket out of the queue."""
        for grant in self.grants.of_session(session):
            self.end(grant, reason, ends)
        ticket = self.queue.by_session.get(session)
        if ticket is not None:
            self.leave(ticket, reason)

    def withdraw(self, principal: str, rights: Rights) -> None:
        """Take out of the queue those tickets of a principal whose topics its new ``rights`` do not let it acquire."""
        waiting = [ticket for ticket in self.queue.by_id.values() if ticket.principal == principal]
        for ticket in sorted(waiting, key=lambda each: each.ticket_id):
            if not rights.allow("acquire", "topic", ticket.topic):
                self.leave(ticket, "cancelled")

    def end_session(self, session: str, ends: str, level: int) -> list[FenceRef]:
        """End the grants and the ticket of an ended session. Returns its ``unremembered``, for the last time."""
        self.empty(session, "slot_free", ends)
        unremembered = self.unremembered([session], level)
        self.endings.forget(session)
        return unremembered

    def end_topic(self, topic: Topic) -> None:
        """End the grants and tickets of a topic that is about to be deleted; none of its slots has to be cleared."""
        for grant in self.grants.on_any(topic.groups()):
            self.end(grant, "evicted", "deleted")
        for ticket in self.queue.of_topic(topic.topic_id):
            self.leave(ticket, "evicted")
        self._freed.pop(topic.topic_id, None)
        self.fences.forget(topic.groups())

    def grow(self, topic: Topic, partitions: list[int]) -> None:
        """Extend the grants and tickets of the whole topic by its new ``partitions`` (SEMANTICS 7.4)."""
        for grant in self.grants.of_whole_topic(topic.topic_id):
            order = self.fences.next_order()
            self.grants.grow(grant, partitions)
            for partition in partitions:
                self._hold(grant, topic, partition, order)
            self._record("grant.grow", grant, partitions, after={"order": order})
        self.queue.grow(topic.topic_id, partitions)

    def fence(self, topic: Topic, partitions: list[int], ends: str, level: int) -> list[FencedPartition]:
        """End every grant on any of these partitions and raise their epochs by one, so that they refuse older epochs.
        Tickets that would resume an older epoch leave the queue at the next promotion.
        """
        groups = [group_id(topic.topic_id, partition) for partition in partitions]
        there = [[grant.grant_id for grant in self.grants.on(group)] for group in groups]
        for grant in self.grants.on_any(groups):
            self.end(grant, "evicted", ends)
        order = self.fences.next_order()
        for partition, group in zip(partitions, groups, strict=True):
            topic.epochs[partition] += 1
            self.fences.record_fence(group, topic.epochs[partition], order, self.now_ms, ends)
        if level >= FENCED_WAITERS:
            self._freed[topic.topic_id] = None
        return [
            FencedPartition(partition, topic.epochs[partition], order, grants)
            for partition, grants in zip(partitions, there, strict=True)
        ]

    def promote(self) -> None:
        """Take tickets past their deadline out of the queue; then give free slots to the tickets that wait for them,
        first come first served (SEMANTICS 6.3).
        """
        while (overdue := self.queue.due(self.now_ms)) is not None:
            self.leave(overdue, "cancelled")
        freed, self._freed = self._freed, {}
        for topic in filter(None, map(self._catalog.by_id.get, freed)):
            blocked: set[int] = set()
            for ticket in self.queue.of_topic(topic.topic_id):
                if ticket.resume_epoch is not None and ticket.resume_epoch < self._epoch(ticket):
                    self.leave(ticket, "superseded")
                elif blocked.isdisjoint(ticket.partitions) and not self._is_taken(ticket):
                    self.queue.remove(ticket)
                    self.give(ticket, "WaitForExclusive", "promotion", slot_was_free=True)
                else:
                    blocked.update(ticket.partitions)
                if len(blocked) == topic.partitions:
                    break  # every partition is taken, or wanted by an earlier ticket
            self._freed.pop(topic.topic_id, None)

    def ticket(self, session: str, ticket_id: str) -> GrantState | TicketState:
        """The state of a ticket, for its session.

        Raises NotFound, or ProducerFenced when its grant has ended or is another session's. The refusal of a ticket
        that once had a grant says so in ``no_side_effects``: the grant may have evicted others and been in force.
        """
        found = self.grants.by_id.get(_grant_id(ticket_id)) or self.queue.by_id.get(ticket_id)
        if found is not None:
            self._check_is_of(found, session)
            return self.state(found)
        ended = self.endings.find(session, ticket_id)
        located = self._catalog.locate(ended.group_id) if ended is not None else None
        if ended is None or located is None:
            raise NotFound(what="ticket")
        topic, partition = located
        if ended.reason == "cancelled":
            return TicketState(ticket_id, session, topic.name, [partition], None)
        fenced = ProducerFenced(reason=ended.reason, current_epoch=topic.epochs[partition])
        raise fenced.had_effects() if ended.granted else fenced

    def state(self, found: Grant | Ticket) -> GrantState | TicketState:
        """A grant or ticket, as answers have it."""
        if isinstance(found, Ticket):
            position = self.queue.position(found)
            return TicketState(found.ticket_id, found.session, found.topic, list(found.partitions), position)
        epochs = self._catalog.by_id[found.topic_id].epochs
        return GrantState(
            grant_id=found.grant_id,
            ticket_id=found.ticket_id,
            grant_index=found.grant_index,
            session=found.session,
            topic=found.topic,
            topic_id=found.topic_id,
            partitions=list(found.partitions),
            all_partitions=found.all_partitions,
            mode=found.mode,
            producer_name=found.producer_name,
            epoch=found.epoch,
            epochs=[epochs[partition] for partition in found.partitions],
            pending=sorted(found.pending),
        )

    def is_in_force(self, grant_id: str) -> bool | None:
        """Whether every partition of a grant is known to have it; None: the grant has ended."""
        grant = self.grants.by_id.get(grant_id)
        return not grant.pending if grant is not None else None

    def save(self) -> SavedSlots:
        """The state on which future answers depend."""
        return SavedSlots([*self.grants.by_id.values()], self.queue.save(), self.endings.save(), self.fences.save())

    def load(self, saved: SavedSlots) -> None:
        """Inverse of ``save``, on an empty instance."""
        for grant in saved.grants:
            self.grants.add(grant)
        self.queue.load(saved.tickets)
        self.endings.load(saved.endings)
        self.fences.load(saved.fences)

    def _hold(self, grant: Grant, topic: Topic, partition: int, order: int) -> None:
        if grant.epoch is not None:
            assert grant.epoch >= topic.epochs[partition]
            topic.epochs[partition] = grant.epoch
        group = group_id(topic.topic_id, partition)
        grant.pending.add(partition)
        self.fences.record_grant(group, topic.epochs[partition], order, self.now_ms)

    def _is_taken(self, ticket: Ticket) -> bool:
        return any(self.grants.on(group_id(ticket.topic_id, partition)) for partition in ticket.partitions)

    def _check_is_of(self, found: Grant | Ticket, session: str) -> None:
        if found.session != session:
            raise ProducerFenced(reason="not_holder", current_epoch=self._epoch(found))

    def _epoch(self, found: Grant | Ticket) -> int:
        epochs = self._catalog.by_id[found.topic_id].epochs
        return max(epochs[partition] for partition in found.partitions)


def _told(grant: Grant) -> dict[str, Any]:
    """The fields of a grant in a ledger entry; ``order`` is the place of the decision that made it."""
    return {
        "grant": grant.grant_id,
        "mode": grant.mode,
        "epoch": grant.epoch,
        "order": grant.grant_index,
        "producer_name": grant.producer_name,
        "client_id": grant.client_id,
        "principal": grant.principal,
        "session": session_handle(grant.session),
        "operation": grant.operation,
    }


def _grant_id(ticket_id: str) -> str:
    """The id of a ticket's grant: both ids have the topic's id and the log index of the acquire. "": no ticket's id."""
    return "g" + ticket_id[1:] if ticket_id.startswith("t") else ""
