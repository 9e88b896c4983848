"""Judges what fencing promises: one writer at a time, epochs given once, certificates that tell the truth.

Pure functions over Evidence, like those of checkers.py, which lists them.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from ..partition.commands import SEQUENCE_MODULUS
from .evidence import Evidence, ReplicaLog, Stamp, names_of
from .history import Event, Operation
from .superseding import Grants, Seat, claimed, granted


def zombie(evidence: Evidence) -> Iterator[str]:
    """Epochs never decrease along the log, each belongs to one writer, and no append under an old one succeeds:
    neither of a slot, nor of an owned resource, nor of a producer's name.
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


def epoch_uniqueness(evidence: Evidence) -> Iterator[str]:
    """No fencing epoch of a partition or resource, and no epoch of a producer's identity, is given to two processes."""
    holders: dict[tuple[Seat, int], str] = {}
    for op in evidence.operations:
        if op.end is None or op.outcome != "ok":
            continue
        for seat, epoch in granted(op):
            holder = holders.setdefault((seat, epoch), op.invoke.process)
            if holder != op.invoke.process:
                yield f"epoch {epoch} of {seat[0]} {seat[1]} was granted to {holder} and to {op.invoke.process}"


def outcome_certificate(evidence: Evidence) -> Iterator[str]:
    """What a fencing refusal says about the refused batch, committed at these offsets or absent, is what the
    log shows.
    """
    certified = [op for op in evidence.operations if op.end is not None and op.end.outcome is not None]
    for log in evidence.distinct_logs():
        stored = {stamp: offset for stamp, offset in zip(log.stamps, log.offsets, strict=True) if stamp is not None}
        for op in certified:
            if op.invoke.partition == log.partition and (wrong := _wrong_certificate(op, stored)):
                yield f"partition {log.partition} on {log.node}, append {op.invoke.i}: {wrong}"


def process_of(name: str) -> str:
    """Who wrote a record: what stands in its name before the mark of the partition, and of an attempt."""
    return name.rpartition("/")[0].partition("@")[0].partition("+")[0]


def stamps_of(event: Event) -> list[Stamp]:
    """The stamps of the records that an append carried; none without a producer."""
    if event.producer_id is None or event.producer_epoch is None or event.seq is None:
        return []
    return [
        (event.producer_id, event.producer_epoch, (event.seq + k) % SEQUENCE_MODULUS) for k in range(event.count or 0)
    ]


class _Claims(msgspec.Struct, frozen=True):
    """Under what the records of an evidence were sent, as far as their names tell."""

    owner: Mapping[str, tuple[str, int]]
    """Of what was written by the owner of a resource: that, and its fence_epoch."""
    exclusive: AbstractSet[str]
    """What was sent under a token of an exclusive slot; without an acquire in the evidence, everything."""

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
    """``column`` has (whose epoch, epoch) for each record, or None."""
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
    """Epoch 0 is the open slot, which anybody may share; so may anybody share a later one that its owner has left."""
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
            yield f"{place}: {writer} wrote in epoch {epoch} after {left[epoch]}, who shared what {writer} had left"
        elif owners.setdefault(epoch, writer) != writer:
            yield f"{place}: {owners[epoch]} and {writer} both wrote in epoch {epoch}"


def _shared_identities(log: ReplicaLog) -> Iterator[str]:
    """A producer id in one epoch is one writer."""
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
    """Appends invoked after a higher epoch was answered to somebody, and accepted all the same."""
    grants = Grants.of(evidence)
    for op in evidence.ended("append", "ok"):
        for seat, epoch in claimed(op.invoke):
            newer = grants.newer(seat, epoch, op.invoke.t_mono_ns)
            if newer is not None:
                yield f"append {op.invoke.i} of epoch {epoch} of {seat[0]} {seat[1]} accepted after {newer} came"


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
