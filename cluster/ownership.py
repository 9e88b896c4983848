"""Who owns which partitions: grants made and ended, all partitions of a set in one command or none.

Pure state of the controller's machine. It decides; partitions enforce. This is the argument why they agree.

*What a partition does.* It keeps one place in the order of its grants, (topic_epoch, grant_index), and a
slot. An install moves the place up to its grant and fills the slot; when its grant is not later than the
place it is refused, or, if the slot holds that very grant, changes nothing. A clear moves the place up to
its grant and empties the slot; when its grant is earlier than the place it changes nothing. Hence the place
never goes down; the slot is empty or holds exactly the grant at the place; and once the place has reached a
grant and the slot does not hold it, no install of it, or of an older one, succeeds any more.

*What the controller does.* On one partition it makes grants one after the other, each after the one before
has ended, with rising index and an epoch that never falls: the order of the partition is that of the
controller. What it wants of a partition is one thing: its last grant in the slot, if that lives, or over,
if it has ended. Work is what is not known to be so yet, and a report takes it off only if it names that
last grant.

*So, whatever is lost, repeated or late, and whichever leader of whichever term sent it:*

1. In force means alone. A grant is in force when each of its partitions has committed its install. From
   that entry on the place is at this grant or above, so every older token is refused there. Before it, an
   older owner may still write on that partition, at an epoch that is not higher: epochs along a log never
   fall.
2. Nothing old comes back. A late install of an ended grant does nothing once its clear, or the install or
   clear of a later grant, was committed. If it comes before all of these, the slot is taken wrongly for a
   while; but then the work on the last grant is still to be done, for only its committing takes it off, and
   either kind ends what is in the slot. Meanwhile the slot refuses everybody but the departed owner.
3. Nothing new is undone. A late clear of a grant leaves later grants alone, in the slot or on their way.
4. A grant may end before it arrived anywhere, having evicted an older one and replaced the clear of that
   one. Its own clear ends the older one as well, and shuts the door behind both.
5. A resumed epoch is no special case. Equal epochs are ordered by grant_index, so the resuming grant may
   take the place of its predecessor, cleared or not, and a late install of the predecessor is refused all
   the same.
6. It ends. Work is derived from replicated state and each step may be repeated, so a step that is committed
   and reported goes away, and when no work is left every slot is what the controller says.
"""

from typing import get_args

import msgspec

from ..partition.errors import (
    InvalidFencingToken,
    InvalidRequest,
    NotFound,
    ProducerBusy,
    ProducerFenced,
    UnknownTopicOrPartition,
)
from .catalog import Catalog, Topic, group_id
from .commands import Acquire, GroupId
from .fences import Fences, Grant, SavedFences
from .model import Mode

MODES_AVAILABLE: tuple[Mode, ...] = ("Exclusive", "ExclusiveWithFencing")
"""Shared and WaitForExclusive need seats and a queue, which this version does not have."""
PRODUCER_NAME_CHARACTERS_MAX = 249
ENDED_PER_SESSION_MAX = 16
"""Ended grants of a live session whose tickets are remembered; past it the oldest is forgotten."""


class Ended(msgspec.Struct, frozen=True):
    """What is remembered of a grant that ended before its session: why, and one of its partitions."""

    reason: str
    group_id: GroupId


class SavedOwnership(msgspec.Struct, frozen=True):
    """Grants and what is remembered of ended ones, the oldest first."""

    grants: list[Grant]
    ended: dict[str, list[tuple[str, Ended]]]
    fences: SavedFences


