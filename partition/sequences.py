"""Idempotence: which batch comes next, which was stored before, which is refused (SEMANTICS 6.6, 7.6).

Pure: judging changes nothing. What a producer stored under one epoch is a Run, which grows where it is: a batch costs
one new value, and not one of every kind. Sequence numbers count records from 0 in each epoch and wrap at
SEQUENCE_MODULUS, so "before" is a distance backwards from the next number, and a distance proves something only when
the run holds that many records.
"""

from enum import Enum, auto
from struct import Struct

import msgspec

from .commands import SEQUENCE_MODULUS, Offset, Stamp, is_named
from .errors import InvalidProducerEpoch, OutOfOrderSequence, StockadeError
from .switches import has_defect

_KEEPS_REPEATS = has_defect("dedupe")

CACHE_BATCHES = 5
"""Batches remembered per producer and epoch; also the most a client may have in flight."""
BEHIND_MAX = 1 << 30
"""Longest distance backwards, in records, that is taken for a repetition; half of the number circle."""
_BATCH = Struct("<IIQq")  # first_seq, records, base_offset, timestamp_ms
_OTHERS_BYTES = (CACHE_BATCHES - 1) * _BATCH.size


class CachedBatch(msgspec.Struct, frozen=True, gc=False):
    """A stored batch that is remembered: its sequence range, offsets, and moment of receipt."""

    first_seq: int
    last_seq: int
    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int


class Run(msgspec.Struct, array_like=True, gc=False):
    """What a producer stored under one epoch: ``records`` of them, the last numbered ``last_seq`` (-1: none).

    ``packed`` has the latest CACHE_BATCHES batches, the oldest first. As objects, those of a hundred thousand producers
    would take 70 MB more, and a checkpoint three times as long.
    """

    epoch: int
    last_seq: int = -1
    records: int = 0
    packed: bytes = b""

    @property
    def cache(self) -> tuple[CachedBatch, ...]:
        """The batches that are remembered, the oldest first."""
        return tuple(
            CachedBatch(first_seq, _last_seq(first_seq, count), base_offset, base_offset + count - 1, timestamp_ms)
            for first_seq, count, base_offset, timestamp_ms in _BATCH.iter_unpack(self.packed)
        )

    @property
    def next_seq(self) -> int:
        """The only number at which a new batch may begin."""
        return (self.last_seq + 1) % SEQUENCE_MODULUS

    def is_next(self, stamp: Stamp) -> bool:
        """Whether a batch with this stamp goes on where the run ends."""
        return stamp.epoch == self.epoch and stamp.first_seq == (self.last_seq + 1) % SEQUENCE_MODULUS

    def extend(self, first_seq: int, count: int, base_offset: Offset, timestamp_ms: int) -> None:
        """Take in one more batch."""
        self.last_seq = _last_seq(first_seq, count)
        self.records += count
        self.packed = self.packed[-_OTHERS_BYTES:] + _BATCH.pack(first_seq, count, base_offset, timestamp_ms)


class Entry(msgspec.Struct, array_like=True, gc=False):
    """What is remembered of a producer: the run of its epoch, and the last one before that stored anything.

    ``last_used_ms`` is the lease clock of its last use, ``order`` the place in the controller's log of the decision
    that installed it last, ``grant_id`` the grant under which it stored its last batch.
    """

    run: Run
    prev: Run | None
    last_used_ms: int
    order: int
    grant_id: str | None = None

    @property
    def is_bare(self) -> bool:
        """Whether nothing was stored since the entry was made."""
        return not self.run.records and self.prev is None

    def begin_epoch(self, epoch: int) -> None:
        """Move on to a higher epoch. One that stored nothing leaves nothing to remember."""
        if self.run.records:
            self.prev = self.run
        self.run = Run(epoch)


class Repeated(msgspec.Struct, frozen=True, gc=False):
    """The batch was stored by an earlier request: ``batch`` if it is still remembered."""

    batch: CachedBatch | None


