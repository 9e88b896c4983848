"""What was never sent to a partition: batches in order, of which the last may still take records. No clock, no IO."""

from collections import deque
from collections.abc import Iterator

from .batches import Batch, Record
from .config import ClientConfig


class Queue:
    """A batch of more than one record is never longer than ``batch_bytes_max``, unless it was queued as it is.

    Whether calls that each gave a whole batch share one depends on ``on_error``: with ``continue`` a batch fails alone,
    so it travels alone; otherwise everything behind it would fail as well.
    """

    def __init__(self, config: ClientConfig, batch_bytes_max: int) -> None:
        self._linger_s = config.linger_ms / 1000
        self._batch_bytes_max = batch_bytes_max
        self._batch_records_max = config.batch_records_max
        self._joins = config.on_error == "halt_partition"
        self._batches: deque[Batch] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    @property
    def open_batch(self) -> Batch | None:
        """The batch that still takes records."""
        return self._batches[-1] if self._batches and not self._batches[-1].sealed else None

    @property
    def may_leave_s(self) -> float:
        """When the oldest batch need not wait for more records any longer. There must be one."""
        oldest = self._batches[0]
        is_waiting = not oldest.sealed and not oldest.is_due
        return oldest.created_s + self._linger_s if is_waiting else 0.0

    def add(self, record: Record, size: int, now_s: float) -> tuple[Batch, int]:
        """Put a record behind the others: its batch and its position in it."""
        batch = self._batches[-1] if self._batches else None
        if batch is None or batch.sealed or batch.size + size > self._batch_bytes_max:
            batch = Batch(now_s)
            self._append(batch)
        index = batch.add(record, size)
        if index + 1 >= self._batch_records_max or batch.size >= self._batch_bytes_max:
            batch.sealed = True
        return batch, index

    def add_batch(self, batch: Batch) -> tuple[Batch, int]:
        """Put records that stay together and wait for no more behind the others: their batch and the position of the
        first in it.
        """
        found, index = self.open_batch, 0
        if found is None or not self._holds(found, batch):
            found = batch
            self._append(batch)
        else:
            index = found.extend(batch)
        found.is_due, found.sealed = True, not self._joins or found.message is not None or self._is_full(found)
        return found, index

    def seal(self) -> None:
        """Let what is there leave without waiting for more records."""
        if self._batches:
            self._batches[-1].sealed = True

    def take(self) -> Batch:
        """The oldest batch, which takes no more records, out of the queue."""
        batch = self._batches.popleft()
        batch.sealed = True
        return batch

    def give_back(self, batch: Batch) -> None:
        """It was taken, and is the oldest again."""
        self._batches.appendleft(batch)

    def clear(self) -> None:
        """Drop everything."""
        self._batches.clear()

    def _append(self, batch: Batch) -> None:
        self.seal()
        self._batches.append(batch)

    def _holds(self, batch: Batch, more: Batch) -> bool:
        size, count = batch.size + more.size, batch.count + more.count
        joins = self._joins and more.message is None
        return joins and size <= self._batch_bytes_max and count <= self._batch_records_max

    def _is_full(self, batch: Batch) -> bool:
        return batch.count >= self._batch_records_max or batch.size >= self._batch_bytes_max
