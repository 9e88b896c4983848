"""The producers that one partition remembers; the least recently used is forgotten first.

"Used" means that a batch was stored or an epoch installed. Commands are applied one at a time, so the order of use is
the order of log indexes, and every replica forgets the same producer. There is no clock here.
"""

from collections import OrderedDict

from .commands import NotEnrolled, Offset, ProducerId, Stamp
from .errors import InvalidProducerEpoch, StockadeError, UnknownProducerId
from .sequences import UNKNOWN, Entry, Repeated, Run, certify, judge


class Producers:
    """Entries by producer id, the least recently used first.

    ``max_dropped_pid`` is the highest id ever forgotten here (-1: none): only up to it may history be
    missing.
    """

    def __init__(self, max_producers: int, strict: bool) -> None:
        assert max_producers >= 1
        self.entries: OrderedDict[ProducerId, Entry] = OrderedDict()
        self.max_dropped_pid: ProducerId = -1
        self.max_producers = max_producers
        self._strict = strict

    def judge(
        self, stamp: Stamp, count: int, log_start: Offset, log_end: Offset
    ) -> Repeated | NotEnrolled | StockadeError | None:
        """Verdict (SEMANTICS 5.8, A6 to A9) about a batch; None accepts it. Changes nothing."""
        entry = self.entries.get(stamp.pid)
        if entry is None:
            if stamp.first_seq and stamp.pid <= self.max_dropped_pid:
                return UnknownProducerId(log_start=log_start, log_end=log_end)
            return NotEnrolled(stamp.pid)
        verdict = judge(entry, stamp, count, self._strict)
        if isinstance(verdict, InvalidProducerEpoch):
            return InvalidProducerEpoch(**verdict.fields, outcome=self.outcome(stamp, count))
        return verdict

    def outcome(self, stamp: Stamp, count: int) -> dict[str, str | Offset | None]:
        """Outcome certificate (SEMANTICS 7.6), as a refusal carries it."""
        entry = self.entries.get(stamp.pid)
        outcome = UNKNOWN if entry is None else certify(entry, stamp, count)
        if outcome.state == "absent" and stamp.pid <= self.max_dropped_pid:
            outcome = UNKNOWN  # an earlier entry of this producer may have been forgotten
        return {
            "state": outcome.state,
            "base_offset": outcome.base_offset,
            "last_offset": outcome.last_offset,
        }

    def store(self, stamp: Stamp, count: int, base_offset: Offset, timestamp_ms: int, index: int) -> None:
        """Remember a batch that was judged acceptable and has been appended by the command at ``index``."""
        entry = self.entries[stamp.pid]
        if stamp.epoch != entry.run.epoch:
            entry = entry.in_epoch(stamp.epoch)
        run = entry.run.extended(stamp.first_seq, count, base_offset, timestamp_ms)
        self._use(stamp.pid, Entry(run, entry.prev, index))

    def install(self, pid: ProducerId, epoch: int, index: int) -> int:
        """Make a producer known, or raise its epoch; answers the epoch in force."""
        entry = self.entries.get(pid)
        if entry is None:
            self._make_room()
            self._use(pid, Entry(Run(epoch), None, index))
        elif epoch > entry.run.epoch:
            moved = entry.in_epoch(epoch)
            self._use(pid, Entry(moved.run, moved.prev, index))
        return self.entries[pid].run.epoch

    def _use(self, pid: ProducerId, entry: Entry) -> None:
        self.entries[pid] = entry
        self.entries.move_to_end(pid)

    def _make_room(self) -> None:
        while len(self.entries) >= self.max_producers:
            pid, _ = self.entries.popitem(last=False)
            self.max_dropped_pid = max(self.max_dropped_pid, pid)
