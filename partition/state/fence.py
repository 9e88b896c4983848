"""The slot of a partition and the fencing tokens that pass it (SEMANTICS 6.2): one writer at a time.

The controller decides which grants hold the slot; a write is judged by the grants that were installed here, and by
nothing else. ``topic_epoch`` never goes down.

The tenures of former holders, and why they ended, are kept for people who ask why their write was refused. They are
replicated state too: every replica computes every refusal, so all of them count alike.
"""

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any, cast

import msgspec

from ..api.topics import Mode, SlotHolder
from ..commands import ClearFence, InstallFence, InstallSeats, SharedHolder, SlotState, Token, belongs_to_another
from ..errors import (
    FencingTokenRequired,
    InvalidFencingToken,
    PermissionDenied,
    ProducerBusy,
    ProducerFenced,
    StockadeError,
)

TENURES_MAX = 100
"""Ended tenures remembered by a partition; the oldest is forgotten first."""


class Tenure(msgspec.Struct, frozen=True, array_like=True):
    """The time in which a grant held the slot, alone or shared. ``refused`` counts the writes that came under its token
    after its end.

    ``until_ms`` and ``end`` are None while the grant holds the slot. ``wall_ms`` is its beginning on the wall clock of
    the controller's leader; 0: not known. The grant was in force here for the offsets ``from_offset <= offset <
    until_offset``; None: not known, or not ended.
    """

    grant_id: str
    mode: str
    epoch: int
    producer_name: str
    client_id: str | None
    operation: str
    since_ms: int
    until_ms: int | None = None
    end: str | None = None
    refused: int = 0
    wall_ms: int = 0
    from_offset: int | None = None
    until_offset: int | None = None


class Tenures:
    """Ended tenures by grant, the oldest first; at most TENURES_MAX."""

    def __init__(self) -> None:
        self.ended: dict[str, Tenure] = {}

    def end(self, tenure: Tenure, until_ms: int, end: str, log_end: int | None) -> None:
        """Remember a tenure that ended at ``until_ms``, and at this end of the log, for the reason ``end``."""
        self.ended.pop(tenure.grant_id, None)
        ended = msgspec.structs.replace(tenure, until_ms=until_ms, end=end, until_offset=log_end)
        self.ended[tenure.grant_id] = ended
        if len(self.ended) > TENURES_MAX:
            del self.ended[next(iter(self.ended))]

    def refused(self, grant_id: str) -> None:
        """Count a refused write under this grant, if the end of its tenure is remembered."""
        tenure = self.ended.get(grant_id)
        if tenure is not None:
            self.ended[grant_id] = msgspec.structs.replace(tenure, refused=tenure.refused + 1)


GRANTS_REMEMBERED_MAX = 1024
"""Grant ids whose topic a process remembers."""


@lru_cache(GRANTS_REMEMBERED_MAX)
def is_of_other_topic(grant_id: str, topic_id: int) -> bool:
    """Whether a grant id (``g-<topic id>-<number>``) says that it was issued for another topic."""
    if grant_id.startswith(f"g-{topic_id}-"):
        return False
    parts = grant_id.split("-")
    return len(parts) == 3 and parts[0] == "g" and parts[1].isdecimal() and parts[1] != str(topic_id)


