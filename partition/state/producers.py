"""Idempotence: whether a producer's batch is the next one, a duplicate, or refused (SEMANTICS 6.6, 7.6). ``Producers``
is the table of a partition's producers, of which the least recently used is forgotten first.

Judging changes nothing. The batches that a producer stored under one epoch make a SequenceRun, which is changed in
place. Sequence numbers count records from 0 in each epoch and wrap at SEQUENCE_MODULUS. So an earlier number is
identified by its distance backwards from ``next_seq``, and was used in this run only if ``distance <= run.records``.

A producer is used when a batch of it is stored or an epoch of it is installed. Commands are applied one at a time, so
the order of use is the order of the log, and every replica forgets the same producer. Time is the lease clock, as the
commands carry it.
"""

from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from math import inf
from struct import Struct

import msgspec

from ..commands import (
    SEQUENCE_MODULUS,
    Append,
    ChangeStages,
    ForgetProducers,
    InstallProducer,
    NotEnrolled,
    Offset,
    ProducerId,
    ProducersForgotten,
    Stamp,
    belongs_to_another,
    is_named,
)
from ..config import PartitionConfig
from ..errors import InvalidProducerEpoch, OutOfOrderSequence, PermissionDenied, StockadeError, UnknownProducerId
from ..log.interface import Log

CACHE_BATCHES = 5
"""Batches remembered for each producer and epoch; also the most that a client may have in flight."""
BEHIND_MAX = 1 << 30
"""The longest distance backwards, in records, at which a batch counts as a repetition: half of SEQUENCE_MODULUS."""
_BATCH = Struct("<IIQq")  # first_seq, records, base_offset, timestamp_ms
_OTHERS_BYTES = (CACHE_BATCHES - 1) * _BATCH.size


class CachedBatch(msgspec.Struct, frozen=True, gc=False):
    """A stored batch that the producer table remembers: its sequence numbers, offsets, and moment of receipt."""

    first_seq: int
    last_seq: int
    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int


class SequenceRun(msgspec.Struct, array_like=True, gc=False):
    """The records that a producer has stored under one epoch: ``records`` is their number, ``last_seq`` the sequence
    number of the last one (-1: none).

    ``packed`` has the latest CACHE_BATCHES batches, the oldest first. As objects, the batches of 100,000 producers
    would take 70 MB more, and their checkpoint would take three times as long.
    """

    epoch: int
    last_seq: int = -1
    records: int = 0
    packed: bytes = b""

    @property
    def cache(self) -> tuple[CachedBatch, ...]:
        """The remembered batches, the oldest first."""
        return tuple(
            CachedBatch(first_seq, _last_seq(first_seq, count), base_offset, base_offset + count - 1, timestamp_ms)
            for first_seq, count, base_offset, timestamp_ms in _BATCH.iter_unpack(self.packed)
        )

    @property
    def next_seq(self) -> int:
        """The only sequence number at which a new batch may begin."""
        return (self.last_seq + 1) % SEQUENCE_MODULUS

    def extend(self, first_seq: int, count: int, base_offset: Offset, timestamp_ms: int) -> None:
        """Add the next batch, of ``count`` records."""
        self.last_seq = (first_seq + count - 1) % SEQUENCE_MODULUS
        self.records += count
        self.packed = self.packed[-_OTHERS_BYTES:] + _BATCH.pack(first_seq, count, base_offset, timestamp_ms)


class Entry(msgspec.Struct, array_like=True, gc=False):
    """A row of the producer table: the run of the producer's present epoch, and the last earlier run with records.

    ``last_used_ms`` is the lease clock at the producer's last use, ``order`` the index in the controller's log of the
    decision that installed it last, ``grant_id`` the grant under which it stored its last batch. ``principal`` is the
    one to which the epoch was given, or, for a producer without a name, the one that stored its last batch ("": none).
    """

    run: SequenceRun
    prev: SequenceRun | None
    last_used_ms: int
    order: int
    grant_id: str | None = None
    principal: str = ""

    @property
    def is_bare(self) -> bool:
        """Whether no batch was stored since the entry was made."""
        return not self.run.records and self.prev is None

    def begin_epoch(self, epoch: int) -> None:
        """Begin a higher epoch. The present run becomes ``prev`` only if it has records."""
        if self.run.records:
            self.prev = self.run
        self.run = SequenceRun(epoch)


