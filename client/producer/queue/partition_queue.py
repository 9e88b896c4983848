"""One partition's queue of batches: batching, numbering, order under retry. Decides; the sender acts.

A partition's queue has two parts: the window of at most ``inflight_batches_max`` (five) batches in flight, and behind
it the batches that were never sent. ``poll`` names the next action: `Send` a batch, `Settle` batches that have their
outcome, or `Wait`. The window slides at its front only, so batches settle in order, and the partition, which remembers
five batches of each producer, always remembers the whole window (SEMANTICS 9.1; KIP-98).

- A batch gets its sequence number when it enters the window, and never changes after that (9.2).
- When one batch of the window fails in a way that a repetition may heal, the queue is muted: no new batch is sent, and
  failed ones are sent again one at a time, the oldest first, each after the one before it was answered (9.4). So no
  batch overtakes another.
- "Out of order" for a batch that was not the oldest when it was sent says that an older one is missing there: send it
  again later (9.3). For the oldest it is a real gap, and final.
- A final refusal, or the end of ``delivery_timeout_ms``, halts the queue: it sends nothing new, takes no record, and
  the failed batch and all behind it fail in order (9.8, 9.9). Attempts in flight still get their answers, so that each
  batch fails with an outcome of its own: committed, absent or unknown. After ``reopen`` it takes records again.
- With ``on_error="continue"`` a refusal that concerns one batch fails that batch alone. Its sequence numbers are a gap
  that no batch may follow, so the queue needs a new epoch for each failed batch; batches that fail before it is in
  force share it (9.5). The queue also needs one when the partition has forgotten this producer (9.7). Under the new
  epoch, a batch that may have been stored under the old one is sent once more unchanged, only to learn its outcome; the
  others get new numbers.

- A batch with ``if_log_end`` or ``message_id`` has the window for itself: the partition may refuse it (OffsetMismatch),
  or answer it as a duplicate of another producer's batch, without using up its sequence numbers. Where no attempt can
  have been stored, or can still be, the next batch gets these numbers, and nothing halts: the refusal of a condition is
  an answer, not a fault. Otherwise it is not known whether they are used up, and the queue needs a new epoch (for a
  refusal: the rules above). A repetition never turns a stored batch into a failure, since the partition recognises its
  sequence number before it judges the condition (SEMANTICS 5.8).

Queues of different partitions are independent.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ....partition.api.producers import ProducerPair
from ....partition.commands import SEQUENCE_MODULUS, Token
from ....partition.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRecord,
    InvalidRequest,
    LeaderNotAvailable,
    MessageTooLarge,
    OffsetMismatch,
    OutOfOrderSequence,
    ProducerBusy,
    ProducerFenced,
    RequestTimedOut,
    StockadeError,
    UnknownProducerId,
)
from ...config import ClientConfig
from ...errors import ClientClosed, with_fields
from ...retry import backoff_s
from .batch import Batch, Receipt, Record, State


@dataclass(frozen=True, slots=True)
class Send:
    """Send this batch now; then call ``written``, and ``stored`` or ``refused``."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Settle:
    """These batches have their outcome: report it to the application."""

    settled: "list[Settled]"


@dataclass(frozen=True, slots=True)
class Wait:
    """There is no action before ``until_s`` (None: before another event)."""

    until_s: float | None


Action = Send | Settle | Wait
Settled = tuple[Batch, Receipt | StockadeError]


_OF_ONE_BATCH = (
    CorruptMessage,
    InvalidRecord,
    InvalidRequest,
    MessageTooLarge,
    OffsetMismatch,
    OutOfOrderSequence,
    RequestTimedOut,
)


