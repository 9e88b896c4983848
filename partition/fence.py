"""The slot of a partition and the tokens that pass it (SEMANTICS 6.2): the server-side half of "one writer at
a time".

The controller decides who owns the slot; what counts here is only what was installed. ``topic_epoch`` never
goes down.
"""

from .commands import ClearFence, InstallFence, SlotState, Token
from .errors import (
    FencingTokenRequired,
    InvalidFencingToken,
    ProducerBusy,
    ProducerFenced,
    StockadeError,
)


def is_of_other_topic(grant_id: str, topic_id: int) -> bool:
    """Whether a grant id (``g-<topic id>-<number>``) says that it was issued for another topic."""
    parts = grant_id.split("-")
    return len(parts) == 3 and parts[0] == "g" and parts[1].isdecimal() and parts[1] != str(topic_id)


class Fence:
    """Slot and fencing epoch of one partition.

    ``slot`` is the install in force. ``topic_epoch`` and ``grant_index`` are the latest place in the order of
    grants that was installed or cleared here; installs at or before it come too late.
    """

    def __init__(self) -> None:
        self.topic_epoch = 0
        self.grant_index = 0
        self.slot: InstallFence | None = None

    def judge(self, token: Token | None, require_fence: bool) -> StockadeError | None:
        """Refusal of an append with this token, or None. Its ProducerFenced has no outcome yet."""
        if token is None:
            return self._judge_without_token(require_fence)
        if token.epoch > self.topic_epoch:
            return InvalidFencingToken(current_epoch=self.topic_epoch)
        if token.epoch < self.topic_epoch:
            return self._fenced("superseded")
        if self.slot is None:
            return self._fenced("slot_free")
        if (token.grant_id, token.session) != (self.slot.grant_id, self.slot.session):
            return self._fenced("other_session")
        return None

    def install(self, command: InstallFence) -> SlotState:
        """Seat a grant that is later than all before it. Repeating it changes nothing."""
        if (command.epoch, command.grant_index) > (self.topic_epoch, self.grant_index):
            self._advance(command)
            self.slot = command
        holds = self.slot is not None and self.slot.grant_id == command.grant_id
        return SlotState(done=holds, topic_epoch=self.topic_epoch)

    def clear(self, command: ClearFence) -> SlotState:
        """End a grant and the earlier ones: who leaves late must not evict who came after."""
        if (command.epoch, command.grant_index) >= (self.topic_epoch, self.grant_index):
            self._advance(command)
            self.slot = None
        return SlotState(done=True, topic_epoch=self.topic_epoch)

    def _advance(self, command: InstallFence | ClearFence) -> None:
        self.topic_epoch, self.grant_index = command.epoch, command.grant_index

    def _judge_without_token(self, require_fence: bool) -> StockadeError | None:
        if self.slot is None:
            return FencingTokenRequired() if require_fence else None
        return ProducerBusy(
            reason="exclusive_present",
            holder_mode=self.slot.mode,
            current_epoch=self.topic_epoch,
            queue_len=0,
        )

    def _fenced(self, reason: str) -> ProducerFenced:
        return ProducerFenced(current_epoch=self.topic_epoch, reason=reason)
