"""Message ids of batches, remembered for ``dedupe_window_ms`` so that a repetition is recognised (SEMANTICS 5.8, A10).

The window is measured on the lease clock, in the commands, so every replica forgets the same ids.
"""

from collections import OrderedDict
from math import inf

import msgspec

from ..commands import Offset

MESSAGE_IDS_MAX = 100_000
"""Most ids that a partition remembers. Further batches with an id are refused: if an id were forgotten early, a
repetition would be stored twice."""
RETRY_AFTER_MS = 10_000
"""Time within which the leader makes the partition forget all ids that are due (cluster/replica/maintenance.py)."""


class StoredMessageId(msgspec.Struct, frozen=True, array_like=True):
    """A batch that was stored under an id: its offsets, its moment of receipt, and the time until which its id is
    remembered, on the lease clock.
    """

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int
    deadline_ms: int


class MessageIds:
    """The remembered batches by message id, in the order in which they were stored."""

    def __init__(self) -> None:
        self.batches: OrderedDict[str, StoredMessageId] = OrderedDict()

    def find(self, message_id: str, now_ms: int) -> StoredMessageId | None:
        """The batch with this id; None if it is not remembered, or its deadline has come."""
        named = self.batches.get(message_id)
        return named if named is not None and named.deadline_ms > now_ms else None

    @property
    def due_ms(self) -> float:
        """The deadline of the oldest id; infinity when there is none."""
        return next(iter(self.batches.values())).deadline_ms if self.batches else inf

    def forget_due(self, now_ms: int) -> None:
        """Forget ids, oldest first, up to the first one whose deadline has not come."""
        while self.due_ms <= now_ms:
            self.batches.popitem(last=False)

    def hides_due(self, now_ms: int) -> bool:
        """Whether there is no room for one more id, and ``forget_all_due`` would make room. The oldest ids are not
        always the first that are due: a shortened ``dedupe_window_ms`` applies only to ids stored after it.
        """
        is_full = len(self.batches) >= MESSAGE_IDS_MAX
        return is_full and any(named.deadline_ms <= now_ms for named in self.batches.values())

    def forget_all_due(self, now_ms: int) -> None:
        """Forget every id whose deadline has come."""
        for message_id in [each for each, named in self.batches.items() if named.deadline_ms <= now_ms]:
            del self.batches[message_id]

    def wait_ms(self, now_ms: int) -> int | None:
        """The time in ms after which there may be room for one more id; None: there is room now."""
        if len(self.batches) < MESSAGE_IDS_MAX:
            return None
        named = self.batches.values()
        first_ms = min(next(iter(named)).deadline_ms, next(reversed(named)).deadline_ms)
        return first_ms - now_ms if first_ms > now_ms else RETRY_AFTER_MS

    def store(self, message_id: str, named: StoredMessageId) -> None:
        """Remember a batch that was stored."""
        self.batches.pop(message_id, None)
        self.batches[message_id] = named