def is_forgotten(error: StockadeError) -> bool:
    """Whether the partition no longer knows this producer in this epoch; a new epoch lets the queue go on (SEMANTICS
    9.7).

    InvalidProducerIdMapping: the cluster has forgotten the producer's name, idle for days, and gives it a fresh id when
    it is asked with the old pair; if another instance has the name by then, it answers ProducerFenced, and the queue
    halts. A batch cannot become a duplicate under the fresh id:

    - The name is forgotten only when no partition knows its id or may still come to know it, and an id is never given
      out again. So no attempt with the old id can be stored after this refusal, however late it arrives.
    - The fresh id is asked for when no batch of the old one is in flight on any partition (`is_quiet`).
    - A batch all of whose attempts were refused without effect is absent, and gets a new number. A batch with an
      attempt of unknown outcome may have been stored before the partition forgot the id (a client that stood still for
      days). No refusal certifies that it is absent, so it never gets a new number: it is sent once more unchanged,
      fails as unknown, and halts the partition, as an expired batch does.
    """
    if isinstance(error, UnknownProducerId):
        return error.fields.get("log_start") is not None
    return isinstance(error, InvalidProducerEpoch | InvalidProducerIdMapping)


def may_heal(error: StockadeError) -> bool:
    """Whether the same batch may be stored when it is sent again."""
    return error.retriable or isinstance(error, UnknownProducerId)


def is_of_one_batch(error: StockadeError) -> bool:
    """Whether the refusal concerns this batch only, and not the partition, the fence or the producer."""
    return isinstance(error, _OF_ONE_BATCH) or error.retriable or is_forgotten(error)


def is_certified_absent(error: StockadeError) -> bool:
    """Whether the refusal certifies that no attempt of this batch was stored."""
    return _outcome(error).get("state") == "absent"


def is_missed(batch: Batch, error: StockadeError) -> bool:
    """Whether the refusal shows that no attempt of this batch was stored or can be: the partition judges its sequence
    number before its condition, and the log, which only grows, is past the condition.
    """
    if not isinstance(error, OffsetMismatch) or batch.conditions.if_log_end is None:
        return False
    log_end: int = error.fields.get("log_end", -1)
    return log_end > batch.conditions.if_log_end


def committed_offset(error: StockadeError) -> int | None:
    """The first offset of an earlier attempt of the batch, if the refusal certifies that it was stored."""
    outcome = _outcome(error)
    return outcome.get("base_offset") if outcome.get("state") == "committed" else None


def _outcome(error: StockadeError) -> dict[str, Any]:
    return error.fields.get("outcome") or {}


def expiry_error(batch: Batch, delivery_timeout_ms: int) -> StockadeError:
    """The error of a batch whose delivery time has ended."""
    waited = f"not answered within {delivery_timeout_ms} ms"
    if batch.maybe_stored:
        return RequestTimedOut(f"{waited}; the outcome is unknown")
    return batch.last_error or LeaderNotAvailable(f"not sent: {waited}")


def halted(error: StockadeError) -> StockadeError:
    """The error of records that are sent after ``error`` has halted the partition, whose cause may have ended long ago.
    A new exception each time (`with_fields` says why).
    """
    if isinstance(error, ProducerFenced | ClientClosed):
        return with_fields(error)
    return with_fields(error, f"the partition has halted, `recover` takes records again; why it has: {error.detail}")


def verdict(batch: Batch, error: StockadeError) -> StockadeError:
    """A copy of ``error`` for this batch, with the outcome certificate of this batch."""
    answered = batch.last_error.fields.get("outcome") if batch.last_error is not None else None
    if not batch.maybe_stored and (answered is None or answered["state"] == "unknown"):
        answered = {"state": "absent", "base_offset": None, "last_offset": None}  # no attempt can have stored it
    return with_fields(error, outcome=answered or {"state": "unknown", "base_offset": None, "last_offset": None})


