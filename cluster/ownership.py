"""Who owns which partitions: grants made and ended, all partitions of a set in one command or none; and who waits.

Pure state of the controller's machine. It decides; partitions enforce. This is the argument why they agree.

*What a partition does.* It keeps one place in the order of decisions, (topic_epoch, order), and a slot: an exclusive
grant, or seats, or nobody. Whatever it is told has a place. A later one than its own moves it there and makes the slot
what it says; the same again changes nothing; an earlier one is refused. Hence the place never goes down, the slot is
what was decided at that place, and nothing older comes back.

*What the controller does.* Every change of who has a partition (a grant made, a grant ended, a fence without a new
owner) is a decision with the next number in one order, at an epoch of that partition that never falls. So on one
partition the places rise, and the order of the partition is that of the controller. What it wants of a partition is one
thing: the slot of the last decision. Work is what is not known to be so yet, and a report takes it off only if it names
that decision.

*So, whatever is lost, repeated or late, and whichever leader of whichever term sent it:*

1. In force means alone. A grant is in force when each of its partitions has committed its install. From that entry on
   the place is at this grant or above, so every older token is refused there. Before it, an older owner may still write
   on that partition, at an epoch that is not higher: epochs along a log never fall.
2. Nothing old comes back. A late install of an ended grant does nothing once a later decision was committed. If it
   comes before, the slot is taken wrongly for a while; but then the last decision is still to be told, for only its
   committing takes it off. Meanwhile the slot refuses everybody but the departed owner.
3. Nothing new is undone. A late clear leaves later grants alone, in the slot or on their way.
4. A grant may end before it arrived anywhere, having evicted an older one. Its end is a decision after both, so telling
   it ends the older one as well, and shuts the door behind both.
5. A resumed epoch is no special case. Equal epochs are ordered by the decisions, so the resuming grant may take the
   place of its predecessor, cleared or not, and a late install of the predecessor is refused all the same.
6. It ends. Work is derived from replicated state and each step may be repeated, so a step that is committed and
   reported goes away, and when no work is left every slot is what the controller says.
"""

import msgspec

from ..partition.errors import NotFound, ProducerFenced
from .catalog import Catalog, Topic, group_id
from .commands import GrantState, TicketState
from .endings import Endings, SavedEndings
from .fences import Fences, SavedFences
from .grants import Grant, Grants
from .queue import Queue, Ticket
from .topic_commands import FencedPartition


class SavedOwnership(msgspec.Struct, frozen=True):
    """Grants, the oldest first; tickets in line; what is remembered of both."""

    grants: list[Grant]
    tickets: list[Ticket]
    endings: SavedEndings
    fences: SavedFences


