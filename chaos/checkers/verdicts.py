"""All checkers by name, and the verdict of each over a finished run: its violations, in words.

A checker is a pure function over Evidence that yields violations; its docstring is its claim, which reports show.
``tests/unit/chaos/checkers`` shows that each catches a history falsified in its way. Zombies are judged by the order of
the log, not by the time of an answer: a resumed process may receive late the answer to a write from before its stall.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from ...partition.commands import SEQUENCE_MODULUS
from ..history.evidence import Evidence, ReplicaLog, names_of, placed
from ..history.history import Operation, split_name
from .fencing import epoch_uniqueness, outcome_certificate, zombie
from .positions import position
from .reads import aborted_read, nonmonotonic_poll, skipped_poll, stale_read, unseen
from .recovery import recovery
from .slot_history import slot_history

_RECORDS = ("inconsistent-offset", "duplicate", "byte-exact", "order", "gap", "sequence-order")
"""Checkers that examine every record of every replica."""
_OK = {
    "append": ("lost-write", "nonmonotonic-send", "zombie", "slot-history", "unseen", "recovery"),
    "poll": ("nonmonotonic-poll", "skipped-poll", "stale-read", "position"),
    "fetch": ("stale-read",),
    "acquire": ("epoch-uniqueness", "slot-history"),
    "own": ("epoch-uniqueness",),
    "init": ("epoch-uniqueness",),
    "epoch": ("slot-history",),
    "commit": ("position",),
    "position": ("position",),
}
"""Checkers that examine successful operations, by operation."""


def examined_counts(evidence: Evidence) -> Mapping[str, int]:
    """The number of records or answers that each checker examines: what a verdict without violations is worth."""
    found = Counter(dict.fromkeys(_RECORDS, sum(len(log.names) for log in evidence.logs)))
    for op in evidence.operations:
        if op.outcome == "ok":
            found.update(_OK.get(op.invoke.f, ()))
            if op.invoke.f == "poll" and op.invoke.epoch is None:  # not of a member of a group
                found["position"] -= 1
        elif op.outcome == "fail" and op.invoke.f == "append":
            found["aborted-read"] += 1
        found["outcome-certificate"] += op.end is not None and op.end.outcome is not None
    return found


Checker = Callable[[Evidence], Iterator[str]]

VIOLATIONS_SHOWN_MAX = 20
"""Violations kept in words for each checker. All are counted."""


class Verdict(msgspec.Struct, frozen=True):
    """The result of one checker."""

    checker: str
    claim: str
    violations: int
    examples: list[str]
    checked: int = 0
    """How many items it examined: appends, records, reads, or grants."""

    @property
    def checked_words(self) -> str:
        """``checked`` in words, for reports: a verdict on nothing is no good news."""
        return f"{self.checked:,}" if self.checked or self.violations else "nothing to check"

    def plus(self, other: "Verdict") -> "Verdict":
        """The verdict of the same checker over two parts together."""
        examples = [*self.examples, *other.examples][:VIOLATIONS_SHOWN_MAX]
        violations, checked = self.violations + other.violations, self.checked + other.checked
        return Verdict(self.checker, self.claim, violations, examples, checked)


def lost_write(evidence: Evidence) -> Iterator[str]:
    """Every acknowledged record, and every record that a read has shown, is in the log of every replica."""
    if not evidence.logs and (shown := sum(1 for _ in _shown(evidence))):
        yield f"no replica can be read, and {shown} operations have shown stored records"
    for log in evidence.distinct_logs():
        present = set(log.names)
        for op in _shown(evidence):
            if op.end is None or op.invoke.partition != log.partition:
                continue
            missing = [name for name in names_of(op.end) if name not in present]
            if missing:
                yield f"{_place(log)} lacks {missing[0]} ({len(missing)} of {op.invoke.f} {op.invoke.i})"


def inconsistent_offset(evidence: Evidence) -> Iterator[str]:
    """All replicas hold the same record at each offset: the one that was acknowledged or read there."""
    first: dict[int, ReplicaLog] = {}
    for log in evidence.logs:
        other = first.setdefault(log.partition, log)
        if not log.same_as(other):
            yield f"{_place(log)} and {other.node} differ from row {_first_difference(log, other)} on"
    for log in evidence.distinct_logs():
        at = dict(zip(log.names, log.offsets, strict=True))
        for op in _shown(evidence):
            if op.end is None or op.invoke.partition != log.partition:
                continue
            for name, offset in placed(op.end):
                if at.get(name, offset) != offset:
                    yield f"{_place(log)} has {name} at {at[name]}; {op.invoke.f} {op.invoke.i} said {offset}"


def duplicate(evidence: Evidence) -> Iterator[str]:
    """No record, and no sequence number of a producer, is in the log twice."""
    for log in evidence.distinct_logs():
        yield from (f"{_place(log)} has {name} again at {at}" for name, at in _repeated(log, log.names))
        yield from (f"{_place(log)} has stamp {stamp} again at {at}" for stamp, at in _repeated(log, log.stamps))


def byte_exact(evidence: Evidence) -> Iterator[str]:
    """Every record has the bytes that were sent under its name, and no log has a record that was never sent to it."""
    sent: dict[int | None, set[str]] = {}
    for op in evidence.ended("append", "ok", "fail", "info"):
        sent.setdefault(op.invoke.partition, set()).update(names_of(op.invoke))
    for log in evidence.distinct_logs():
        mine = sent.get(log.partition, set())
        for name, value, offset in zip(log.names, log.values, log.offsets, strict=True):
            writer, index = _split_or_none(name)
            expected = evidence.payload(writer, index)
            if value != expected:
                yield f"{_place(log)}, {name} at {offset}: {value[:60]!r}, not {(expected or b'')[:60]!r}"
            elif name not in mine:
                yield f"{_place(log)} has {name} at {offset}, which was never sent there"


def order(evidence: Evidence) -> Iterator[str]:
    """The records of each writer are in the order in which it sent them; if their number is known, none is missing."""
    for log in evidence.distinct_logs():
        indices = [_split_or_none(name) for name in log.names]
        last: dict[str, int] = {}
        for (writer, index), offset in zip(indices, log.offsets, strict=True):
            if 0 <= index <= last.get(writer, -1):  # -1: the key names no record of ours, which byte-exact reports
                yield f"{_place(log)} has {writer}/{index} at {offset}, behind {writer}/{last[writer]}"
            last[writer] = index
        if evidence.expected is not None:
            yield from _off_the_expected(log, [index for _, index in indices], evidence.expected[log.partition])


def nonmonotonic_send(evidence: Evidence) -> Iterator[str]:
    """Of two appends of one writer to one partition, the later one is acknowledged at the higher offset."""
    last: dict[tuple[str, int | None], int] = {}
    for op in evidence.ended("append", "ok"):
        if op.end is None or op.end.offset is None:
            continue
        sender = (op.invoke.process, op.invoke.partition)
        if op.end.offset <= last.get(sender, -1):
            yield f"append {op.invoke.i} of {sender} acknowledged at {op.end.offset}, before {last[sender]}"
        last[sender] = op.end.offset


def gap(evidence: Evidence) -> Iterator[str]:
    """Every offset from the start of a log to its end has a record."""
    for log in evidence.distinct_logs():
        if list(log.offsets) != list(range(log.log_start, log.log_end)):
            yield f"{_place(log)}: {len(log.offsets)} records in {log.log_start}..{log.log_end}, or a hole"


def sequence_order(evidence: Evidence) -> Iterator[str]:
    """Along the log, the sequence numbers of one producer epoch start at 0 and have no hole."""
    for log in evidence.distinct_logs():
        expected: dict[tuple[int, int], int] = {}
        for stamp, offset in zip(log.stamps, log.offsets, strict=True):
            if stamp is None:
                continue
            pid, epoch, seq = stamp
            if seq != expected.get((pid, epoch), 0):
                yield f"{_place(log)} has {stamp} at {offset}; expected was {expected.get((pid, epoch), 0)}"
            expected[pid, epoch] = (seq + 1) % SEQUENCE_MODULUS


CHECKERS: dict[str, Checker] = {
    "lost-write": lost_write,
    "inconsistent-offset": inconsistent_offset,
    "duplicate": duplicate,
    "byte-exact": byte_exact,
    "order": order,
    "aborted-read": aborted_read,
    "nonmonotonic-poll": nonmonotonic_poll,
    "skipped-poll": skipped_poll,
    "nonmonotonic-send": nonmonotonic_send,
    "gap": gap,
    "sequence-order": sequence_order,
    "zombie": zombie,
    "epoch-uniqueness": epoch_uniqueness,
    "slot-history": slot_history,
    "stale-read": stale_read,
    "outcome-certificate": outcome_certificate,
    "position": position,
    "unseen": unseen,
    "recovery": recovery,
}
"""Every checker by the name under which it reports."""


def judge(evidence: Evidence) -> list[Verdict]:
    """The verdict of every checker."""
    counts = examined_counts(evidence)
    return [_verdict(name, checker, evidence, counts.get(name, 0)) for name, checker in CHECKERS.items()]


def _verdict(name: str, checker: Checker, evidence: Evidence, checked: int) -> Verdict:
    found = checker(evidence)
    examples = list(islice(found, VIOLATIONS_SHOWN_MAX))
    claim = " ".join((checker.__doc__ or "").split())
    return Verdict(name, claim, len(examples) + sum(1 for _ in found), examples, checked)


def _shown(evidence: Evidence) -> Iterator[Operation]:
    """Operations whose answer says that records are stored."""
    return (op for op in evidence.operations if op.invoke.f in {"append", "fetch", "poll"} and op.outcome == "ok")


def _place(log: ReplicaLog) -> str:
    return f"partition {log.partition} on {log.node}"


def _split_or_none(name: str) -> tuple[str, int]:
    try:
        return split_name(name)
    except ValueError:
        return name, -1


def _repeated(log: ReplicaLog, column: Sequence[Hashable]) -> Iterator[tuple[Hashable, int]]:
    seen: set[Hashable] = set()
    for item, offset in zip(column, log.offsets, strict=True):
        if item is None:
            continue
        if item in seen:
            yield item, offset
        seen.add(item)


def _first_difference(log: ReplicaLog, other: ReplicaLog) -> int:
    rows = (zip(each.names, each.values, each.stamps, each.writer_epochs, strict=True) for each in (log, other))
    pairs = enumerate(zip(*rows, strict=False))
    return next((k for k, (left, right) in pairs if left != right), min(len(log.names), len(other.names)))


def _off_the_expected(log: ReplicaLog, indices: list[int], expected: int) -> Iterator[str]:
    if len(indices) != expected:
        yield f"{_place(log)} has {len(indices)} records; expected were {expected}"
    off = next((k for k, index in enumerate(indices) if index != k), None)
    if off is not None:
        yield f"{_place(log)} leaves the expected log at row {off}: line {indices[off]}"