class Repeated(msgspec.Struct, frozen=True, gc=False):
    """A verdict: an earlier request has stored the batch. ``batch`` is None if it is no longer remembered."""

    batch: CachedBatch | None


class SequencePosition(Enum):
    """The position of a batch's range of sequence numbers relative to a run."""

    NEXT = auto()
    """The batch begins at the next number."""
    BEHIND = auto()
    """All records of the batch were stored, by batches that are no longer remembered."""
    CUT = auto()
    """All records of the batch were stored, by remembered batches with other bounds."""
    OVERLAP = auto()
    """Some records of the batch were stored."""
    AHEAD = auto()
    """No record of the batch was stored."""
    UNCLEAR = auto()
    """Refused like AHEAD, but some of the batch's numbers were used before, perhaps SEQUENCE_MODULUS records ago."""


def _last_seq(first_seq: int, count: int) -> int:
    """The last of ``count`` numbers from ``first_seq``."""
    return (first_seq + count - 1) % SEQUENCE_MODULUS


def locate(run: SequenceRun, first_seq: int, count: int) -> SequencePosition | CachedBatch:
    """The position of ``count`` numbers from ``first_seq`` in a run; the batch itself if it is remembered exactly."""
    behind = (run.last_seq + 1 - first_seq) % SEQUENCE_MODULUS
    if behind == 0:  # no remembered batch can begin here: they have far fewer than SEQUENCE_MODULUS records
        return SequencePosition.NEXT
    last_seq, cache = _last_seq(first_seq, count), run.cache
    for batch in cache:
        if batch.first_seq == first_seq and batch.last_seq == last_seq:
            return batch
    if behind <= min(run.records, BEHIND_MAX):
        if behind < count:
            return SequencePosition.OVERLAP
        remembered = (run.next_seq - cache[0].first_seq) % SEQUENCE_MODULUS
        return SequencePosition.CUT if behind - count < remembered else SequencePosition.BEHIND
    return SequencePosition.UNCLEAR if behind - count < run.records else SequencePosition.AHEAD


def judge(entry: Entry, stamp: Stamp, count: int, strict: bool) -> Repeated | StockadeError | None:
    """The verdict on a batch of ``count`` records whose producer has an entry; None accepts it.

    ``strict`` refuses a repetition that is no longer remembered, as Kafka does, instead of answering it as a
    duplicate. An InvalidProducerEpoch from here has no outcome yet.
    """
    run = entry.run
    if stamp.epoch == run.epoch:
        return _judge_range(entry, locate(run, stamp.first_seq, count), strict)
    if stamp.epoch < run.epoch or is_named(stamp.pid):
        return InvalidProducerEpoch(current_epoch=run.epoch)
    if stamp.first_seq:
        return OutOfOrderSequence(reason="new_epoch", expected_seq=0, last_seq=run.last_seq)
    return None


def _judge_range(entry: Entry, place: SequencePosition | CachedBatch, strict: bool) -> Repeated | StockadeError | None:
    if place is SequencePosition.NEXT:
        return None
    if isinstance(place, CachedBatch):
        return Repeated(place)
    if place is SequencePosition.BEHIND and not strict:
        return Repeated(None)
    run = entry.run
    cuts = place in (SequencePosition.OVERLAP, SequencePosition.CUT, SequencePosition.BEHIND)
    nothing_yet = "no_state" if entry.prev is None else "new_epoch"
    reason = "overlap" if cuts else "gap" if run.records else nothing_yet
    return OutOfOrderSequence(reason=reason, expected_seq=run.next_seq, last_seq=run.last_seq)


class Outcome(msgspec.Struct, frozen=True):
    """Whether earlier sends of a refused batch stored it. ``state``: committed, absent, unknown. ``reason``: why it is
    unknown (forgotten, older_epoch, other_bounds, no_batch); None for the other states.
    """

    state: str
    base_offset: Offset | None = None
    last_offset: Offset | None = None
    reason: str | None = None

    def fields(self) -> dict[str, str | Offset | None]:
        """The outcome certificate as a refusal carries it."""
        members = {"state": self.state, "base_offset": self.base_offset, "last_offset": self.last_offset}
        return members if self.reason is None else {**members, "reason": self.reason}


