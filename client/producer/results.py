"""Receipts and failures as streams, for applications that read results in one place instead of awaiting each delivery.

No result is kept before the application subscribes. From then on a batch's bytes count as buffered until its result was
read: an application that stops reading is stopped by ``send``, and memory stays bounded.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from ...partition.errors import StockadeError
from ..errors import with_fields
from .delivery import Buffer
from .queue.batch import Batch, Receipt, Record

FAILURES_KEPT_MAX = 1_000
"""How many failed batches a producer remembers for ``flush``, without their records. Of those beyond, it remembers the
first of each further partition, and counts the others.
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """``count`` records of one batch that failed; ``error.fields["outcome"]`` says: committed, absent or unknown.

    ``records``: what to send again, with the application's metadata; empty in ProducerErrors, which may have many.
    """

    topic: str
    partition: int
    count: int
    error: StockadeError
    records: tuple[Record, ...] = field(default=(), repr=False)


class ProducerErrors(
    StockadeError, code="PRODUCER_ERRORS", http_status=0, title="Records have failed", no_side_effects=False
):
    """``close`` has ended, and batches have failed that neither a Delivery nor ``errors`` has shown (Sarama's
    ProducerErrors). The cause is the first failure's error.

    ``failures``: each failed batch in the order of failing, the first FAILURES_KEPT_MAX of them, and the first of each
    further partition. Fields: batches and records, the numbers of all of them.
    """

    def __init__(self, failures: Sequence[Failure], batches: int, records: int) -> None:
        first = failures[0].error
        detail = f"batches that failed: {batches}, with records: {records}; the first: {first}"
        super().__init__(detail, batches=batches, records=records)
        self.failures: tuple[Failure, ...] = tuple(failures)


T = TypeVar("T")


class ResultStream(Generic[T]):
    """Results of one kind, receipts or failures, in the order in which batches settle."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self.is_read: bool = False
        """Whether the application reads this stream."""
        self._is_over = False
        self._ready: deque[tuple[T, Batch]] = deque()
        self._given: tuple[T, Batch] | None = None
        self._changed = asyncio.Event()

    def add(self, outcome: T, batch: Batch) -> None:
        """Take the result of a settled batch, whose room in the buffer is freed now; with a subscriber, when the result
        is read.
        """
        if not self.is_read:
            self._buffer.give_back(batch.size)
            return
        self._ready.append((outcome, batch))
        self._changed.set()

    def close(self) -> None:
        """End the stream after the results that it has."""
        self._is_over = True
        self._changed.set()

    def subscribe(self) -> "ResultStream[T]":
        """Keep results from now on until they are read."""
        self.is_read = True
        return self

    def __aiter__(self) -> "ResultStream[T]":
        return self

    async def __anext__(self) -> T:
        """The next result. A wait that is cancelled takes none, and the stream goes on."""
        while not self._ready:
            if self._is_over:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        outcome, batch = self._given = self._ready.popleft()
        self._buffer.give_back(batch.size)
        batch.is_reported = True
        return outcome

    def put_back(self, outcome: T) -> None:
        """Let the next iteration give ``outcome`` again, which did not reach the application: it was interrupted. Does
        nothing if the stream has given another result since.
        """
        if self._given is not None and self._given[0] is outcome:
            (_, batch), self._given = self._given, None
            self._buffer.give_back(-batch.size)  # until it is read
            batch.is_reported = False
            self._ready.appendleft((outcome, batch))
            self._changed.set()


Watcher = Callable[[Receipt | Failure, float], None]
"""Takes a result, and the seconds from the batch's first record to it."""