class Ownership:
    """Grants, by id, by partition and by session."""

    def __init__(self, catalog: Catalog) -> None:
        """Writes the epochs of the catalog's topics, nothing else of it."""
        self._catalog = catalog
        self.fences = Fences()
        self.grants: dict[str, Grant] = {}
        self.holders: dict[GroupId, Grant] = {}
        self._by_session: dict[str, dict[str, Grant]] = {}
        self._ended: dict[str, dict[str, Ended]] = {}  # session -> ticket -> why

    def acquire(self, index: int, command: Acquire) -> Grant:
        """The grant of the whole set.

        The caller has called check_shape, and knows that the session is alive.
        """
        topic = self._catalog.topic(command.topic)
        if topic is None:
            raise UnknownTopicOrPartition(topic=command.topic, partition=None)
        partitions = _resolve(topic, command.partitions)
        self._catalog.find(command.topic, command.topic_id)
        held = self._held_already(topic, partitions, command)
        # The repetition of an acquire that fenced somebody would otherwise be told that its own grant
        # superseded it.
        if held is None or held.resume_epoch != command.resume_epoch:
            _check_resume(topic, partitions, command.resume_epoch)
        if held is not None:
            return held
        victims = self._others(topic, partitions, command)
        for victim in victims:
            self._end(victim, "evicted")
        return self._grant(index, topic, partitions, command, seat_was_free=not victims)

    def release(self, session: str, grant_id: str) -> None:
        """End a grant; nothing to do when there is no such grant."""
        grant = self.grants.get(grant_id)
        if grant is None:
            return
        if grant.session != session:
            raise ProducerFenced(reason="not_holder", current_epoch=grant.epoch)
        self._end(grant, "slot_free")

    def end_session(self, session: str) -> None:
        """The session is no more: neither are its grants."""
        for grant in list(self._by_session.get(session, {}).values()):
            self._end(grant, "slot_free")
        self._ended.pop(session, None)

    def end_topic(self, topic: Topic) -> None:
        """The topic is no more: neither are the grants on it, and there is nothing left to clear."""
        for group in topic.groups():
            if group in self.holders:
                self._end(self.holders[group], "evicted")
        self.fences.forget(topic.groups())

    def ticket(self, session: str, ticket_id: str) -> Grant:
        """The grant of a ticket. NotFound, or ProducerFenced when it has ended or is another session's."""
        grant = self.grant_by_ticket(ticket_id)
        if grant is not None:
            if grant.session != session:
                raise ProducerFenced(reason="not_holder", current_epoch=grant.epoch)
            return grant
        ended = self._ended.get(session, {}).get(ticket_id)
        located = self._catalog.locate(ended.group_id) if ended is not None else None
        if ended is None or located is None:
            raise NotFound(what="ticket")
        topic, partition = located
        raise ProducerFenced(reason=ended.reason, current_epoch=topic.epochs[partition])

    def grant_by_ticket(self, ticket_id: str) -> Grant | None:
        """The live grant of a ticket."""
        return self.grants.get("g" + ticket_id[1:]) if ticket_id.startswith("t") else None

    def save(self) -> SavedOwnership:
        """Everything that decides future answers."""
        ended = {session: list(tickets.items()) for session, tickets in self._ended.items()}
        return SavedOwnership(list(self.grants.values()), ended, self.fences.save())

    def load(self, saved: SavedOwnership) -> None:
        """Inverse of save, into an empty one."""
        for grant in saved.grants:
            self._add(grant)
        self._ended = {session: dict(tickets) for session, tickets in saved.ended.items()}
        self.fences.load(saved.fences, self.grants)

    def _held_already(self, topic: Topic, partitions: list[int], command: Acquire) -> Grant | None:
        held = self.holders.get(group_id(topic.topic_id, partitions[0]))
        mine = held is not None and (held.session, held.producer_name) == (command.session, command.producer_name)
        return held if held is not None and mine and held.partitions == partitions else None

    def _others(self, topic: Topic, partitions: list[int], command: Acquire) -> list[Grant]:
        """The grants in the way, in the order of their first partition here, if the mode may evict them."""
        in_the_way: dict[str, tuple[int, Grant]] = {}
        for partition in partitions:
            holder = self.holders.get(group_id(topic.topic_id, partition))
            if holder is not None:
                in_the_way.setdefault(holder.grant_id, (partition, holder))
        if any(holder.session == command.session for _, holder in in_the_way.values()):
            raise InvalidRequest("partitions: this session holds some of them under another grant; release it first")
        if in_the_way and command.mode == "Exclusive":
            partition, holder = next(iter(in_the_way.values()))
            raise ProducerBusy(
                reason="exclusive_present",
                holder_mode=holder.mode,
                current_epoch=topic.epochs[partition],
                queue_len=0,
            )
        return [holder for _, holder in in_the_way.values()]

    def _grant(
        self, index: int, topic: Topic, partitions: list[int], command: Acquire, *, seat_was_free: bool
    ) -> Grant:
        """Make the grant. An epoch is kept only if nobody was in between; to evict somebody is to be in
        between.
        """
        epoch = 1 + max(topic.epochs[partition] for partition in partitions)
        if command.resume_epoch is not None and seat_was_free:
            epoch = command.resume_epoch
        grant = Grant(
            grant_id=f"g-{topic.topic_id}-{index}",
            ticket_id=f"t-{topic.topic_id}-{index}",
            grant_index=index,
            session=command.session,
            topic=topic.name,
            topic_id=topic.topic_id,
            partitions=partitions,
            all_partitions=command.partitions is None,
            mode=command.mode,
            producer_name=command.producer_name,
            epoch=epoch,
            resume_epoch=command.resume_epoch,
            pending=set(),
        )
        for partition in partitions:
            assert epoch >= topic.epochs[partition]
            topic.epochs[partition] = epoch
        self._add(grant)
        self.fences.seat(grant)
        return grant

    def _add(self, grant: Grant) -> None:
        self.grants[grant.grant_id] = grant
        self._by_session.setdefault(grant.session, {})[grant.grant_id] = grant
        self.holders.update(dict.fromkeys(grant.groups(), grant))

    def _end(self, grant: Grant, reason: str) -> None:
        del self.grants[grant.grant_id]
        of_session = self._by_session[grant.session]
        del of_session[grant.grant_id]
        if not of_session:
            del self._by_session[grant.session]
        for group in grant.groups():
            del self.holders[group]
        self.fences.unseat(grant)
        ended = self._ended.setdefault(grant.session, {})
        ended[grant.ticket_id] = Ended(reason, grant.groups()[0])
        if len(ended) > ENDED_PER_SESSION_MAX:
            del ended[next(iter(ended))]