FORGOTTEN = Outcome("unknown", reason="forgotten")
"""The partition has no entry of the producer, or may have forgotten an earlier one."""
OLDER_EPOCH = Outcome("unknown", reason="older_epoch")
"""The batch's epoch is older than the last earlier epoch with records, which is the only earlier one remembered."""
OTHER_BOUNDS = Outcome("unknown", reason="other_bounds")
"""Some of the batch's numbers were stored, by batches with other bounds or a whole SEQUENCE_MODULUS ago."""
NO_BATCH = Outcome("unknown", reason="no_batch")
"""The request has no batch here: it changes stages, or names a stage that does not exist."""


def certify(entry: Entry, stamp: Stamp, count: int) -> Outcome:
    """The outcome of a refused batch that an entry proves, for a producer that was not forgotten before the entry was
    made.
    """
    if stamp.epoch == entry.run.epoch:
        return _certify_range(locate(entry.run, stamp.first_seq, count))
    if entry.prev is None or stamp.epoch > entry.prev.epoch:
        return Outcome("absent")
    if stamp.epoch == entry.prev.epoch:
        return _certify_range(locate(entry.prev, stamp.first_seq, count))
    return OLDER_EPOCH


def _certify_range(place: SequencePosition | CachedBatch) -> Outcome:
    if isinstance(place, CachedBatch):
        return Outcome("committed", place.base_offset, place.last_offset)
    if place in (SequencePosition.CUT, SequencePosition.BEHIND):
        return Outcome("committed")
    return Outcome("absent") if place in (SequencePosition.NEXT, SequencePosition.AHEAD) else OTHER_BOUNDS


def _not_yours(pid: ProducerId) -> PermissionDenied:
    return PermissionDenied(f"the producer id {pid} is another principal's")