class Results:
    """The outcomes of a producer's batches, for streams, watchers and ``flush``."""

    def __init__(self, buffer: Buffer) -> None:
        self.successes: ResultStream[Receipt] = ResultStream(buffer)
        self.errors: ResultStream[Failure] = ResultStream(buffer)
        self.watchers: list[Watcher] = []
        self._failed: list[tuple[str, int, Batch]] = []
        self._uncounted = (0, 0)  # batches, records

    def settled(self, topic: str, partition: int, batch: Batch) -> None:
        """Report a batch that has its outcome."""
        outcome: Receipt | Failure
        if isinstance(batch.outcome, StockadeError):
            self._keep(topic, partition, batch)
            is_wanted = self.errors.is_read or bool(self.watchers)
            records = tuple(batch.records()) if is_wanted else ()
            outcome = Failure(topic, partition, batch.count, batch.outcome, records)
            self.errors.add(outcome, batch)
        else:
            assert batch.outcome is not None
            outcome = batch.outcome
            if batch.metadata is not None:
                outcome = replace(outcome, metadata=tuple(batch.metadata))
            self.successes.add(outcome, batch)
        for watcher in self.watchers:
            try:
                watcher(outcome, time.monotonic() - batch.created_s)
            except (Exception, asyncio.CancelledError):  # a future that the watcher reads was cancelled, not this task
                _log.exception("a watcher of outcomes failed")
        batch.drop_records()

    def _keep(self, topic: str, partition: int, batch: Batch) -> None:
        """Remember a failed batch for ``flush``, which raises the first failure, or the first of some partitions: of
        later failures only the number matters.
        """
        if len(self._failed) >= FAILURES_KEPT_MAX:
            self._failed = [failure for failure in self._failed if not failure[2].is_reported]
        has_room = len(self._failed) < FAILURES_KEPT_MAX
        if has_room or all(failure[:2] != (topic, partition) for failure in self._failed):
            self._failed.append((topic, partition, batch))
        else:
            if self._uncounted == (0, 0):
                _log.warning(
                    "%d batches have failed since the last flush, and the application has looked at none of them: read"
                    " producer.errors(), or await the deliveries; of further failures flush reports the number alone",
                    FAILURES_KEPT_MAX,
                )
            batches, records = self._uncounted
            self._uncounted = (batches + 1, records + batch.count)

    def raise_unseen(self, waited: Sequence[Batch] = (), places: Set[tuple[str, int]] | None = None) -> None:
        """Raise the first failure since the last call that no Delivery has raised and no stream has returned; without
        one, the failure of a batch in ``waited``, which another task's call has raised meanwhile. ``places``: the
        topics and partitions whose failures count; None: all.

        A note of the exception has the number of the other failures.
        """
        unseen, others, _ = self._take_unseen(places)
        raised = (batch.outcome for batch in waited if not batch.is_reported)
        error = unseen[0].error if unseen else next((each for each in raised if isinstance(each, StockadeError)), None)
        if error is None:
            return
        error = with_fields(error)
        others += max(0, len(unseen) - 1)
        if others:
            error.add_note(
                f"and {others} other batches failed since the last flush: producer.errors() has each of them"
            )
        raise error

    def raise_all_unseen(self) -> None:
        """Raise ProducerErrors with each failure that no Delivery raised and no stream gave, if there is one."""
        unseen, others, other_records = self._take_unseen()
        if unseen:
            records = sum(failure.count for failure in unseen) + other_records
            raise ProducerErrors(unseen, len(unseen) + others, records) from unseen[0].error

    def _take_unseen(self, places: Set[tuple[str, int]] | None = None) -> tuple[list[Failure], int, int]:
        """Take out the remembered failures that the application has not seen; with them, how many batches, and records,
        were only counted.
        """
        failed, self._failed = self._failed, []
        others = (0, 0)
        if places is None:
            others, self._uncounted = self._uncounted, others
        else:
            self._failed = [failure for failure in failed if failure[:2] not in places]
            failed = [failure for failure in failed if failure[:2] in places]
        unseen = []
        for topic, partition, batch in failed:
            if not batch.is_reported:
                assert isinstance(batch.outcome, StockadeError)
                unseen.append(Failure(topic, partition, batch.count, batch.outcome))
        return unseen, *others

    def forget(self, topic: str, partition: int) -> None:
        """Forget the earlier failures of this partition: ``flush`` raises none of them."""
        self._failed = [failure for failure in self._failed if failure[:2] != (topic, partition)]

    def close(self) -> None:
        """End both streams."""
        self.successes.close()
        self.errors.close()
