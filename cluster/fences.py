"""What partitions still have to be told about their slots, and what is known of what they were told.

Every decision about a slot has its place in one order. For each partition there is at most one thing to do: bring its
slot to the last place decided. Why that is enough, whatever is lost, repeated or late on the way, is argued in
ownership.py. Pure state of the controller's machine.
"""

from collections.abc import Callable, Iterable

import msgspec

from ..partition.slots import ClearFence, InstallFence, InstallSeats, Seat
from .catalog import topic_partition
from .commands import GroupId
from .grants import Grant, Grants
from .refs import FenceRef
from .work import SlotWork

DEPARTED_MAX = 16
"""Departures remembered of a partition that was not told of them yet; a repeated release or close waits for these. Of
more, the first is kept, which is the one that the partition knows of, and the last."""


class Place(msgspec.Struct, frozen=True):
    """The last decision about a partition's slot: its place (``epoch``, ``order``), and when it was made.

    ``ends`` says why the one who was there before had to go (None: nobody was), ``departed`` has the grants, with
    their sessions, that have ended since the partition was known to be as decided.
    """

    epoch: int
    order: int
    at_ms: int
    ends: str | None
    departed: list[tuple[str, str]]


class SavedFences(msgspec.Struct, frozen=True):
    """``due``: in the order in which it came to be due."""

    order: int
    due: list[tuple[GroupId, Place]]
    reached: list[tuple[GroupId, int]]


class Fences:
    """The fence protocol's bookkeeping. ``Grant.pending`` is written here only.

    ``due`` has the partitions that are not known to be as decided.
    """

    def __init__(self, grants: Grants) -> None:
        """Reads the live grants."""
        self._grants = grants
        self._order = 0
        self.due: dict[GroupId, Place] = {}
        # Partitions are known to be at this place or a later one, so what is older is refused there for ever.
        self._reached: dict[GroupId, int] = {}

    def next_order(self) -> int:
        """The place of a new decision."""
        self._order += 1
        return self._order

    def seat(self, grant: Grant, group: GroupId, epoch: int, order: int, at_ms: int) -> None:
        """A grant came to a partition."""
        grant.pending.add(topic_partition(group)[1])
        before = self.due.get(group)
        ends, departed = (before.ends, before.departed) if before is not None else (None, [])
        self.due[group] = Place(epoch, order, at_ms, ends, departed)

    def unseat(self, grant: Grant, group: GroupId, epoch: int, order: int, at_ms: int, ends: str) -> None:
        """A grant has left a partition, or was thrown out; it may never have arrived there."""
        before = self.due.get(group)
        departed = [*(before.departed if before is not None else []), (grant.grant_id, grant.session)]
        if before is not None and before.ends is not None:
            ends = before.ends
        if len(departed) > DEPARTED_MAX:
            del departed[1]
        self.due[group] = Place(epoch, order, at_ms, ends, departed)

    def bar(self, group: GroupId, epoch: int, order: int, at_ms: int, ends: str) -> None:
        """Nobody is there, and older epochs shall be refused."""
        before = self.due.get(group)
        if before is not None and before.ends is not None:
            ends = before.ends
        self.due[group] = Place(epoch, order, at_ms, ends, before.departed if before is not None else [])

    def confirmed(self, group: GroupId, order: int) -> None:
        """The partition is at this place, or at a later one."""
        place = self.due.get(group)
        if place is None or place.order < order:
            return
        self._reached[group] = max(order, self._reached.get(group, 0))
        if place.order == order:
            del self.due[group]
        for grant in self._grants.on(group):
            if grant.grant_index <= order:
                grant.pending.discard(topic_partition(group)[1])

    def forget(self, groups: Iterable[GroupId]) -> None:
        """The partitions are no more."""
        for group in groups:
            self.due.pop(group, None)
            self._reached.pop(group, None)

    def is_over(self, fence: FenceRef) -> bool:
        """Whether the partition is known to have come to that place."""
        return self._reached.get(fence.group_id, 0) >= fence.order

    def uncleared(self, departed: Callable[[str, str], bool]) -> list[FenceRef]:
        """Where ended grants may be in the slot still; ``departed`` chooses by grant id and session."""
        return [
            FenceRef(group, place.order)
            for group, place in sorted(self.due.items())
            if any(departed(*gone) for gone in place.departed)
        ]

    def work_on(self, group: GroupId) -> SlotWork | None:
        """What to do on a partition now."""
        place = self.due.get(group)
        return SlotWork(group, place.order, self._wanted(group, place)) if place is not None else None

    def _wanted(self, group: GroupId, place: Place) -> InstallFence | InstallSeats | ClearFence:
        holder = self._grants.holders.get(group)
        if holder is not None:
            return InstallFence(
                grant_id=holder.grant_id,
                epoch=place.epoch,
                session=holder.session,
                producer_name=holder.producer_name,
                mode=holder.mode,
                grant_index=place.order,
                client_id=holder.client_id,
                now_ms=place.at_ms,
                operation=holder.operation,
                ends=place.ends or "superseded",
            )
        ends = place.ends or "released"
        seats = self._grants.seats.get(group)
        if seats is not None:
            return InstallSeats(place.epoch, place.order, [_seat(grant) for grant in seats.values()], place.at_ms, ends)
        last = place.departed[-1][0] if place.departed else ""
        return ClearFence(last, place.epoch, place.order, place.at_ms, ends)

    def save(self) -> SavedFences:
        """Everything that decides future answers."""
        return SavedFences(self._order, list(self.due.items()), sorted(self._reached.items()))

    def load(self, saved: SavedFences) -> None:
        """Inverse of save, into an empty one."""
        self._order = saved.order
        self.due = dict(saved.due)
        self._reached = dict(saved.reached)


def _seat(grant: Grant) -> Seat:
    return Seat(grant.grant_id, grant.session, grant.producer_name, grant.client_id, grant.at_ms)