class Producers:
    """The producer table: entries by producer id, the least recently used first.

    ``max_dropped_pid`` is the highest id ever forgotten here (-1: none): the history of a producer may be missing only
    if ``pid <= max_dropped_pid``. ``max_dropped_order`` is the greatest ``order`` of a forgotten entry, and is above
    the ``order`` of every ForgetProducers that found an unknown producer. An install of an unknown producer with
    ``order < max_dropped_order`` may be older than its forgotten entry, and is ignored.
    """

    def __init__(self) -> None:
        self.entries: OrderedDict[ProducerId, Entry] = OrderedDict()
        self.max_dropped_pid: ProducerId = -1
        self.max_dropped_order: int = -1

    def judge(
        self, command: Append, stamp: Stamp, config: PartitionConfig, log: Log
    ) -> Repeated | NotEnrolled | StockadeError | None:
        """The verdict (SEMANTICS 5.8, A6 to A9) on a batch; None accepts it. Changes nothing.

        An UnknownProducerId carries where ``log`` begins and ends; an InvalidProducerEpoch has no outcome yet.
        """
        entry = self.entries.get(stamp.pid)
        if entry is None:
            return self._judge_unknown(stamp, config, log)
        if stamp.epoch >= entry.run.epoch and belongs_to_another(entry.principal, command.principal):
            return _not_yours(stamp.pid)  # an earlier epoch may have been the caller's: its refusal has an outcome
        if stamp.epoch == entry.run.epoch and stamp.first_seq == entry.run.next_seq:
            return None  # as nearly always: decided without the calls that tell the other cases apart
        return self._judge_known(entry, stamp, command.count, config.strict_sequence, log)

    def _judge_known(
        self, entry: Entry, stamp: Stamp, count: int, strict: bool, log: Log
    ) -> Repeated | StockadeError | None:
        verdict = judge(entry, stamp, count, strict)
        if verdict is None:
            return None
        if isinstance(verdict, OutOfOrderSequence) and entry.is_bare and self._was_dropped(stamp):
            return UnknownProducerId(log_start=log.log_start, log_end=log.log_end)
        return verdict

    def _judge_unknown(self, stamp: Stamp, config: PartitionConfig, log: Log) -> NotEnrolled | UnknownProducerId:
        """The verdict on a batch of a producer without an entry. A named producer is enrolled first (NotEnrolled), so
        that its epoch is judged before its sequence; but in a full table a batch that would be refused anyway is
        refused at once, since an enrolment would push another producer out.
        """
        has_room = len(self.entries) < config.max_producers
        if (is_named(stamp.pid) and has_room) or not self._was_dropped(stamp):
            return NotEnrolled(stamp.pid)
        return UnknownProducerId(log_start=log.log_start, log_end=log.log_end)

    def _was_dropped(self, stamp: Stamp) -> bool:
        """Whether the producer has earlier batches that may have been forgotten here."""
        return stamp.first_seq > 0 and stamp.pid <= self.max_dropped_pid

    def judge_epoch(self, command: ChangeStages) -> NotEnrolled | StockadeError | None:
        """The verdict on a producer's request without a batch; None accepts it. Changes nothing."""
        pid, epoch = command.pid, command.epoch
        entry = self.entries.get(pid)
        if entry is None:
            return NotEnrolled(pid)
        if epoch < entry.run.epoch or (is_named(pid) and epoch > entry.run.epoch):
            return InvalidProducerEpoch(current_epoch=entry.run.epoch, outcome=NO_BATCH.fields())
        return _not_yours(pid) if belongs_to_another(entry.principal, command.principal) else None

    def outcome(self, stamp: Stamp, count: int) -> dict[str, str | Offset | None]:
        """The outcome certificate of a batch (SEMANTICS 7.6), as a refusal carries it."""
        entry = self.entries.get(stamp.pid)
        outcome = FORGOTTEN if entry is None else certify(entry, stamp, count)
        if outcome.state == "absent" and stamp.pid <= self.max_dropped_pid:
            outcome = FORGOTTEN  # there may have been an earlier entry of this producer
        return outcome.fields()

    def store(self, stamp: Stamp, command: Append, base_offset: Offset, now_ms: int, received_ms: int) -> None:
        """Remember a batch that was judged acceptable and has been appended."""
        pid, token = stamp.pid, command.token
        entry = self.entries[pid]
        if stamp.epoch != entry.run.epoch:
            entry.begin_epoch(stamp.epoch)
        entry.run.extend(stamp.first_seq, command.count, base_offset, received_ms)
        entry.grant_id = None if token is None else token.grant_id
        if not is_named(pid):
            entry.principal = command.principal
        self._use(pid, entry, now_ms)

    def install(self, command: InstallProducer, producers_max: int, now_ms: int) -> int:
        """Make a producer known, or raise its epoch; returns the lowest epoch that is accepted from now on."""
        entry = self.entries.get(command.pid)
        if entry is None:
            if command.order < self.max_dropped_order:
                return command.epoch
            self.make_room(producers_max - 1)
            entry = self.entries[command.pid] = Entry(SequenceRun(command.epoch), None, now_ms, command.order)
            entry.principal = command.principal
        elif command.epoch > entry.run.epoch:
            entry.begin_epoch(command.epoch)
            entry.principal = command.principal
        else:
            return entry.run.epoch
        entry.order = max(entry.order, command.order)
        self._use(command.pid, entry, now_ms)
        return entry.run.epoch

    def forget(self, command: ForgetProducers) -> ProducersForgotten:
        """The ids in the command that are unknown here. Their installs of an ``order`` up to the command's are ignored
        from now on.
        """
        unknown = [pid for pid in command.pids if pid not in self.entries]
        if unknown:
            self.max_dropped_order = max(self.max_dropped_order, command.order + 1)
        return ProducersForgotten(unknown)

    def make_room(self, producers_max: int) -> None:
        """Forget the least recently used producers until at most ``producers_max`` are left."""
        while len(self.entries) > producers_max:
            self._forget_oldest()

    def due_ms(self, ttl_ms: int) -> float:
        """The time at which the least recently used producer will have been idle for ``ttl_ms``, on the lease clock;
        infinity without producers.
        """
        return next(iter(self.entries.values())).last_used_ms + ttl_ms if self.entries else inf

    def forget_idle(self, now_ms: int, ttl_ms: int, is_held: Callable[[str | None], bool]) -> None:
        """Forget producers that were idle for ``ttl_ms``. A producer counts as used while ``is_held`` its last batch's
        grant, that is, while this grant holds the slot.
        """
        while self.due_ms(ttl_ms) <= now_ms:
            pid, entry = next(iter(self.entries.items()))
            if is_held(entry.grant_id):
                self._use(pid, entry, now_ms)
            else:
                self._forget_oldest()

    def _use(self, pid: ProducerId, entry: Entry, now_ms: int) -> None:
        entry.last_used_ms = now_ms
        self.entries.move_to_end(pid)

    def _forget_oldest(self) -> None:
        pid, entry = self.entries.popitem(last=False)
        self.max_dropped_pid = max(self.max_dropped_pid, pid)
        self.max_dropped_order = max(self.max_dropped_order, entry.order)
