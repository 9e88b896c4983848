"""The slot of a partition and the fencing tokens that pass it (SEMANTICS 6.2): one writer at a time.

The controller decides which grants hold the slot; the partition judges a write only by the grants that were installed
here. ``topic_epoch`` never goes down.

The tenures of former holders, and why they ended, are kept for people who ask why their write was refused. They are
replicated state, too: every replica computes every refusal, so all replicas count the same.
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
"""Most ended tenures that a partition remembers; the oldest is forgotten first."""


class Tenure(msgspec.Struct, frozen=True, array_like=True):
    """The time in which a grant held the slot, alone or shared. ``refused`` counts the writes under its token that were
    refused after its end.

    ``since_ms`` and ``until_ms`` are on the lease clock; ``wall_ms`` is the beginning on the wall clock of the
    controller's leader (0: not known). ``until_ms`` and ``end``, the reason, are None while the grant holds the slot.
    The grant was in force here for the offsets ``from_offset <= offset < until_offset``; None: not known, or not ended.
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
        """Remember a tenure that ended at ``until_ms`` for the reason ``end``, when the log ended at ``log_end``."""
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
"""Most grant ids for which a process caches whether they were issued for another topic."""


@lru_cache(GRANTS_REMEMBERED_MAX)
def is_of_other_topic(grant_id: str, topic_id: int) -> bool:
    """Whether a grant id (``g-<topic id>-<number>``) was issued for another topic."""
    if grant_id.startswith(f"g-{topic_id}-"):
        return False
    parts = grant_id.split("-")
    return len(parts) == 3 and parts[0] == "g" and parts[1].isdecimal() and parts[1] != str(topic_id)


class Fence:
    """Slot and fencing epoch of one partition.

    ``slot`` is the install of the exclusive grant in force; while it is None, ``sharing`` has the holders that share
    the slot, by grant. (``topic_epoch``, ``grant_index``) is the latest decision that was installed or cleared here; an
    install at or before it comes too late. When that decision came, the log ended at ``placed_at``, and
    ``placed_after`` was the grant_index in force (None: not known). ``taken_at`` has, by grant, the end of the log when
    each present holder came.
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
        """The refusal of a write with this token by this principal; None accepts it. A ProducerFenced from here has no
        outcome yet. Changes nothing, since a leader also asks for the verdict before it proposes a command.

        Where a token is required, a write without one is FencingTokenRequired, whether the slot is held or free.
        ProducerBusy, which is retriable, would be wrong: the same bytes are refused after the holder has left, too.
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
        """The exclusive holder, in the form that refusals and clients get; None if there is none. ``expires_in_ms`` is
        the session's time to live, an upper bound of the time that it has left.
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
        """The access mode in which the slot is held; None if it is free."""
        return self.slot.mode if self.slot is not None else "Shared" if self.sharing else None

    def holds(self, grant_id: str | None) -> bool:
        """Whether a grant holds the slot, alone or shared."""
        return grant_id in self.sharing or (self.slot is not None and self.slot.grant_id == grant_id)

    def install(self, command: InstallFence, log_end: int | None = None) -> SlotState:
        """Give the slot to a grant if it is later than every decision that came here. Repeating it changes nothing."""
        if self._is_later(command):
            self._empty(command.now_ms, command.ends, log_end)
            self._advance(command, log_end)
            self.slot = command
            self._take([command.grant_id], log_end)
        holds = self.slot is not None and self.slot.grant_id == command.grant_id
        return self._state(done=holds)

    def share(self, command: InstallSeats, log_end: int | None = None) -> SlotState:
        """Let these holders share the slot, if that is later than every decision that came here. Repeating it changes
        nothing.
        """
        if self._is_later(command):
            sharing = {holder.grant_id: holder for holder in command.seats}
            kept = self.sharing.keys() & sharing
            self._empty(command.now_ms, command.ends, log_end, keep=sharing)
            self._advance(command, log_end)
            self.sharing = sharing
            self._take(sharing, log_end, kept)
        return self._state(done=(command.epoch, command.grant_index) == (self.topic_epoch, self.grant_index))

    def clear(self, command: ClearFence, log_end: int | None = None) -> SlotState:
        """End a grant and all earlier ones; a release that arrives late does not evict a later holder."""
        if (command.epoch, command.grant_index) >= (self.topic_epoch, self.grant_index):
            self._empty(command.now_ms, command.ends, log_end)
            self._advance(command, log_end)
        return self._state(done=True)

    def present(self) -> list[Tenure]:
        """The tenures of the present holders, the earliest first."""
        slot = self.slot
        if slot is not None:
            return [self._tenure(slot, slot.mode, slot.epoch, slot.operation)]
        return [self._tenure(holder, "Shared", self.topic_epoch, "acquire") for holder in self.sharing.values()]

    def tenure(self, grant_id: str) -> Tenure | None:
        """The tenure of a grant that holds the slot, or held it and is remembered."""
        present = next((each for each in self.present() if each.grant_id == grant_id), None)
        return present or self.tenures.ended.get(grant_id)

    def _tenure(self, holder: InstallFence | SharedHolder, mode: str, epoch: int, operation: str) -> Tenure:
        return Tenure(
            holder.grant_id,
            mode,
            epoch,
            holder.producer_name,
            holder.client_id,
            operation,
            holder.now_ms,
            wall_ms=holder.wall_ms,
            from_offset=self.taken_at.get(holder.grant_id),
        )

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
        """Note that ``grants`` hold the slot from now on, from offset ``log_end``. Grants that held it before
        (``kept``) keep their first offset, which is not known for a holder from before an upgrade.
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
        """A refusal that names the exclusive holder, and when and why the caller's own tenure ended, if remembered."""
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