class UnsentBatches:
    """The batches that were never sent, oldest first; only the last one still takes records.

    A batch of more than one record has at most ``batch_bytes_max`` bytes, unless a single call gave it. With
    ``on_error="halt_partition"`` several calls' batches are joined, since a failed batch fails those behind it anyway;
    with "continue" each call's batch is sent, and may fail, alone.
    """

    def __init__(self, config: ClientConfig, batch_bytes_max: int) -> None:
        self._linger_s = config.linger_ms / 1000
        self._flush_records = config.flush_records or config.batch_records_max
        self._config = config
        self.limit(batch_bytes_max)
        self._batch_records_max = config.batch_records_max
        self._joins = config.on_error == "halt_partition"
        self._batches: deque[Batch] = deque()

    def limit(self, batch_bytes_max: int) -> None:
        """Let batches have at most ``batch_bytes_max`` bytes from now on."""
        self._batch_bytes_max = batch_bytes_max
        self._flush_bytes = min(self._config.flush_bytes or batch_bytes_max, batch_bytes_max)

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
        """When the oldest batch stops waiting for more records; 0.0: it has stopped. There must be a batch."""
        oldest = self._batches[0]
        is_waiting = not oldest.sealed and not oldest.is_due
        return oldest.created_s + self._linger_s if is_waiting else 0.0

    def add(self, record: Record, size: int, now_s: float) -> tuple[Batch, int]:
        """Queue a record; returns its batch, and its index in that batch."""
        batch = self._batches[-1] if self._batches else None
        if batch is None or batch.sealed or batch.size + size > self._batch_bytes_max:
            batch = Batch(now_s)
            self._append(batch)
        index = batch.add(record, size)
        if index + 1 >= self._flush_records or batch.size >= self._flush_bytes:
            batch.is_due, batch.sealed = True, self._is_full(batch)
        return batch, index

    def add_batch(self, batch: Batch) -> tuple[Batch, int]:
        """Queue records that stay together and wait for no linger time; returns the batch that has them now, and the
        index of the first of them in it.
        """
        found, index = self.open_batch, 0
        if found is None or not self._holds(found, batch):
            found = batch
            self._append(batch)
        else:
            index = found.extend(batch)
        stays_alone = not self._joins or found.message is not None or found.conditions.is_unstamped
        found.is_due, found.sealed = True, stays_alone or self._is_full(found)
        return found, index

    def seal(self) -> None:
        """End the wait of the last batch for more records."""
        if self._batches:
            self._batches[-1].sealed = True

    def take(self) -> Batch:
        """Remove the oldest batch, which takes no more records then."""
        batch = self._batches.popleft()
        batch.sealed = True
        return batch

    def give_back(self, batch: Batch) -> None:
        """Put a taken batch back as the oldest."""
        self._batches.appendleft(batch)

    def clear(self) -> None:
        """Drop everything."""
        self._batches.clear()

    def _append(self, batch: Batch) -> None:
        self.seal()
        self._batches.append(batch)

    def _holds(self, batch: Batch, more: Batch) -> bool:
        size, count = batch.size + more.size, batch.count + more.count
        joins = self._joins and more.message is None and not more.conditions.is_unstamped
        return joins and size <= self._batch_bytes_max and count <= self._batch_records_max

    def _is_full(self, batch: Batch) -> bool:
        return batch.count >= self._batch_records_max or batch.size >= self._batch_bytes_max