class Place(Enum):
    """Where a range of numbers lies in a run."""

    NEXT = auto()
    """It begins at the next number."""
    BEHIND = auto()
    """All of it was stored, by batches that are not remembered any more."""
    CUT = auto()
    """All of it was stored, by batches that are remembered otherwise."""
    OVERLAP = auto()
    """Part of it was stored."""
    AHEAD = auto()
    """None of it was stored."""
    UNCLEAR = auto()
    """Refused like AHEAD, but numbers of it were used, perhaps a whole turn of the circle ago."""


def _last_seq(first_seq: int, count: int) -> int:
    """The last of so many numbers."""
    return (first_seq + count - 1) % SEQUENCE_MODULUS


def locate(run: Run, first_seq: int, count: int) -> Place | CachedBatch:
    """Place of ``count`` numbers from ``first_seq`` in a run; the batch itself if it is remembered exactly."""
    behind = (run.last_seq + 1 - first_seq) % SEQUENCE_MODULUS
    if behind == 0:  # the batches that are remembered are far from a whole turn of the circle
        return Place.NEXT
    last_seq, cache = _last_seq(first_seq, count), run.cache
    for batch in cache:
        if batch.first_seq == first_seq and batch.last_seq == last_seq:
            return batch
    if behind <= min(run.records, BEHIND_MAX):
        if behind < count:
            return Place.OVERLAP
        remembered = (run.next_seq - cache[0].first_seq) % SEQUENCE_MODULUS
        return Place.CUT if behind - count < remembered else Place.BEHIND
    return Place.UNCLEAR if behind - count < run.records else Place.AHEAD


def judge(entry: Entry, stamp: Stamp, count: int, strict: bool) -> Repeated | StockadeError | None:
    """Verdict about a batch of a producer that has an entry; None accepts it.

    ``strict`` refuses a repetition that is no longer remembered, as Kafka does, instead of calling it a
    duplicate. The InvalidProducerEpoch answered here has no outcome yet.
    """
    run = entry.run
    if stamp.epoch == run.epoch:
        return _judge_range(entry, locate(run, stamp.first_seq, count), strict)
    if stamp.epoch < run.epoch or is_named(stamp.pid):
        return InvalidProducerEpoch(current_epoch=run.epoch)
    if stamp.first_seq:
        return OutOfOrderSequence(reason="new_epoch", expected_seq=0, last_seq=run.last_seq)
    return None


def _judge_range(entry: Entry, place: Place | CachedBatch, strict: bool) -> Repeated | StockadeError | None:
    if place is Place.NEXT or _KEEPS_REPEATS:
        return None
    if isinstance(place, CachedBatch):
        return Repeated(place)
    if place is Place.BEHIND and not strict:
        return Repeated(None)
    run = entry.run
    cuts = place in (Place.OVERLAP, Place.CUT, Place.BEHIND)
    nothing_yet = "no_state" if entry.prev is None else "new_epoch"
    reason = "overlap" if cuts else "gap" if run.records else nothing_yet
    return OutOfOrderSequence(reason=reason, expected_seq=run.next_seq, last_seq=run.last_seq)


class Outcome(msgspec.Struct, frozen=True):
    """What became of a refused batch when it was sent before. ``state``: committed, absent, unknown."""

    state: str
    base_offset: Offset | None = None
    last_offset: Offset | None = None


UNKNOWN = Outcome("unknown")
"""Nothing can be proved."""


def certify(entry: Entry, stamp: Stamp, count: int) -> Outcome:
    """What an entry proves of a refused batch, if the producer was never forgotten before the entry was made."""
    if stamp.epoch == entry.run.epoch:
        return _certify_range(locate(entry.run, stamp.first_seq, count))
    if entry.prev is None or stamp.epoch > entry.prev.epoch:
        return Outcome("absent")
    if stamp.epoch == entry.prev.epoch:
        return _certify_range(locate(entry.prev, stamp.first_seq, count))
    return UNKNOWN


def _certify_range(place: Place | CachedBatch) -> Outcome:
    if isinstance(place, CachedBatch):
        return Outcome("committed", place.base_offset, place.last_offset)
    if place in (Place.CUT, Place.BEHIND):
        return Outcome("committed")
    return Outcome("absent") if place in (Place.NEXT, Place.AHEAD) else UNKNOWN
