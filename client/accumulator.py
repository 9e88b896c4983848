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
  so that each batch fails with an outcome of its own: committed, absent or unknown. ``reopen`` takes records again.
- With ``on_error="continue"`` a refusal that is about one batch fails that batch alone. Its numbers are a hole that
  nothing may follow, so the lane asks for a new epoch (9.5), and so it does when the partition has forgotten this
  producer (9.7). Under the new epoch, what may have been stored under the old one is sent once more as it was, only to
  be told its outcome; what is not stored is numbered anew.

Other lanes never notice.
"""

from collections import deque
from collections.abc import Callable

from ..partition.commands import SEQUENCE_MODULUS, Token
from ..partition.errors import OutOfOrderSequence, StockadeError
from .actions import Action, Send, Settle, Settled, Wait
from .batches import Batch, Receipt, Record, State
from .config import ClientConfig
from .model import ProducerPair
from .queueing import Queue
from .retry import backoff_s
from .verdicts import expiry_error, halted, is_certified_absent, is_forgotten, is_of_one_batch, may_heal, verdict


class Lane:
    """One partition's queue and window. All times are seconds of one monotonic clock, given by the caller.

    ``encode`` makes a sealed batch ready to be sent and raises a StockadeError when that cannot be: such a batch
    fails alone, before it took a sequence number. A batch of more than one record is never longer than
    ``batch_bytes_max``. ``identity`` and ``token`` are the producer and the fence that the next batches to be numbered
    carry; while it is held by somebody, none is numbered. ``error`` is what halted the lane. ``needs_epoch``: nothing
    can follow what failed before ``renew``.
    """

    def __init__(self, config: ClientConfig, encode: Callable[[Batch], None], batch_bytes_max: int) -> None:
        self._config = config
        self._encode = encode
        self._queue = Queue(config, batch_bytes_max)
        self._window: deque[Batch] = deque()
        self._writing: Batch | None = None
        self._next_seq = 0
        self._asks = False
        self._is_renewing = False
        self._holds = 0
        self.identity: ProducerPair | None = None
        self.token: Token | None = None
        self.error: StockadeError | None = None
        self.needs_epoch: bool = False

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
        return self._queue.open_batch

    @property
    def is_quiet(self) -> bool:
        """Whether it is ready for a new epoch: no answer is awaited that would come without one."""
        if self.needs_epoch:
            return not any(batch.state is State.UNDER_WAY for batch in self._window)
        return not self._window

    def hold(self, *, on: bool) -> None:
        """Number nothing until everybody who held the lane has let go of it."""
        self._holds += 1 if on else -1

    def renew(self, identity: ProducerPair) -> None:
        """Go on under a newer epoch, or another id: numbers start again at 0."""
        self.identity, self._next_seq = identity, 0
        self._is_renewing, self.needs_epoch = self.needs_epoch, False
        self._renumber()

    def reopen(self) -> None:
        """Take records again after a halt, under a newer epoch: ``renew`` came before."""
        assert self.is_idle, "reopened before everything had its outcome"
        self.error, self._asks = None, False

    def add(self, record: Record, size: int, now_s: float) -> tuple[Batch, int]:
        """Queue a record: its batch and its position in it. Raises the error that halted the lane."""
        if self.error is not None:
            raise halted(self.error)
        return self._queue.add(record, size, now_s)

    def add_batch(self, batch: Batch) -> tuple[Batch, int]:
        """Queue records that stay together and wait for no more: the batch that has them then, which may have others
        too, and the position of the first. Raises the error that halted the lane.
        """
        if self.error is not None:
            raise halted(self.error)
        return self._queue.add_batch(batch)

    def seal(self) -> None:
        """Let what is queued leave without waiting for more records."""
        self._queue.seal()

    def poll(self, now_s: float) -> Action:
        """What to do next. Ask again after doing it, and at the time that a Wait names."""
        expired = self._expire(now_s)
        if expired:
            return Settle(expired)
        if self.needs_epoch:
            return Wait(self._deadline_s())
        if self.error is not None or self._is_renewing or any(batch.is_troubled for batch in self._window):
            return self._poll_muted(now_s)
        is_full = len(self._window) >= self._config.inflight_batches_max
        if not self._queue or self._writing or self._holds or is_full:
            return Wait(self._deadline_s())
        if now_s < self._queue.may_leave_s:
            return Wait(self._queue.may_leave_s)
        return self._send_first(self._queue.take())

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

    def refused(
        self, batch: Batch, error: StockadeError, now_s: float, committed: Receipt | None = None
    ) -> list[Settled]:
        """An attempt was refused, or its outcome is unknown (``error.no_side_effects`` tells which).

        ``committed``: the refusal certifies that an earlier attempt was stored, and where.
        """
        self.written(batch)
        if batch.outcome is not None or batch.state is not State.UNDER_WAY:
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
            batch.maybe_stored = batch.maybe_stored or not error.no_side_effects
            batch.is_final = not may_heal(error) or (is_out_of_order and batch.sent_as_oldest)

    def halt(self, error: StockadeError, *, asks: bool = False) -> list[Settled]:
        """Take nothing more, send nothing new, fail with ``error`` what is not stored.

        ``asks``: the partition can store nothing of ours any more, so batches of unknown outcome are sent again, to be
        told what became of them.
        """
        self.error, self.needs_epoch = self.error or error, False
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
        try:
            if batch.message is None:
                self._encode(batch)
        except StockadeError as error:
            return Settle([(batch, verdict(batch, error))])
        batch.first_seq, batch.identity, batch.token = self._next_seq, self.identity, self.token
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
                settled.append((oldest, verdict(oldest, self._failure_of(oldest))))
            self._window.popleft()
        if self.error is not None:
            settled += [(batch, verdict(batch, self.error)) for batch in self._queue]
            self._queue.clear()
        return settled

    def _failure_of(self, oldest: Batch) -> StockadeError:
        """Why the oldest batch fails, and what that means for those behind it."""
        error = self.error or oldest.last_error
        assert error is not None
        if self.error is None and self._config.on_error == "continue" and is_of_one_batch(error):
            self.needs_epoch = not self._is_renewing
        else:
            self.error = error
        return error

    def _renumber(self) -> None:
        """Under a new epoch: when the oldest batch is known to be absent, so are all behind it, and they start anew."""
        oldest = self._window[0] if self._window else None
        is_open = oldest is not None and (oldest.state is State.UNDER_WAY or oldest.maybe_stored)
        if not self._is_renewing or is_open or self.error is not None:
            return
        self._is_renewing = False
        while self._window:
            batch = self._window.pop()
            batch.begin_again()
            self._queue.give_back(batch)

    def _is_open(self, batch: Batch) -> bool:
        """Whether an attempt is under way, or another one is to follow."""
        if batch.state is State.UNDER_WAY or batch.is_final:
            return batch.state is State.UNDER_WAY
        return self.error is None or (self._asks and batch.maybe_stored)

    def _expire(self, now_s: float) -> list[Settled]:
        deadline_s = self._deadline_s()
        if deadline_s is None or now_s < deadline_s:
            return []
        oldest = next(iter(self._window or self._queue))
        oldest.maybe_stored = oldest.maybe_stored or (oldest.attempts > 0 and oldest.state is State.UNDER_WAY)
        oldest.state, oldest.is_final = State.FAILED, True
        proof = next((batch.receipt for batch in self._window if batch.receipt is not None), None)
        if proof is not None:
            # Sequences are contiguous: a later batch is stored, so this one is, and only its place stays unknown.
            oldest.receipt = Receipt(proof.topic, proof.partition, None, oldest.count, True, None)
            return self._slide()
        oldest.last_error = expiry_error(oldest, self._config.delivery_timeout_ms)
        if self._window:
            return self._slide()
        if self._config.on_error == "halt_partition":
            return self.halt(oldest.last_error)
        return [(self._queue.take(), verdict(oldest, oldest.last_error))]  # never numbered: it leaves no hole

    def _deadline_s(self) -> float | None:
        oldest = next(iter(self._window or self._queue), None)
        return None if oldest is None else oldest.created_s + self._config.delivery_timeout_ms / 1000
