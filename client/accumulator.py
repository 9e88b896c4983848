"""The rules of one partition's traffic: batching, numbering, order under retry. Decides, never does.

How to think about it: a lane is a queue of batches that were never sent, then a window of at most five that were.
The window slides only at its front, so that batches settle in order and the server always remembers all of it
(SEMANTICS 9.1).

- Every batch is numbered when it enters the window and never changes after (9.2).
- As soon as one batch of the window fails in a way that may heal, the lane is muted: nothing new leaves, and what
  failed is sent again one at a time, the oldest first, each after the one before it was answered (9.4). So nothing is
  overtaken.
- "Out of order" for a batch that was not the oldest when it was sent only says that an older one is missing: wait,
  resend (9.3). For the oldest it is a real gap, and final.
- A final refusal, or the end of the delivery time, halts the lane: nothing leaves any more, no further record is
  taken, and that batch and everything behind it fail in order (9.8, 9.9). Attempts under way still get their answers,
  so that each batch fails with an outcome of its own: committed, absent or unknown.

Other lanes never notice.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..partition.commands import SEQUENCE_MODULUS, Token
from ..partition.errors import LeaderNotAvailable, OutOfOrderSequence, RequestTimedOut, StockadeError
from .batches import Batch, Receipt, Record, State
from .config import ClientConfig
from .errors import with_fields
from .retry import backoff_s


@dataclass(frozen=True, slots=True)
class Send:
    """Send this batch now; report with ``written``, then ``stored`` or ``refused``."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Settle:
    """These batches have their outcome; hand it to whoever waits."""

    settled: "list[Settled]"


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before ``until_s`` (None: before something else happens)."""

    until_s: float | None


Action = Send | Settle | Wait
Settled = tuple[Batch, Receipt | StockadeError]


class Lane:
    """One partition's queue and window. All times are seconds of one monotonic clock, given by the caller.

    ``encode`` makes a sealed batch ready to be sent and raises a StockadeError when that cannot be: such a batch
    fails alone, before it took a sequence number. A batch of more than one record is never longer than
    ``batch_bytes_max``. ``token`` is the fence that the next batches to be numbered carry; while ``is_held``, none is
    numbered. ``error`` is what halted the lane.
    """

    def __init__(self, config: ClientConfig, encode: Callable[[Batch], None], batch_bytes_max: int) -> None:
        self._config = config
        self._batch_bytes_max = batch_bytes_max
        self._encode = encode
        self._queue: deque[Batch] = deque()
        self._window: deque[Batch] = deque()
        self._writing: Batch | None = None
        self._next_seq = 0
        self._asks = False
        self.token: Token | None = None
        self.is_held = False
        self.error: StockadeError | None = None

    @property
    def is_idle(self) -> bool:
        """Nothing waits for an answer."""
        return not self._queue and not self._window

    @property
    def window(self) -> list[Batch]:
        """Batches that were sent and have no outcome, oldest first."""
        return list(self._window)

    @property
    def unsettled(self) -> list[Batch]:
        """Every batch without an outcome, oldest first."""
        return [*self._window, *self._queue]

    @property
    def open_batch(self) -> Batch | None:
        """The batch that still takes records."""
        return self._queue[-1] if self._queue and not self._queue[-1].sealed else None

    def add(self, record: Record, size: int, now_s: float) -> tuple[Batch, int]:
        """Queue a record: its batch and its position in it. Raises the error that halted the lane."""
        batch = self.open_batch
        if batch is not None and batch.size + size > self._batch_bytes_max:
            batch.sealed = True
            batch = None
        if batch is None:
            batch = Batch(now_s)
            self.add_batch(batch)
        index = batch.add(record, size)
        batch.sealed = batch.count >= self._config.batch_records_max or batch.size >= self._batch_bytes_max
        return batch, index

    def add_batch(self, batch: Batch) -> None:
        """Queue a batch as it is and seal what was open. Raises the error that halted the lane."""
        if self.error is not None:
            raise self.error
        self.seal()
        self._queue.append(batch)

    def seal(self) -> None:
        """Let what is queued leave without waiting for more records."""
        if self._queue:
            self._queue[-1].sealed = True

    def poll(self, now_s: float) -> Action:
        """What to do next. Ask again after doing it, and at the time that a Wait names."""
        expired = self._expire(now_s)
        if expired:
            return Settle(expired)
        if self.error is not None or any(_is_troubled(batch) for batch in self._window):
            return self._poll_muted(now_s)
        is_full = len(self._window) >= self._config.inflight_batches_max
        if not self._queue or self._writing or self.is_held or is_full:
            return Wait(self._deadline_s())
        batch = self._queue[0]
        linger_end_s = batch.created_s + self._config.linger_ms / 1000
        if not batch.sealed and now_s < linger_end_s:
            return Wait(linger_end_s)
        return self._send_first(batch)

    def written(self, batch: Batch) -> None:
        """The attempt's body is on its way: the next batch may follow it without overtaking it here."""
        if self._writing is batch:
            self._writing = None

    def stored(self, batch: Batch, receipt: Receipt) -> list[Settled]:
        """An attempt was answered: stored now or, the same to us, earlier."""
        self.written(batch)
        if batch.outcome is not None:
            return []
        batch.state, batch.receipt = State.STORED, receipt
        return self._slide()

    def refused(self, batch: Batch, error: StockadeError, now_s: float) -> list[Settled]:
        """An attempt was refused, or its outcome is unknown (``error.no_side_effects`` tells which)."""
        self.written(batch)
        if batch.outcome is not None or batch.state is not State.UNDER_WAY:
            return []
        batch.state, batch.last_error = State.FAILED, error
        batch.maybe_stored = batch.maybe_stored or not error.no_side_effects
        is_out_of_order = isinstance(error, OutOfOrderSequence)
        batch.is_final = not error.retriable or (is_out_of_order and batch.sent_as_oldest)
        batch.not_before_s = now_s if is_out_of_order else now_s + backoff_s(self._config, batch.attempts, error)
        return self._slide()

    def halt(self, error: StockadeError, *, asks: bool = False) -> list[Settled]:
        """Take nothing more, send nothing new, fail with ``error`` what is not stored.

        ``asks``: the partition can store nothing of ours any more, so batches of unknown outcome are sent again, to be
        told what became of them.
        """
        self.error = self.error or error
        self._asks = self._asks or asks
        return self._slide()

    def _poll_muted(self, now_s: float) -> Action:
        oldest = self._window[0] if self._window else None
        deadline_s = self._deadline_s()
        if oldest is None or deadline_s is None or oldest.state is not State.FAILED:
            return Wait(deadline_s)
        if now_s < oldest.not_before_s:
            return Wait(min(oldest.not_before_s, deadline_s))
        return self._attempt(oldest)

    def _send_first(self, batch: Batch) -> Action:
        batch.sealed = True
        self._queue.popleft()
        try:
            if batch.message is None:
                self._encode(batch)
        except StockadeError as error:
            return Settle([(batch, _verdict(batch, error))])
        batch.first_seq, batch.token = self._next_seq, self.token
        self._next_seq = (self._next_seq + batch.count) % SEQUENCE_MODULUS
        self._window.append(batch)
        return self._attempt(batch)

    def _attempt(self, batch: Batch) -> Send:
        batch.state = State.UNDER_WAY
        batch.attempts += 1
        batch.sent_as_oldest = batch is self._window[0]
        self._writing = batch
        return Send(batch)

    def _slide(self) -> list[Settled]:
        """Settle the front of the window as far as it is decided."""
        settled: list[Settled] = []
        while self._window:
            oldest = self._window[0]
            if oldest.receipt is not None:
                settled.append((oldest, oldest.receipt))
            elif self._is_open(oldest):
                return settled
            else:
                self.error = error = self.error or oldest.last_error
                assert error is not None
                settled.append((oldest, _verdict(oldest, error)))
            self._window.popleft()
        if self.error is not None:
            settled += [(batch, _verdict(batch, self.error)) for batch in self._queue]
            self._queue.clear()
        return settled

    def _is_open(self, batch: Batch) -> bool:
        """Whether an attempt is under way, or another one is to follow."""
        if batch.state is State.UNDER_WAY or batch.is_final:
            return batch.state is State.UNDER_WAY
        return self.error is None or (self._asks and batch.maybe_stored)

    def _expire(self, now_s: float) -> list[Settled]:
        deadline_s = self._deadline_s()
        if deadline_s is None or now_s < deadline_s:
            return []
        oldest = self._window[0] if self._window else self._queue[0]
        oldest.maybe_stored = oldest.maybe_stored or (oldest.attempts > 0 and oldest.state is State.UNDER_WAY)
        oldest.state, oldest.is_final = State.FAILED, True
        proof = next((batch.receipt for batch in self._window if batch.receipt is not None), None)
        if proof is not None:
            # Sequences are contiguous: a later batch is stored, so this one is, and only its place stays unknown.
            oldest.receipt = Receipt(proof.topic, proof.partition, None, oldest.count, True, None)
            return self._slide()
        return self.halt(self._expiry_error(oldest))

    def _expiry_error(self, batch: Batch) -> StockadeError:
        waited = f"not answered within {self._config.delivery_timeout_ms} ms"
        if batch.maybe_stored:
            return RequestTimedOut(f"{waited}; the outcome is unknown")
        return batch.last_error or LeaderNotAvailable(f"not sent: {waited}")

    def _deadline_s(self) -> float | None:
        oldest = next(iter(self._window or self._queue), None)
        return None if oldest is None else oldest.created_s + self._config.delivery_timeout_ms / 1000


def _is_troubled(batch: Batch) -> bool:
    """It failed, and is not settled since: the mute holds also while it is under way again (9.4)."""
    return batch.state is State.FAILED or (batch.state is State.UNDER_WAY and batch.attempts > 1)


def _verdict(batch: Batch, error: StockadeError) -> StockadeError:
    """``error`` as this batch's own, with an outcome certificate that is true for it."""
    answered = batch.last_error.fields.get("outcome") if batch.last_error is not None else None
    own = {"state": "unknown" if batch.maybe_stored else "absent", "base_offset": None, "last_offset": None}
    return with_fields(error, outcome=answered or own)