class Ownership:
    """Grants and tickets; who may have what is acquiring.py's. ``now_ms`` is the lease clock, set by the machine."""

    def __init__(self, catalog: Catalog) -> None:
        """Writes the epochs of the catalog's topics, nothing else of it."""
        self._catalog = catalog
        self.grants: Grants = Grants()
        self.queue: Queue = Queue()
        self.endings: Endings = Endings()
        self.fences: Fences = Fences(self.grants)
        self.now_ms = 0
        self._left: dict[int, None] = {}  # topics where somebody left since the last promotion

    def give(self, ticket: Ticket, mode: str, operation: str, *, seat_was_free: bool) -> Grant:
        """Make the grant of a ticket that is not, or no longer, in line. Nobody is in its way.

        An epoch is kept only if nobody was in between; to evict somebody is to be in between.
        """
        topic = self._topic(ticket.topic_id)
        epoch = None if mode == "Shared" else 1 + max(topic.epochs[partition] for partition in ticket.partitions)
        if epoch is not None and ticket.resume_epoch is not None and seat_was_free:
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
        )
        self.grants.add(grant)
        for partition in grant.partitions:
            self._seat(grant, topic, partition, grant.grant_index)
        return grant

    def end(self, grant: Grant, reason: str, ends: str) -> None:
        """A grant ends. ``reason`` is for its session, ``ends`` for the history of its partitions."""
        self.grants.remove(grant)
        epochs, order = self._topic(grant.topic_id).epochs, self.fences.next_order()
        for partition, group in zip(grant.partitions, grant.groups(), strict=True):
            self.fences.unseat(grant, group, epochs[partition], order, self.now_ms, ends)
        self.endings.remember(grant.session, grant.ticket_id, reason, grant.groups()[0])
        self._left[grant.topic_id] = None

    def leave(self, ticket: Ticket, reason: str) -> None:
        """Out of the line without a grant."""
        self.queue.remove(ticket)
        group = group_id(ticket.topic_id, ticket.partitions[0])
        self.endings.remember(ticket.session, ticket.ticket_id, reason, group)
        self._left[ticket.topic_id] = None

    def release(self, session: str, grant_id: str) -> None:
        """End a grant; nothing to do when there is no such grant."""
        grant = self.grants.by_id.get(grant_id)
        if grant is not None:
            self._check_is_of(grant, session)
            self.end(grant, "slot_free", "released")

    def cancel(self, session: str, ticket_id: str) -> Grant | None:
        """Leave the line, unless the grant came first, which is answered then."""
        found = self._find(ticket_id)
        if found is not None:
            self._check_is_of(found, session)
        if isinstance(found, Ticket):
            self.leave(found, "cancelled")
        return found if isinstance(found, Grant) else None

    def empty(self, session: str, reason: str, ends: str) -> None:
        """Take everything here away from a session: its grants, seats and ticket."""
        for grant in self.grants.of_session(session):
            self.end(grant, reason, ends)
        ticket = self.queue.of_session(session)
        if ticket is not None:
            self.leave(ticket, reason)

    def end_session(self, session: str, ends: str) -> None:
        """The session is no more."""
        self.empty(session, "slot_free", ends)
        self.endings.forget(session)

    def end_topic(self, topic: Topic) -> None:
        """The topic is about to go: so do the grants on it and its line, and there is nothing left to clear."""
        for grant in self.grants.on_any(topic.groups()):
            self.end(grant, "evicted", "deleted")
        for ticket in self.queue.of_topic(topic.topic_id):
            self.leave(ticket, "evicted")
        self._left.pop(topic.topic_id, None)
        self.fences.forget(topic.groups())

    def grow(self, topic: Topic, partitions: list[int]) -> None:
        """The topic has these partitions more: who has or wants all of it has or wants them too (SEMANTICS 7.4)."""
        for grant in self.grants.of_whole_topic(topic.topic_id):
            order = self.fences.next_order()
            self.grants.grow(grant, partitions)
            for partition in partitions:
                self._seat(grant, topic, partition, order)
        self.queue.grow(topic.topic_id, partitions)

    def fence(self, topic: Topic, partitions: list[int], reason: str | None) -> list[FencedPartition]:
        """Throw out everybody on these partitions, whole grants, and let nobody with an older epoch back."""
        ends = "fenced" if reason is None else f"fenced: {reason}"
        groups = [group_id(topic.topic_id, partition) for partition in partitions]
        there = [[grant.grant_id for grant in self.grants.on(group)] for group in groups]
        for grant in self.grants.on_any(groups):
            self.end(grant, "evicted", ends)
        order = self.fences.next_order()
        for partition, group in zip(partitions, groups, strict=True):
            topic.epochs[partition] += 1
            self.fences.bar(group, topic.epochs[partition], order, self.now_ms, ends)
        return [
            FencedPartition(partition, topic.epochs[partition], order, grants)
            for partition, grants in zip(partitions, there, strict=True)
        ]

    def pass_time(self) -> None:
        """Tickets whose time is over leave the line."""
        while (ticket := self.queue.due(self.now_ms)) is not None:
            self.leave(ticket, "cancelled")

    def promote(self) -> None:
        """Give what is free to those who wait for it, in the order of their coming (SEMANTICS 6.3)."""
        left, self._left = self._left, {}
        for topic_id in left:
            topic = self._catalog.topic_by_id(topic_id)
            if topic is not None:
                self._promote_on(topic)

    def ticket(self, session: str, ticket_id: str) -> GrantState | TicketState:
        """What became of a ticket. NotFound, or ProducerFenced when its grant has ended or is another session's."""
        found = self._find(ticket_id)
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
        raise ProducerFenced(reason=ended.reason, current_epoch=topic.epochs[partition])

    def state(self, found: Grant | Ticket) -> GrantState | TicketState:
        """As answered."""
        if isinstance(found, Ticket):
            position = self.queue.position(found)
            return TicketState(found.ticket_id, found.session, found.topic, list(found.partitions), position)
        return self.grant_state(found)

    def grant_state(self, grant: Grant) -> GrantState:
        """As answered."""
        epochs = self._topic(grant.topic_id).epochs
        return GrantState(
            grant_id=grant.grant_id,
            ticket_id=grant.ticket_id,
            grant_index=grant.grant_index,
            session=grant.session,
            topic=grant.topic,
            topic_id=grant.topic_id,
            partitions=list(grant.partitions),
            all_partitions=grant.all_partitions,
            mode=grant.mode,
            producer_name=grant.producer_name,
            epoch=grant.epoch,
            epochs=[epochs[partition] for partition in grant.partitions],
            pending=sorted(grant.pending),
        )

    def save(self) -> SavedOwnership:
        """Everything that decides future answers."""
        grants = list(self.grants.by_id.values())
        return SavedOwnership(grants, self.queue.save(), self.endings.save(), self.fences.save())

    def load(self, saved: SavedOwnership) -> None:
        """Inverse of save, into an empty one."""
        for grant in saved.grants:
            self.grants.add(grant)
        self.queue.load(saved.tickets)
        self.endings.load(saved.endings)
        self.fences.load(saved.fences)

    def _seat(self, grant: Grant, topic: Topic, partition: int, order: int) -> None:
        if grant.epoch is not None:
            assert grant.epoch >= topic.epochs[partition]
            topic.epochs[partition] = grant.epoch
        group = group_id(topic.topic_id, partition)
        self.fences.seat(grant, group, topic.epochs[partition], order, self.now_ms)

    def _promote_on(self, topic: Topic) -> None:
        blocked: set[int] = set()
        for ticket in self.queue.of_topic(topic.topic_id):
            if ticket.resume_epoch is not None and ticket.resume_epoch < self._epoch(ticket):
                self.leave(ticket, "superseded")
            elif blocked.isdisjoint(ticket.partitions) and not self._is_taken(ticket):
                self.queue.remove(ticket)
                self.give(ticket, "WaitForExclusive", "promotion", seat_was_free=True)
            else:
                blocked.update(ticket.partitions)
            if len(blocked) == topic.partitions:
                break  # nobody further behind can have anything
        self._left.pop(topic.topic_id, None)

    def _is_taken(self, ticket: Ticket) -> bool:
        groups = (group_id(ticket.topic_id, partition) for partition in ticket.partitions)
        return any(self.grants.on(group) for group in groups)

    def _find(self, ticket_id: str) -> Grant | Ticket | None:
        """The ticket in line, or its live grant."""
        return self.queue.find(ticket_id) or self.grants.by_id.get(_grant_id(ticket_id))

    def _check_is_of(self, found: Grant | Ticket, session: str) -> None:
        if found.session != session:
            raise ProducerFenced(reason="not_holder", current_epoch=self._epoch(found))

    def _epoch(self, found: Grant | Ticket) -> int:
        epochs = self._topic(found.topic_id).epochs
        return max(epochs[partition] for partition in found.partitions)

    def _topic(self, topic_id: int) -> Topic:
        topic = self._catalog.topic_by_id(topic_id)
        assert topic is not None, "grants and tickets end before their topic"
        return topic


def _grant_id(ticket_id: str) -> str:
    """Of the grant that a ticket gets: both carry the topic's incarnation and the log index of the acquire."""
    return "g" + ticket_id[1:] if ticket_id.startswith("t") else ""
