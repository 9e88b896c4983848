"""A producer's counters and present load in one snapshot, as Sarama has them in a registry of metrics."""

from dataclasses import dataclass

from ...partition.errors import StockadeError
from .queue.batch import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerMetrics:
    """A snapshot of one producer. The first block counts since its start, the second one is of this moment.

    - ``records_stored``, ``batches_stored``, ``bytes_stored``: acknowledged, also by an earlier attempt (a duplicate).
      Bytes are those of keys, values and headers with an estimate of the overhead, as ``buffered_bytes``.
    - ``records_failed``, ``batches_failed``: settled with an error: committed, absent or unknown.
    - ``attempts``: requests to append. ``repeated_attempts``: those of them that sent a batch again.
    - ``epochs``: producer epochs that were requested after the first one.
    - ``buffered_bytes``: of records without an outcome, and of outcomes that are not read yet; ``send`` waits while
      there are ``buffer_bytes_max`` of them.
    - ``batches_in_flight``, ``batches_waiting``: sent without an outcome, and not sent yet.
    - ``partitions_failing``: their oldest batch is being sent again. ``partitions_halted``: they wait for ``recover``.
    """

    records_stored: int
    batches_stored: int
    bytes_stored: int
    records_failed: int
    batches_failed: int
    attempts: int
    repeated_attempts: int
    epochs: int

    buffered_bytes: int
    buffer_bytes_max: int
    batches_in_flight: int
    batches_waiting: int
    partitions_failing: int
    partitions_halted: int


@dataclass
class Counts:
    """What a producer counts since its start."""

    records_stored: int = 0
    batches_stored: int = 0
    bytes_stored: int = 0
    records_failed: int = 0
    batches_failed: int = 0
    attempts: int = 0
    repeated_attempts: int = 0
    epochs: int = 0

    def attempt(self, batch: Batch) -> None:
        """A batch is sent."""
        self.attempts += 1
        self.repeated_attempts += batch.attempts > 1

    def settled(self, batch: Batch) -> None:
        """A batch has its outcome."""
        if isinstance(batch.outcome, StockadeError):
            self.batches_failed += 1
            self.records_failed += batch.count
        else:
            self.batches_stored += 1
            self.records_stored += batch.count
            self.bytes_stored += batch.size
