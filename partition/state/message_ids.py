"""Message ids of batches, remembered for ``dedupe_window_ms`` so that a repetition is recognised (SEMANTICS 5.8, A10).

The window is measured on the lease clock, in the commands, so every replica forgets the same ids.
"""

from collections import OrderedDict
from math import inf

import msgspec

from ..commands import Offset

MESSAGE_IDS_MAX = 100_000
"""Ids remembered by a partition. Further batches with an id are refused: forgetting an id early would let a repetition
be stored twice."""


class StoredMessageId(msgspec.Struct, frozen=True, array_like=True):
    """A stored batch: its offsets, its moment of receipt, and until when its id is remembered."""

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int
    deadline_ms: int


class MessageIds:
    """Batches by id, in the order in which they were stored."""

    def __init__(self) -> None:
        self.batches: OrderedDict[str, StoredMessageId] = OrderedDict()

    def find(self, message_id: str, now_ms: int) -> StoredMessageId | None:
        """The batch with this id, if it is remembered."""
        named = self.batches.get(message_id)
        return named if named is not None and named.deadline_ms > now_ms else None

    @property
    def due_ms(self) -> float:
        """The deadline of the oldest; infinity when there is none."""
        return next(iter(self.batches.values())).deadline_ms if self.batches else inf

    def forget_due(self, now_ms: int) -> None:
        """Forget ids whose deadline has come, from the oldest on."""
        while self.due_ms <= now_ms:
            self.batches.popitem(last=False)

    def wait_ms(self, now_ms: int) -> int | None:
        """How long it takes at most until there is room for one more id; None: there is room."""
        if len(self.batches) < MESSAGE_IDS_MAX:
            return None
        return next(iter(self.batches.values())).deadline_ms - now_ms

    def store(self, message_id: str, named: StoredMessageId) -> None:
        """Remember a batch that was stored."""
        self.batches.pop(message_id, None)
        self.batches[message_id] = named