class Fence:
    """Slot and fencing epoch of one partition.

    ``slot`` is the exclusive grant in force; without one, ``sharing`` are the holders that share the slot, by grant.
    (``topic_epoch``, ``grant_index``) is the latest decision that was installed or cleared here; commands at or before
    it come too late. ``placed_at`` is where the log ended when it came, ``placed_after`` the grant_index before it
    (None: not known); ``taken_at`` is where the log ended when each present holder came, by grant.
    """

    def __init__(self) -> None:
        self.topic_epoch: int = 0
        self.grant_index: int = 0
        self.slot: InstallFence | None = None
        self.sharing: dict[str, SharedHolder] = {}
        self.tenures: Tenures = Tenures()
        self.placed_at: int | None = None
        self.placed_after: int | None = None
        self.taken_at: dict[str, int] = {}

    def judge(self, token: Token | None, require_fence: bool, principal: str = "") -> StockadeError | None:
        """Refusal of a write with this token by this principal, or None. Its ProducerFenced has no outcome yet. Changes
        nothing: a verdict is also asked for before a command is proposed, on one replica alone.

        Where a token is required, its absence is the reason, be the slot held or free: the same bytes are refused after
        the holder has left, so the retriable ProducerBusy would be a promise that cannot be kept.
        """
        if token is None:
            return FencingTokenRequired() if require_fence else self._busy()
        slot = self.slot
        if (  # as nearly always
            slot is not None
            and token.epoch == self.topic_epoch
            and token.grant_id == slot.grant_id
            and token.session == slot.session
            and slot.principal in ("", principal)
        ):
            return None
        if token.epoch > self.topic_epoch:
            return InvalidFencingToken(current_epoch=self.topic_epoch)
        holder = slot or self.sharing.get(token.grant_id)
        is_holder = holder is not None and (token.grant_id, token.session) == (holder.grant_id, holder.session)
        if token.epoch < self.topic_epoch:
            return self._fenced(token, "wrong_epoch" if is_holder else "superseded")
        if is_holder and holder is not None:
            return _judge_owner(holder, principal)
        return self._fenced(token, "slot_free" if holder is None else "other_session")

    @property
    def holder(self) -> SlotHolder | None:
        """The exclusive holder, as it is told to others; None: there is none. How long its session lasts is known up to
        its ttl.
        """
        slot = self.slot
        if slot is None:
            return None
        return SlotHolder(
            slot.grant_id,
            cast(Mode, slot.mode),
            slot.producer_name,
            slot.client_id,
            slot.now_ms,
            slot.wall_ms or None,
            slot.ttl_ms or None,
            slot.operation,
        )

    @property
    def mode(self) -> str | None:
        """How the slot is held; None: it is free."""
        return self.slot.mode if self.slot is not None else "Shared" if self.sharing else None

    def holds(self, grant_id: str | None) -> bool:
        """Whether a grant holds the slot, alone or shared."""
        return grant_id in self.sharing or (self.slot is not None and self.slot.grant_id == grant_id)

    def install(self, command: InstallFence, log_end: int | None = None) -> SlotState:
        """Give the slot to a grant that is later than all before it. Repeating it changes nothing."""
        if self._is_later(command):
            self._empty(command.now_ms, command.ends, log_end)
            self._advance(command, log_end)
            self.slot = command
            self._take([command.grant_id], log_end)
        holds = self.slot is not None and self.slot.grant_id == command.grant_id
        return self._state(done=holds)

    def share(self, command: InstallSeats, log_end: int | None = None) -> SlotState:
        """Let these holders share the slot, if that was decided later than all before it. Repeating changes nothing."""
        if self._is_later(command):
            sharing = {holder.grant_id: holder for holder in command.seats}
            kept = self.sharing.keys() & sharing
            self._empty(command.now_ms, command.ends, log_end, keep=sharing)
            self._advance(command, log_end)
            self.sharing = sharing
            self._take(sharing, log_end, kept)
        return self._state(done=(command.epoch, command.grant_index) == (self.topic_epoch, self.grant_index))

    def clear(self, command: ClearFence, log_end: int | None = None) -> SlotState:
        """End a grant and the earlier ones; a release that arrives late does not evict a later holder."""
        if (command.epoch, command.grant_index) >= (self.topic_epoch, self.grant_index):
            self._empty(command.now_ms, command.ends, log_end)
            self._advance(command, log_end)
        return self._state(done=True)

    def present(self) -> list[Tenure]:
        """Tenures of the present holders, the earliest first."""
        slot = self.slot
        if slot is not None:
            fields = (slot.grant_id, slot.mode, slot.epoch, slot.producer_name, slot.client_id)
            return [self._tenure(*fields, operation=slot.operation, since_ms=slot.now_ms, wall_ms=slot.wall_ms)]
        epoch = self.topic_epoch
        return [
            self._tenure(
                s.grant_id,
                "Shared",
                epoch,
                s.producer_name,
                s.client_id,
                operation="acquire",
                since_ms=s.now_ms,
                wall_ms=s.wall_ms,
            )
            for s in self.sharing.values()
        ]

    def tenure(self, grant_id: str) -> Tenure | None:
        """The tenure of a grant that holds the slot, or held it and is remembered."""
        present = next((each for each in self.present() if each.grant_id == grant_id), None)
        return present or self.tenures.ended.get(grant_id)

    def _tenure(self, grant_id: str, *fields: Any, **times: Any) -> Tenure:
        began = Tenure(grant_id, *fields, **times)
        return msgspec.structs.replace(began, from_offset=self.taken_at.get(grant_id))

    def _state(self, *, done: bool) -> SlotState:
        place = (self.placed_at, self.placed_after) if done else ()
        return SlotState(done, self.topic_epoch, *place)

    def _is_later(self, command: InstallFence | InstallSeats) -> bool:
        return (command.epoch, command.grant_index) > (self.topic_epoch, self.grant_index)

    def _advance(self, command: InstallFence | InstallSeats | ClearFence, log_end: int | None) -> None:
        if (command.epoch, command.grant_index) > (self.topic_epoch, self.grant_index):
            self.placed_at, self.placed_after = log_end, self.grant_index
        self.topic_epoch, self.grant_index = command.epoch, command.grant_index

    def _take(self, grants: Iterable[str], log_end: int | None, kept: Collection[str] = ()) -> None:
        """``grants`` hold the slot from now on, at ``log_end``; those that held it before (``kept``) keep the offset
        where they began, which is not known of a holder from before an upgrade.
        """
        began = ((grant, self.taken_at.get(grant) if grant in kept else log_end) for grant in grants)
        self.taken_at = {grant: offset for grant, offset in began if offset is not None}

    def _empty(self, now_ms: int, ends: str, log_end: int | None, keep: dict[str, SharedHolder] | None = None) -> None:
        """End the tenures of the present holders, except for those in ``keep``."""
        for tenure in self.present():
            if keep is None or tenure.grant_id not in keep:
                self.tenures.end(tenure, now_ms, ends, log_end)
                self.taken_at.pop(tenure.grant_id, None)
        self.slot = None
        self.sharing = {}

    def _busy(self) -> ProducerBusy | None:
        if self.slot is None:
            return None
        return ProducerBusy(
            reason="exclusive_present",
            holder_mode=self.slot.mode,
            current_epoch=self.topic_epoch,
            queue_len=0,
            holder=self._holder_fields(),
        )

    def _holder_fields(self) -> dict[str, Any] | None:
        holder = self.holder
        return msgspec.to_builtins(holder) if holder is not None else None

    def _fenced(self, token: Token, reason: str) -> ProducerFenced:
        """The refusal names the holder of the slot, and when and why the caller's own tenure ended, if remembered."""
        return ProducerFenced(
            current_epoch=self.topic_epoch,
            reason=reason,
            holder=self._holder_fields(),
            ended=_ended(self.tenures.ended.get(token.grant_id)),
        )


def _judge_owner(holder: InstallFence | SharedHolder, principal: str) -> PermissionDenied | None:
    if belongs_to_another(holder.principal, principal):
        return PermissionDenied("the fencing token is another principal's")
    return None


def _ended(tenure: Tenure | None) -> dict[str, Any] | None:
    return None if tenure is None else {"at_ms": tenure.until_ms, "end": tenure.end}
