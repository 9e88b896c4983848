"""The producers that one partition remembers; the least recently used is forgotten first.

"Used" means that a batch was stored or an epoch installed. Commands are applied one at a time, so the order of use is
the order of log indexes, and every replica forgets the same producer. Time is the lease clock, as commands bring it.
"""

from collections import OrderedDict
from collections.abc import Callable

from .commands import (
    ForgetProducers,
    InstallProducer,
    NotEnrolled,
    Offset,
    ProducerId,
    ProducersForgotten,
    Stamp,
    Token,
    is_named,
)
from .config import PartitionConfig
from .errors import InvalidProducerEpoch, OutOfOrderSequence, StockadeError, UnknownProducerId
from .log import Log
from .sequences import UNKNOWN, Entry, Outcome, Repeated, Run, certify, judge
from .switches import has_defect

_LIES = has_defect("certificates")

UNKNOWN_FIELDS: dict[str, str | Offset | None] = {"state": "unknown", "base_offset": None, "last_offset": None}
"""The outcome of what cannot be proved, as a refusal carries it."""


class Producers:
    """Entries by producer id, the least recently used first.

    ``max_dropped_pid`` is the highest id ever forgotten here (-1: none): only up to it may history be
    missing. ``max_dropped_order`` is the latest decision ever forgotten, or what the controller was told to have been:
    an install of an unknown producer that was decided before it may be older than what was forgotten, and is not taken.
    """

    def __init__(self) -> None:
        self.entries: OrderedDict[ProducerId, Entry] = OrderedDict()
        self.max_dropped_pid: ProducerId = -1
        self.max_dropped_order: int = -1

    def judge(
        self, stamp: Stamp, count: int, config: PartitionConfig, log: Log
    ) -> Repeated | NotEnrolled | StockadeError | None:
        """Verdict (SEMANTICS 5.8, A6 to A9) about a batch; None accepts it. Changes nothing.

        A refusal may tell where the log begins and ends.
        """
        entry = self.entries.get(stamp.pid)
        if entry is None:
            return self._judge_unknown(stamp, config, log)
        if entry.run.is_next(stamp):
            return None  # as nearly always: told without the calls that tell the rest apart
        verdict = judge(entry, stamp, count, config.strict_sequence)
        if verdict is None:
            return None
        if isinstance(verdict, InvalidProducerEpoch):
            return InvalidProducerEpoch(**verdict.fields, outcome=self.outcome(stamp, count))
        if isinstance(verdict, OutOfOrderSequence) and entry.is_bare and self._was_dropped(stamp):
            return UnknownProducerId(log_start=log.log_start, log_end=log.log_end)
        return verdict

    def _judge_unknown(self, stamp: Stamp, config: PartitionConfig, log: Log) -> NotEnrolled | UnknownProducerId:
        """A named producer's epoch is judged before its sequence, but nobody is forgotten for a batch that will be
        refused either way.
        """
        has_room = len(self.entries) < config.max_producers
        if (is_named(stamp.pid) and has_room) or not self._was_dropped(stamp):
            return NotEnrolled(stamp.pid)
        return UnknownProducerId(log_start=log.log_start, log_end=log.log_end)

    def _was_dropped(self, stamp: Stamp) -> bool:
        """Whether what came before this batch may have been forgotten."""
        return stamp.first_seq > 0 and stamp.pid <= self.max_dropped_pid

    def judge_epoch(self, pid: ProducerId, epoch: int) -> NotEnrolled | StockadeError | None:
        """Verdict about what a producer asks for without a batch; None accepts it. Changes nothing."""
        entry = self.entries.get(pid)
        if entry is None:
            return NotEnrolled(pid)
        if epoch < entry.run.epoch or (is_named(pid) and epoch > entry.run.epoch):
            return InvalidProducerEpoch(current_epoch=entry.run.epoch, outcome=UNKNOWN_FIELDS)
        return None

    def outcome(self, stamp: Stamp, count: int) -> dict[str, str | Offset | None]:
        """Outcome certificate (SEMANTICS 7.6), as a refusal carries it."""
        entry = self.entries.get(stamp.pid)
        outcome = UNKNOWN if entry is None else certify(entry, stamp, count)
        if outcome.state == "absent" and stamp.pid <= self.max_dropped_pid:
            outcome = UNKNOWN  # an earlier entry of this producer may have been forgotten
        if _LIES:
            outcome = Outcome("absent" if outcome.state == "committed" else "committed")
        return {
            "state": outcome.state,
            "base_offset": outcome.base_offset,
            "last_offset": outcome.last_offset,
        }

    def store(
        self, stamp: Stamp, count: int, base_offset: Offset, timestamp_ms: int, now_ms: int, token: Token | None
    ) -> None:
        """Remember a batch that was judged acceptable and has been appended."""
        entry = self.entries[stamp.pid]
        if stamp.epoch != entry.run.epoch:
            entry.begin_epoch(stamp.epoch)
        entry.run.extend(stamp.first_seq, count, base_offset, timestamp_ms)
        entry.grant_id = token.grant_id if token is not None else None
        self._use(stamp.pid, entry, now_ms)

    def install(self, command: InstallProducer, producers_max: int, now_ms: int) -> int:
        """Make a producer known, or raise its epoch; answers the epoch below which nothing is taken."""
        entry = self.entries.get(command.pid)
        if entry is None:
            if command.order < self.max_dropped_order:
                return command.epoch
            self.make_room(producers_max - 1)
            entry = self.entries[command.pid] = Entry(Run(command.epoch), None, now_ms, command.order)
        elif command.epoch > entry.run.epoch:
            entry.begin_epoch(command.epoch)
        else:
            return entry.run.epoch
        entry.order = max(entry.order, command.order)
        self._use(command.pid, entry, now_ms)
        return entry.run.epoch

    def forget(self, command: ForgetProducers) -> ProducersForgotten:
        """Which of these are not known, and shall not be by what was decided so far."""
        unknown = [pid for pid in command.pids if pid not in self.entries]
        if unknown:
            self.max_dropped_order = max(self.max_dropped_order, command.order + 1)
        return ProducersForgotten(unknown)

    def make_room(self, producers_max: int) -> None:
        """Forget the least recently used until at most ``producers_max`` are left."""
        while len(self.entries) > producers_max:
            self._forget_oldest()

    def has_idle(self, now_ms: int, ttl_ms: int) -> bool:
        """Whether one was not used for ``ttl_ms``."""
        return bool(self.entries) and now_ms - next(iter(self.entries.values())).last_used_ms >= ttl_ms

    def forget_idle(self, now_ms: int, ttl_ms: int, is_held: Callable[[str | None], bool]) -> None:
        """Forget what was not used for ``ttl_ms``. The grant under which one writes counts as use, while it is held."""
        while self.has_idle(now_ms, ttl_ms):
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
