"""Names of batches, remembered for a while so that a repeated batch is recognised (SEMANTICS 5.8, A10).

"A while" is measured on the lease clock, which goes on only as commands say: replicas forget alike.
"""

from collections import OrderedDict

import msgspec

from .commands import Offset

MESSAGE_IDS_MAX = 100_000
"""Ids remembered by a partition. Beyond it batches with an id are refused: to forget one early would store it twice."""


class Named(msgspec.Struct, frozen=True, array_like=True):
    """A stored batch: its offsets, its moment of receipt, and until when its name is remembered."""

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int
    deadline_ms: int


class MessageIds:
    """Batches by name, in the order in which they were stored."""

    def __init__(self) -> None:
        self.batches: OrderedDict[str, Named] = OrderedDict()

    def find(self, message_id: str, now_ms: int) -> Named | None:
        """The batch of this name, if it is remembered."""
        named = self.batches.get(message_id)
        return named if named is not None and named.deadline_ms > now_ms else None

    def has_due(self, now_ms: int) -> bool:
        """Whether the oldest is over."""
        return bool(self.batches) and next(iter(self.batches.values())).deadline_ms <= now_ms

    def forget_due(self, now_ms: int) -> None:
        """Drop what is over, from the oldest on."""
        while self.has_due(now_ms):
            self.batches.popitem(last=False)

    def wait_ms(self, now_ms: int) -> int | None:
        """None when there is room for one more; otherwise until when there is none, at most."""
        if len(self.batches) < MESSAGE_IDS_MAX:
            return None
        return next(iter(self.batches.values())).deadline_ms - now_ms

    def store(self, message_id: str, named: Named) -> None:
        """Remember a batch that was stored."""
        self.batches.pop(message_id, None)
        self.batches[message_id] = named
