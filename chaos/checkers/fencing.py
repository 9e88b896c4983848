"""Judges fencing: one writer at a time, each epoch granted once, true outcome certificates.

The rule: if epoch e of a scope was answered to a client before an operation began, an operation with a token of an
epoch below e must be refused. Pure functions over Evidence; verdicts.py lists them.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import accumulate

import msgspec

from ...partition.commands import SEQUENCE_MODULUS
from ..history.evidence import Evidence, ReplicaLog, Stamp, names_of
from ..history.history import Event, Operation

EpochScope = tuple[str, Hashable]
"""What an epoch belongs to: ("slot", partition), ("resource", name) or ("producer", producer id)."""


class Grants:
    """For each scope: the highest epoch that was answered to any client, over time."""

    def __init__(self, granted: Iterable[tuple[EpochScope, int, int]]) -> None:
        """``granted``: (scope, when it was answered, epoch)."""
        scopes: dict[EpochScope, list[tuple[int, int]]] = {}
        for scope, at_ns, epoch in granted:
            scopes.setdefault(scope, []).append((at_ns, epoch))
        self._known: dict[EpochScope, tuple[list[int], list[int]]] = {}
        for scope, pairs in scopes.items():
            pairs.sort()
            self._known[scope] = ([at for at, _ in pairs], list(accumulate((epoch for _, epoch in pairs), max)))

    @classmethod
    def of(cls, evidence: Evidence) -> "Grants":
        """The epochs in the answers to all successful acquires, owns and inits."""
        return cls(
            (scope, op.end.t_mono_ns, epoch)
            for op in evidence.operations
            if op.end is not None and op.outcome == "ok" and op.invoke.f in {"acquire", "own", "init"}
            for scope, epoch in granted(op)
        )

    def newer(self, scope: EpochScope, epoch: int, at_ns: int) -> int | None:
        """A higher epoch of the scope that was answered before ``at_ns``; None if there was none."""
        times, epochs = self._known.get(scope, ([], []))
        before = bisect_left(times, at_ns)
        highest = epochs[before - 1] if before else epoch
        return highest if highest > epoch else None


def granted(op: Operation) -> list[tuple[EpochScope, int]]:
    """The epochs that a successful acquire, own or init was granted."""
    assert op.end is not None
    if op.invoke.f == "init" and op.end.producer_id is not None and op.end.producer_epoch is not None:
        return [(("producer", op.end.producer_id), op.end.producer_epoch)]
    if op.end.epoch is None:
        return []
    if op.invoke.f == "own":
        return [(("resource", op.invoke.resource), op.end.epoch)]
    return [(("slot", op.invoke.partition), op.end.epoch)] if op.invoke.f == "acquire" else []


def claimed(invoked: Event) -> list[tuple[EpochScope, int]]:
    """The epochs with which an append was sent: of its token or fence_epoch, and of its producer."""
    scopes: list[tuple[EpochScope, int]] = []
    if invoked.epoch is not None:
        scope = ("slot", invoked.partition) if invoked.resource is None else ("resource", invoked.resource)
        scopes.append((scope, invoked.epoch))
    if invoked.producer_id is not None and invoked.producer_epoch is not None:
        scopes.append((("producer", invoked.producer_id), invoked.producer_epoch))
    return scopes


def zombie(evidence: Evidence) -> Iterator[str]:
    """No former holder of a slot, owner of a resource, or instance of a producer writes: along the log epochs never
    decrease, each belongs to one writer, and no append succeeds after a higher epoch was granted, or after its own
    grant was released.
    """
    claims = _Claims.of(evidence)
    for log in evidence.distinct_logs():
        yield from _decreasing(log, "epoch", (("", epoch) for epoch in log.writer_epochs))
        yield from _decreasing(log, "producer epoch", (stamp and stamp[:2] for stamp in log.stamps))
        yield from _decreasing(log, "fence_epoch", (claims.owner.get(name) for name in log.names))
        yield from _shared_epochs(log, claims)
        yield from _shared_identities(log)
        yield from _wrong_epochs(evidence, log)
    yield from _late_successes(evidence)
    yield from _after_release(evidence)


def epoch_uniqueness(evidence: Evidence) -> Iterator[str]:
    """No fencing epoch of a partition or resource, and no epoch of a producer id, is granted to two processes."""
    holders: dict[tuple[EpochScope, int], str] = {}
    for op in evidence.operations:
        if op.end is None or op.outcome != "ok":
            continue
        for scope, epoch in granted(op):
            holder = holders.setdefault((scope, epoch), op.invoke.process)
            if holder != op.invoke.process:
                yield f"epoch {epoch} of {scope[0]} {scope[1]} was granted to {holder} and to {op.invoke.process}"


def outcome_certificate(evidence: Evidence) -> Iterator[str]:
    """What a fencing refusal certifies about its records is true: the log has the committed ones, and no absent one."""
    certified = [op for op in evidence.operations if op.end is not None and op.end.outcome is not None]
    for log in evidence.distinct_logs():
        stored = {stamp: offset for stamp, offset in zip(log.stamps, log.offsets, strict=True) if stamp is not None}
        for op in certified:
            if op.invoke.partition == log.partition and (wrong := _wrong_certificate(op, stored)):
                yield f"partition {log.partition} on {log.node}, append {op.invoke.i}: {wrong}"


def process_of(name: str) -> str:
    """The writer of a record: the part of its name before the marks of the partition and of an attempt."""
    return name.rpartition("/")[0].partition("@")[0].partition("+")[0]


def stamps_of(event: Event) -> list[Stamp]:
    """The stamps of the records that an append carried; none without a producer."""
    if event.producer_id is None or event.producer_epoch is None or event.seq is None:
        return []
    return [
        (event.producer_id, event.producer_epoch, (event.seq + k) % SEQUENCE_MODULUS) for k in range(event.count or 0)
    ]


class _Claims(msgspec.Struct, frozen=True):
    """The claims under which records were sent, by record name."""

    owner: Mapping[str, tuple[str, int]]
    """For records of an owner of a resource: (resource, fence_epoch)."""
    exclusive: AbstractSet[str]
    """Records that were sent with the token of an exclusive slot."""

    @classmethod
    def of(cls, evidence: Evidence) -> "_Claims":
        seated = {op.invoke.process for op in evidence.ended("share", "ok")}
        owner: dict[str, tuple[str, int]] = {}
        exclusive: set[str] = set()
        for op in evidence.ended("append", "ok", "info"):
            if op.invoke.resource is not None and op.invoke.epoch is not None:
                owner |= dict.fromkeys(names_of(op.invoke), (op.invoke.resource, op.invoke.epoch))
            elif op.invoke.epoch is not None and op.invoke.process not in seated:
                exclusive.update(names_of(op.invoke))
        return cls(owner, exclusive)


def _decreasing(log: ReplicaLog, what: str, column: Iterable[tuple[Hashable, int] | None]) -> Iterator[str]:
    """Violations: records with a lower epoch than an earlier record. ``column`` has, for each record, (owner of the
    epoch, epoch), or None; ``what`` names the epoch.
    """
    highest: dict[Hashable, int] = {}
    for entry, offset in zip(column, log.offsets, strict=True):
        if entry is None:
            continue
        whose, epoch = entry
        before = highest.get(whose, 0)
        if epoch < before:
            yield f"partition {log.partition} on {log.node} has {what} {epoch} at {offset}, after {before}"
        highest[whose] = max(before, epoch)


def _shared_epochs(log: ReplicaLog, claims: _Claims) -> Iterator[str]:
    """Violations: two writers in one epoch. Epoch 0 is the open slot, in which all may write. In a later epoch writers
    without its token may follow once the holder has left; then the holder writes no more.
    """
    owners: dict[int, str] = {}
    left: dict[int, str] = {}
    for epoch, name in zip(log.writer_epochs, log.names, strict=True):
        writer = process_of(name)
        if not epoch:
            continue
        place = f"partition {log.partition} on {log.node}"
        if name not in claims.exclusive:
            left[epoch] = writer
        elif epoch in left:
            yield f"{place}: {writer} wrote in epoch {epoch} after {left[epoch]} had written there without its token"
        elif owners.setdefault(epoch, writer) != writer:
            yield f"{place}: {owners[epoch]} and {writer} both wrote in epoch {epoch}"


def _shared_identities(log: ReplicaLog) -> Iterator[str]:
    """Violations: two writers that used one producer id in one producer epoch."""
    writers: dict[tuple[int, int], str] = {}
    for stamp, name in zip(log.stamps, log.names, strict=True):
        if stamp is None:
            continue
        writer = process_of(name)
        if writers.setdefault(stamp[:2], writer) != writer:
            place = f"partition {log.partition} on {log.node}"
            yield f"{place}: {writers[stamp[:2]]} and {writer} both wrote as producer {stamp[0]}, epoch {stamp[1]}"


def _wrong_epochs(evidence: Evidence, log: ReplicaLog) -> Iterator[str]:
    stored = dict(zip(log.names, log.writer_epochs, strict=True))
    for op in evidence.ended("append", "ok", "info"):
        if op.invoke.partition != log.partition or op.invoke.epoch is None or op.invoke.resource is not None:
            continue
        for name in names_of(op.invoke):
            if stored.get(name, op.invoke.epoch) != op.invoke.epoch:
                yield f"{name} was sent under epoch {op.invoke.epoch} and is stored under {stored[name]}"


def _late_successes(evidence: Evidence) -> Iterator[str]:
    """Violations: appends that were accepted, although a higher epoch had been answered before they began."""
    grants = Grants.of(evidence)
    for op in evidence.ended("append", "ok"):
        for scope, epoch in claimed(op.invoke):
            newer = grants.newer(scope, epoch, op.invoke.t_mono_ns)
            if newer is not None:
                of = f"epoch {epoch} of {scope[0]} {scope[1]}"
                yield f"append {op.invoke.i} of {of} accepted after epoch {newer} was granted"


def _after_release(evidence: Evidence) -> Iterator[str]:
    """Violations: appends that were accepted, although their process had been told that its grant was over."""
    released: dict[tuple[str, int | None, int | None], int] = {}
    for op in evidence.ended("release", "ok"):
        assert op.end is not None
        grant = (op.invoke.process, op.invoke.partition, op.invoke.epoch)
        released[grant] = min(released.get(grant, op.end.t_mono_ns), op.end.t_mono_ns)
    for op in evidence.ended("append", "ok"):
        grant = (op.invoke.process, op.invoke.partition, op.invoke.epoch)
        if op.invoke.resource is None and released.get(grant, op.invoke.t_mono_ns) < op.invoke.t_mono_ns:
            yield f"append {op.invoke.i} of epoch {op.invoke.epoch} accepted after its grant was released"


def _wrong_certificate(op: Operation, stored: dict[Stamp, int]) -> str | None:
    assert op.end is not None
    outcome = op.end.outcome or {}
    found = [stored[stamp] for stamp in stamps_of(op.invoke) if stamp in stored]
    match outcome["state"]:
        case "absent" if found:
            return f"certified absent, but {found[0]} holds it"
        case "committed" if len(found) != op.invoke.count:
            return f"certified committed, but {len(found)} of {op.invoke.count} records are there"
        case "committed" if outcome["base_offset"] is not None:
            said = (outcome["base_offset"], outcome["last_offset"])
            if said != (found[0], found[-1]):
                return f"certified at {said}, stored at {(found[0], found[-1])}"
    return None