class PartitionQueue:
    """One partition's unsent batches and window. Times are seconds of one monotonic clock, given by the caller.

    ``encode`` makes the Arrow message of a sealed batch, or raises a StockadeError: such a batch fails alone, before it
    gets a sequence number. ``identity`` (producer id and epoch), ``token`` (fencing token) and ``fence_epoch`` (of the
    owner in the topic's writer_group) go into the batches that are numbered from now on; none is numbered while the
    hold count is above 0. ``error`` is what halted the queue.
    ``needs_epoch``: no batch can follow the failed one before ``renew``.
    """

    def __init__(self, config: ClientConfig, encode: Callable[[Batch], None], batch_bytes_max: int) -> None:
        self._config = config
        self._encode = encode
        self._unsent = UnsentBatches(config, batch_bytes_max)
        self.limit: Callable[[int], None] = self._unsent.limit
        self._window: deque[Batch] = deque()
        self._writing: Batch | None = None
        self._next_seq = 0
        self._resends_unknown = False
        self._is_stopped = False
        self._is_renewing = False
        self._holds = 0
        self.identity: ProducerPair | None = None
        self.token: Token | None = None
        self.fence_epoch: int | None = None
        self.error: StockadeError | None = None
        self.needs_epoch: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether every batch has its outcome."""
        return not self._unsent and not self._window

    @property
    def oldest(self) -> Batch | None:
        """The oldest batch that was sent and has no outcome yet."""
        return self._window[0] if self._window else None

    @property
    def window(self) -> list[Batch]:
        """Batches that were sent and have no outcome yet, oldest first."""
        return list(self._window)

    @property
    def unsettled(self) -> list[Batch]:
        """Every batch without an outcome, oldest first."""
        return [*self._window, *self._unsent]

    @property
    def open_batch(self) -> Batch | None:
        """The batch that still takes records."""
        return self._unsent.open_batch

    @property
    def is_failing(self) -> bool:
        """Whether the oldest batch is being sent again: new batches wait behind it."""
        return self.oldest is not None and self.oldest.is_retrying

    @property
    def is_quiet(self) -> bool:
        """Whether a new epoch can be requested: no batch waits any more for an answer under the old one."""
        if self.needs_epoch:
            return not any(batch.state is State.IN_FLIGHT for batch in self._window)
        return not self._window

    def hold(self, *, on: bool) -> None:
        """Raise the hold count by one, or lower it: while it is above 0, no batch gets a sequence number."""
        self._holds += 1 if on else -1

    def renew(self, identity: ProducerPair) -> None:
        """Continue under a newer epoch, or another producer id: sequence numbers start again at 0."""
        self.identity, self._next_seq = identity, 0
        self._is_renewing, self.needs_epoch = self.needs_epoch, False
        self._renumber()

    def reopen(self) -> None:
        """Take records again after a halt, under a newer epoch: ``renew`` came before."""
        assert self.is_idle, "reopened before everything had its outcome"
        self.error, self._resends_unknown = None, False

    def add(self, record: Record, size: int, now_s: float) -> tuple[Batch, int]:
        """Queue a record; returns its batch, and its index in that batch. Raises the error that halted the queue."""
        if self.error is not None:
            raise halted(self.error)
        return self._unsent.add(record, size, now_s)

    def add_batch(self, batch: Batch) -> tuple[Batch, int]:
        """Queue records that stay together; returns the batch that has them now, perhaps with records of other calls,
        and the index of the first of them. Raises the error that halted the queue.
        """
        if self.error is not None:
            raise halted(self.error)
        return self._unsent.add_batch(batch)

    def seal(self) -> None:
        """End the wait of queued records for more records."""
        self._unsent.seal()

    def poll(self, now_s: float, *, may_send: bool = True) -> Action:
        """The next action. Call it again after the action, and at the time that a Wait names.

        ``may_send`` False: there is no room to send now; call it again when there is.
        """
        expired = self._expire(now_s)
        if expired:
            self._renumber()
            return Settle(expired)
        if self.needs_epoch:
            return Wait(self._deadline_s())
        if self.error is not None or self._is_renewing or any(batch.is_retrying for batch in self._window):
            return self._poll_muted(now_s, may_send=may_send)
        is_full = len(self._window) >= self._config.inflight_batches_max
        if not self._unsent or self._writing or self._holds or is_full or self._is_reserved():
            return Wait(self._deadline_s())
        if now_s < self._unsent.may_leave_s:
            return Wait(self._unsent.may_leave_s)
        return self._send_first(self._unsent.take()) if may_send else Wait(self._deadline_s())

    def written(self, batch: Batch) -> None:
        """The attempt's body was handed to the connection, so the next batch cannot overtake it in this client."""
        if self._writing is batch:
            self._writing = None

    def stored(self, batch: Batch, receipt: Receipt) -> list[Settled]:
        """An attempt was answered: this one or an earlier one stored the batch."""
        self.written(batch)
        if batch.outcome is not None:
            return []
        if receipt.duplicate and batch.conditions.message_id is not None and self.error is None:
            self._answered_by_id(batch)
        batch.state, batch.receipt = State.STORED, receipt
        settled = self._slide()
        self._renumber()
        return settled

    def _answered_by_id(self, batch: Batch) -> None:
        """The batch is a duplicate: of its own earlier attempt, which used up its sequence numbers, or of another batch
        with this message id.
        """
        if batch.maybe_stored:
            self.needs_epoch = not self._is_renewing
        else:
            self._give_numbers_back(batch)

    def refused(
        self, batch: Batch, error: StockadeError, now_s: float, committed: Receipt | None = None
    ) -> list[Settled]:
        """An attempt was refused, or its outcome is unknown (``error.no_side_effects`` is False).

        ``committed``: the refusal certifies that an earlier attempt was stored, and where.
        """
        self.written(batch)
        if batch.outcome is not None or batch.state is not State.IN_FLIGHT:
            return []
        self.needs_epoch = self.needs_epoch or (is_forgotten(error) and not self._is_renewing)
        if committed is not None:
            batch.state, batch.receipt = State.STORED, committed
        else:
            self._fail_attempt(batch, error, now_s)
        settled = self._slide()
        self._renumber()
        return settled

    def _fail_attempt(self, batch: Batch, error: StockadeError, now_s: float) -> None:
        is_out_of_order = isinstance(error, OutOfOrderSequence)
        batch.state, batch.last_error = State.FAILED, error
        batch.not_before_s = now_s if is_out_of_order else now_s + backoff_s(self._config, batch.attempts, error)
        if is_forgotten(error):
            batch.maybe_stored = batch.maybe_stored and not is_certified_absent(error)
            batch.is_final = self._is_renewing and batch.maybe_stored
        else:
            batch.maybe_stored = (batch.maybe_stored or not error.no_side_effects) and not is_missed(batch, error)
            is_given_up = isinstance(error, ProducerBusy) and self._config.on_busy == "fail"
            batch.is_final = not may_heal(error) or is_given_up or (is_out_of_order and batch.sent_as_oldest)

    def halt(self, error: StockadeError, *, resend_unknown: bool = False) -> list[Settled]:
        """Take no more records, send no new batch, and fail with ``error`` every batch that is not stored.

        ``resend_unknown``: the partition refuses all of this producer's writes by now, so batches of unknown outcome
        are sent again to learn it from the refusal.
        """
        self.error, self.needs_epoch = self.error or error, False
        self._resends_unknown = (self._resends_unknown or resend_unknown) and not self._is_stopped
        return self._slide()

    def stop(self) -> None:
        """Send nothing again after a halt, this one or the next: a batch of unknown outcome fails as unknown."""
        self._is_stopped = True

    def abandon(self, error: StockadeError) -> list[Settled]:
        """Fail every batch now, after a bug in this class, and take no more records. Answers to attempts in flight are
        ignored, so the outcomes of their batches are unknown.
        """
        self.error, self.needs_epoch = self.error or error, False
        batches = [batch for batch in self.unsettled if batch.outcome is None]
        for batch in batches:
            batch.maybe_stored = batch.maybe_stored or batch.attempts > 0
        self._window.clear()
        self._unsent.clear()
        self._writing = None
        return [(batch, verdict(batch, error)) for batch in batches]

    def _poll_muted(self, now_s: float, *, may_send: bool) -> Action:
        oldest = self.oldest
        deadline_s = self._deadline_s()
        if oldest is None or deadline_s is None or oldest.state is not State.FAILED:
            return Wait(deadline_s)
        if now_s < oldest.not_before_s:
            return Wait(min(oldest.not_before_s, deadline_s))
        return self._attempt(oldest) if may_send else Wait(deadline_s)

    def _send_first(self, batch: Batch) -> Action:
        try:
            if batch.message is None:
                self._encode(batch)
        except MessageTooLarge as error:
            if self._config.on_error == "continue":
                return Settle([(batch, verdict(batch, error))])
            # The topic's max_batch_bytes was lowered after the records were queued. The batches behind this one need
            # it.
            self._unsent.give_back(batch)
            return Settle(self.halt(error))
        except StockadeError as error:
            return Settle([(batch, verdict(batch, error))])
        except Exception:
            self._unsent.give_back(batch)  # the caller fails it with the others
            raise
        batch.first_seq, batch.identity = self._next_seq, self.identity
        batch.token = self.token
        if self.fence_epoch is not None:
            batch.conditions = batch.conditions._replace(fence_epoch=self.fence_epoch)
        self._next_seq = (self._next_seq + batch.count) % SEQUENCE_MODULUS
        self._window.append(batch)
        return self._attempt(batch)

    def _attempt(self, batch: Batch) -> Send:
        batch.state = State.IN_FLIGHT
        batch.attempts += 1
        batch.sent_as_oldest = batch is self._window[0]
        self._writing = batch
        return Send(batch)

    def _slide(self) -> list[Settled]:
        """Settle the batches at the front of the window whose outcomes are final."""
        settled: list[Settled] = []
        while self._window:
            oldest = self._window[0]
            if oldest.receipt is not None:
                settled.append((oldest, oldest.receipt))
            elif self._is_open(oldest):
                return settled
            else:
                settled.append((oldest, verdict(oldest, self._failure_of(oldest))))
            self._window.popleft()
            self.written(oldest)  # if its attempt has not begun, it never will
        if self.error is not None:
            settled += [(batch, verdict(batch, self.error)) for batch in self._unsent]
            self._unsent.clear()
        return settled

    def _is_reserved(self) -> bool:
        """Whether a batch in the window, or the next one, must have the window for itself."""
        following = next(iter(self._unsent))
        return bool(self._window) and (self._window[0].conditions.is_unstamped or following.conditions.is_unstamped)

    def _give_numbers_back(self, batch: Batch) -> None:
        """Reuse the batch's sequence numbers for the next one: no attempt of this batch used them up, or still can."""
        if batch.identity == self.identity:
            self._next_seq = batch.first_seq

    def _failure_of(self, oldest: Batch) -> StockadeError:
        """The error of the oldest batch. Decides, too, whether it halts the queue or demands a new epoch."""
        error = self.error or oldest.last_error
        assert error is not None
        if isinstance(error, OffsetMismatch) and self.error is None and not oldest.maybe_stored:
            self._give_numbers_back(oldest)
        elif self.error is None and self._config.on_error == "continue" and is_of_one_batch(error):
            self.needs_epoch = not self._is_renewing
        else:
            self.error = error
        return error

    def _renumber(self) -> None:
        """Under a new epoch: when the oldest batch is absent, so are all batches behind it, and they get new sequence
        numbers.
        """
        oldest = self.oldest
        is_open = oldest is not None and (oldest.state is State.IN_FLIGHT or oldest.maybe_stored)
        if not self._is_renewing or is_open or self.error is not None:
            return
        self._is_renewing = False
        while self._window:
            batch = self._window.pop()
            batch.begin_again()
            self._unsent.give_back(batch)

    def _is_open(self, batch: Batch) -> bool:
        """Whether an attempt is in flight, or another one follows."""
        if batch.state is State.IN_FLIGHT or batch.is_final:
            return batch.state is State.IN_FLIGHT
        return self.error is None or (self._resends_unknown and batch.maybe_stored)

    def _expire(self, now_s: float) -> list[Settled]:
        deadline_s = self._deadline_s()
        if deadline_s is None or now_s < deadline_s:
            return []
        oldest = next(iter(self._window or self._unsent))
        oldest.maybe_stored = oldest.maybe_stored or (oldest.attempts > 0 and oldest.state is State.IN_FLIGHT)
        oldest.state, oldest.is_final = State.FAILED, True
        proof = next((batch.receipt for batch in self._window if batch.receipt is not None), None)
        if proof is not None:
            # Sequence numbers are contiguous: a later batch is stored, so this one is, too, and only its offset stays
            # unknown.
            oldest.receipt = Receipt(proof.topic, proof.partition, None, oldest.count, True, None)
            return self._slide()
        oldest.last_error = expiry_error(oldest, self._config.delivery_timeout_ms)
        if self._window:
            return self._slide()
        if self._config.on_error == "halt_partition":
            return self.halt(oldest.last_error)
        return [(self._unsent.take(), verdict(oldest, oldest.last_error))]  # it has no number: no gap

    def _deadline_s(self) -> float | None:
        oldest = next(iter(self._window or self._unsent), None)
        return None if oldest is None else oldest.created_s + self._config.delivery_timeout_ms / 1000
