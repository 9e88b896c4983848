"""Judges reads: readers see every acknowledged record, in order, and no refused one.

Pure functions over Evidence; verdicts.py lists them.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from ..history.evidence import Evidence, names_of
from ..history.history import Operation


def aborted_read(evidence: Evidence) -> Iterator[str]:
    """A record of which every append was refused, for certain without an effect, is in no log and in no read."""
    failed = {name for op in evidence.ended("append", "fail") for name in names_of(op.invoke)}
    failed -= {name for op in evidence.ended("append", "ok", "info") for name in names_of(op.invoke)}
    for log in evidence.distinct_logs():
        place = f"partition {log.partition} on {log.node}"
        yield from (f"{place} has {name}, which was refused" for name in log.names if name in failed)
    for op in (*evidence.ended("poll", "ok"), *evidence.ended("fetch", "ok")):
        assert op.end is not None
        shown = [name for name in names_of(op.end) if name in failed]
        yield from (f"{op.invoke.f} {op.invoke.i} read {name}, which was refused" for name in shown)


def stale_read(evidence: Evidence) -> Iterator[str]:
    """A linearizable read shows every record that was acknowledged, or shown by another read, before it began."""
    known = _known_ends(evidence)
    for op in (*evidence.ended("fetch", "ok"), *evidence.ended("poll", "ok")):
        times, ends = known.get(op.invoke.partition, ([], []))
        before = bisect_left(times, op.invoke.t_mono_ns)
        least, seen = ends[before - 1] if before else 0, _end_of(op)
        if (seen or 0) < least:
            yield f"{op.invoke.f} {op.invoke.i} saw log end {seen}; {least} was acknowledged or read before it"


def nonmonotonic_poll(evidence: Evidence) -> Iterator[str]:
    """No poll returns records from before the offset asked for."""
    for op in evidence.ended("poll", "ok"):
        first, asked = _first_offset(op), op.invoke.offset or 0
        if first < asked:
            yield f"poll {op.invoke.i} asked for {asked} and got {first}"


def skipped_poll(evidence: Evidence) -> Iterator[str]:
    """No poll skips records: its answer begins at the offset asked for, without a hole."""
    for op in evidence.ended("poll", "ok"):
        assert op.end is not None
        first, asked = _first_offset(op), op.invoke.offset or 0
        if first > asked:
            yield f"poll {op.invoke.i} asked for {asked} and got {op.end.count} records that end at {op.end.offset}"


def unseen(evidence: Evidence) -> Iterator[str]:
    """Every acknowledged record of a partition with readers was read at most 30 s after the writers ended."""
    drained = [note for note in evidence.notes if note.f == "drained"]
    read: dict[int | None, set[str]] = {}
    for op in evidence.operations:
        if op.invoke.f == "poll":
            seen = read.setdefault(op.invoke.partition, set())
            if op.end is not None and op.outcome == "ok":
                seen.update(names_of(op.end))
    if not drained:
        return
    for op in evidence.ended("append", "ok"):
        mine = read.get(op.invoke.partition)
        missing = [name for name in names_of(op.invoke) if mine is not None and name not in mine]
        if missing:
            yield f"{missing[0]} (append {op.invoke.i} to partition {op.invoke.partition}) was never read"


def _first_offset(op: Operation) -> int:
    """The offset of a poll's first record; without records, its next offset."""
    assert op.end is not None
    return (op.end.offset or 0) - (op.end.count or 0)


def _end_of(op: Operation) -> int | None:
    """The log end that the answer of an append, a poll or a fetch shows."""
    assert op.end is not None
    if op.invoke.f == "append":
        return None if op.end.offset is None else op.end.offset + (op.end.count or 0)
    return op.end.log_end if op.invoke.f == "poll" else op.end.offset


def _known_ends(evidence: Evidence) -> dict[int | None, tuple[list[int], list[int]]]:
    """For each partition: the times of answers to appends and reads, and the log end known from each on."""
    ends: dict[int | None, list[tuple[int, int]]] = {}
    for op in (op for f in ("append", "fetch", "poll") for op in evidence.ended(f, "ok")):
        end = _end_of(op)
        if op.end is not None and end is not None:
            ends.setdefault(op.invoke.partition, []).append((op.end.t_mono_ns, end))
    known: dict[int | None, tuple[list[int], list[int]]] = {}
    for partition, pairs in ends.items():
        pairs.sort()
        known[partition] = ([at for at, _ in pairs], list(accumulate((end for _, end in pairs), max)))
    return known
