"""Judges what fencing promises: one writer at a time, epochs given once, certificates that tell the truth.

Pure functions over Evidence, like those of checkers.py, which lists them.
"""

from collections.abc import Iterator

from ..partition.commands import SEQUENCE_MODULUS
from .evidence import Evidence, ReplicaLog, Stamp, names_of
from .history import Event, Operation


def zombie(evidence: Evidence) -> Iterator[str]:
    """Epochs never decrease along the log, each belongs to one writer, and no append under an old one
    succeeds.
    """
    for log in evidence.distinct_logs():
        yield from _decreasing_epochs(log)
        yield from _shared_epochs(log)
        yield from _wrong_epochs(evidence, log)
    yield from _late_successes(evidence)


def epoch_uniqueness(evidence: Evidence) -> Iterator[str]:
    """No fencing epoch of a partition is granted twice."""
    granted: dict[tuple[int | None, int | None], str] = {}
    for op in evidence.ended("acquire", "ok"):
        assert op.end is not None
        holder = granted.setdefault((op.invoke.partition, op.end.epoch), op.invoke.process)
        if holder != op.invoke.process:
            place = f"epoch {op.end.epoch} of partition {op.invoke.partition}"
            yield f"{place} was granted to {holder} and to {op.invoke.process}"


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


def stamps_of(event: Event) -> list[Stamp]:
    """The stamps of the records that an append carried; none without a producer."""
    if event.producer_id is None or event.producer_epoch is None or event.seq is None:
        return []
    return [
        (event.producer_id, event.producer_epoch, (event.seq + k) % SEQUENCE_MODULUS) for k in range(event.count or 0)
    ]


def _decreasing_epochs(log: ReplicaLog) -> Iterator[str]:
    highest = 0
    for epoch, offset in zip(log.writer_epochs, log.offsets, strict=True):
        if epoch < highest:
            yield f"partition {log.partition} on {log.node} has epoch {epoch} at {offset}, after {highest}"
        highest = max(highest, epoch)


def _shared_epochs(log: ReplicaLog) -> Iterator[str]:
    """Epoch 0 is the open slot, which anybody may share."""
    writers: dict[int, str] = {}
    for epoch, name in zip(log.writer_epochs, log.names, strict=True):
        writer = name.rpartition("/")[0]
        if epoch and writers.setdefault(epoch, writer) != writer:
            place = f"partition {log.partition} on {log.node}"
            yield f"{place}: {writers[epoch]} and {writer} both wrote in epoch {epoch}"


def _wrong_epochs(evidence: Evidence, log: ReplicaLog) -> Iterator[str]:
    stored = dict(zip(log.names, log.writer_epochs, strict=True))
    for op in evidence.ended("append", "ok", "info"):
        if op.invoke.partition != log.partition or op.invoke.epoch is None:
            continue
        for name in names_of(op.invoke):
            if stored.get(name, op.invoke.epoch) != op.invoke.epoch:
                yield f"{name} was sent under epoch {op.invoke.epoch} and is stored under {stored[name]}"


def _late_successes(evidence: Evidence) -> Iterator[str]:
    """Appends invoked after a higher epoch was answered to somebody, and accepted all the same."""
    grants = [op.end for op in evidence.ended("acquire", "ok") if op.end is not None and op.end.epoch is not None]
    for op in evidence.ended("append", "ok"):
        for grant in grants:
            if (
                grant.partition == op.invoke.partition
                and op.invoke.epoch is not None
                and op.invoke.epoch < (grant.epoch or 0)
                and op.invoke.t_mono_ns > grant.t_mono_ns
            ):
                yield f"append {op.invoke.i} of epoch {op.invoke.epoch} accepted after {grant.epoch} came"


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
