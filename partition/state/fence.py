"""The slot of a partition and the tokens that pass it (SEMANTICS 6.2): the server-side half of "one writer at
a time".

The controller decides who owns the slot; what counts here is only what was installed. ``topic_epoch`` never
goes down.
"""

from functools import lru_cache
from typing import Any

from .commands import ClearFence, InstallFence, InstallSeats, SlotState, Token
from .errors import (
    FencingTokenRequired,
    InvalidFencingToken,
    ProducerBusy,
    ProducerFenced,
    StockadeError,
)
from .slots import Seat
from .tenures import Tenure, Tenures

GRANTS_REMEMBERED_MAX = 1024
"""Grants of which a process remembers which topic they say that they are for."""


@lru_cache(GRANTS_REMEMBERED_MAX)
def is_of_other_topic(grant_id: str, topic_id: int) -> bool:
    """Whether a grant id (``g-<topic id>-<number>``) says that it was issued for another topic."""
    if grant_id.startswith(f"g-{topic_id}-"):
        return False
    parts = grant_id.split("-")
    return len(parts) == 3 and parts[0] == "g" and parts[1].isdecimal() and parts[1] != str(topic_id)


class Fence:
    """Slot and fencing epoch of one partition.

    ``slot`` is the exclusive grant in force; without one, ``seats`` are those that share the slot, by grant.
    ``topic_epoch`` and ``grant_index`` are the latest place in the order of grants that was installed or cleared here;
    what is at or before it comes too late.
    """

    def __init__(self) -> None:
        self.topic_epoch: int = 0
        self.grant_index: int = 0
        self.slot: InstallFence | None = None
        self.seats: dict[str, Seat] = {}
        self.tenures: Tenures = Tenures()

    def judge(self, token: Token | None, require_fence: bool) -> StockadeError | None:
        """Refusal of a write with this token, or None. Its ProducerFenced has no outcome yet."""
        if token is None:
            return self._judge_without_token(require_fence)
        if token.epoch > self.topic_epoch:
            return InvalidFencingToken(current_epoch=self.topic_epoch)
        if token.epoch < self.topic_epoch:
            return self._fenced(token, "superseded")
        holder = self.slot or self.seats.get(token.grant_id)
        if holder is None:
            return self._fenced(token, "slot_free")
        if token.grant_id != holder.grant_id or token.session != holder.session:
            return self._fenced(token, "other_session")
        return None

    def holds(self, grant_id: str | None) -> bool:
        """Whether a grant has the slot, or a seat."""
        return grant_id in self.seats or (self.slot is not None and self.slot.grant_id == grant_id)

    def install(self, command: InstallFence) -> SlotState:
        """Seat a grant that is later than all before it. Repeating it changes nothing."""
        if self._is_later(command):
            self._empty(command.now_ms, command.ends)
            self._advance(command)
            self.slot = command
        holds = self.slot is not None and self.slot.grant_id == command.grant_id
        return SlotState(done=holds, topic_epoch=self.topic_epoch)

    def share(self, command: InstallSeats) -> SlotState:
        """Let these share the slot, if that was decided later than all before it. Repeating it changes nothing."""
        if self._is_later(command):
            seats = {seat.grant_id: seat for seat in command.seats}
            self._empty(command.now_ms, command.ends, keep=seats)
            self._advance(command)
            self.seats = seats
        done = (command.epoch, command.grant_index) == (self.topic_epoch, self.grant_index)
        return SlotState(done=done, topic_epoch=self.topic_epoch)

    def clear(self, command: ClearFence) -> SlotState:
        """End a grant and the earlier ones: who leaves late must not evict who came after."""
        if (command.epoch, command.grant_index) >= (self.topic_epoch, self.grant_index):
            self._empty(command.now_ms, command.ends)
            self._advance(command)
        return SlotState(done=True, topic_epoch=self.topic_epoch)

    def present(self) -> list[Tenure]:
        """Who holds the slot now, the earliest first."""
        slot = self.slot
        if slot is not None:
            fields = (slot.grant_id, slot.mode, slot.epoch, slot.producer_name, slot.client_id)
            return [Tenure(*fields, operation=slot.operation, since_ms=slot.now_ms)]
        return [
            Tenure(s.grant_id, "Shared", self.topic_epoch, s.producer_name, s.client_id, "acquire", s.now_ms)
            for s in self.seats.values()
        ]

    def _is_later(self, command: InstallFence | InstallSeats) -> bool:
        return (command.epoch, command.grant_index) > (self.topic_epoch, self.grant_index)

    def _advance(self, command: InstallFence | InstallSeats | ClearFence) -> None:
        self.topic_epoch, self.grant_index = command.epoch, command.grant_index

    def _empty(self, now_ms: int, ends: str, keep: dict[str, Seat] | None = None) -> None:
        """Whoever is here is over, except for ``keep``."""
        for tenure in self.present():
            if keep is None or tenure.grant_id not in keep:
                self.tenures.end(tenure, now_ms, ends)
        self.slot = None
        self.seats = {}

    def _judge_without_token(self, require_fence: bool) -> StockadeError | None:
        if self.slot is None:
            return FencingTokenRequired() if require_fence else None
        return ProducerBusy(
            reason="exclusive_present",
            holder_mode=self.slot.mode,
            current_epoch=self.topic_epoch,
            queue_len=0,
        )

    def _fenced(self, token: Token, reason: str) -> ProducerFenced:
        """Says who holds the slot now, and what became of the caller's own grant, as far as it is remembered."""
        self.tenures.refused(token.grant_id)
        return ProducerFenced(
            current_epoch=self.topic_epoch,
            reason=reason,
            holder=_holder(self.slot),
            ended=_ended(self.tenures.ended.get(token.grant_id)),
        )


def _holder(slot: InstallFence | None) -> dict[str, Any] | None:
    if slot is None:
        return None
    return {
        "grant": slot.grant_id,
        "mode": slot.mode,
        "producer_name": slot.producer_name,
        "client_id": slot.client_id,
        "since_ms": slot.now_ms,
        "operation": slot.operation,
    }


def _ended(tenure: Tenure | None) -> dict[str, Any] | None:
    return None if tenure is None else {"at_ms": tenure.until_ms, "end": tenure.end}