def check_shape(command: Acquire) -> None:
    """Raises InvalidRequest. An unknown mode is an error, never another mode."""
    if command.mode not in get_args(Mode):
        raise InvalidRequest(f"mode: not one of {', '.join(get_args(Mode))}")
    if not 1 <= len(command.producer_name) <= PRODUCER_NAME_CHARACTERS_MAX:
        raise InvalidRequest(f"producer_name: not 1 to {PRODUCER_NAME_CHARACTERS_MAX} characters")
    partitions = command.partitions
    if partitions is not None:
        if not partitions:
            raise InvalidRequest("partitions: empty")
        if len(set(partitions)) != len(partitions):
            raise InvalidRequest("partitions: one is named twice")
        if min(partitions) < 0:
            raise InvalidRequest("partitions: one is negative")
    if command.mode not in MODES_AVAILABLE:
        raise InvalidRequest(f"mode: {command.mode} is not available in this version")


def _resolve(topic: Topic, partitions: list[int] | None) -> list[int]:
    """The set, ascending; None is all."""
    if partitions is None:
        return list(range(topic.partitions))
    for partition in sorted(partitions):
        if partition >= topic.partitions:
            raise UnknownTopicOrPartition(topic=topic.name, partition=partition)
    return sorted(partitions)


def _check_resume(topic: Topic, partitions: list[int], resume_epoch: int | None) -> None:
    """A lower epoch than the one of any partition was superseded; a higher one was never issued."""
    if resume_epoch is None:
        return
    epochs = [topic.epochs[partition] for partition in partitions]
    if resume_epoch < max(epochs):
        raise ProducerFenced(reason="superseded", current_epoch=max(epochs))
    if resume_epoch > min(epochs):
        raise InvalidFencingToken(current_epoch=min(epochs))
