"""Judges a consumer group's positions: they never go back, and a replaced member can neither commit nor read.

Pure functions over Evidence; verdicts.py lists them.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from ..history.evidence import Evidence
from ..history.history import Operation
from .fencing import Grants


def position(evidence: Evidence) -> Iterator[str]:
    """A group's position never goes back, and is one that a member set; a replaced member neither commits nor reads."""
    yield from _going_back(evidence)
    yield from _never_set(evidence)
    grants = Grants.of(evidence)
    for op in (*evidence.ended("commit", "ok"), *evidence.ended("poll", "ok")):
        resource = f"{op.invoke.topic}/{op.invoke.partition}"
        if op.invoke.epoch is None:
            continue
        newer = grants.newer(("resource", resource), op.invoke.epoch, op.invoke.t_mono_ns)
        if newer is not None:
            yield f"{op.invoke.f} {op.invoke.i} under {op.invoke.epoch} accepted after epoch {newer} was granted"


def _going_back(evidence: Evidence) -> Iterator[str]:
    """Violations: positions read or committed below one that was committed or read before the operation began."""
    shown: dict[tuple[int | None, str | None], list[tuple[int, int]]] = {}
    for op in (*evidence.ended("commit", "ok"), *evidence.ended("position", "ok")):
        assert op.end is not None
        position = op.invoke.offset if op.invoke.f == "commit" else op.end.offset
        shown.setdefault(_group(op), []).append((op.end.t_mono_ns, position or 0))
    for pairs in shown.values():
        pairs.sort()
    known = {
        group: ([at for at, _ in pairs], list(accumulate((offset for _, offset in pairs), max)))
        for group, pairs in shown.items()
    }
    for op in (*evidence.ended("commit", "ok"), *evidence.ended("position", "ok")):
        assert op.end is not None
        times, offsets = known.get(_group(op), ([], []))
        before = bisect_left(times, op.invoke.t_mono_ns)
        least = offsets[before - 1] if before else 0
        if (op.end.offset or 0) < least:
            yield f"{op.invoke.f} {op.invoke.i} has {op.end.offset}, after {least} was committed or read"


def _never_set(evidence: Evidence) -> Iterator[str]:
    """Violations: positions read that no commit had sent before the answer; there a group would skip records."""
    first: dict[tuple[tuple[int | None, str | None], int], int] = {}
    for op in evidence.ended("commit", "ok", "info"):
        place = (_group(op), op.invoke.offset or 0)
        first[place] = min(first.get(place, op.invoke.t_mono_ns), op.invoke.t_mono_ns)
    for op in evidence.ended("position", "ok"):
        assert op.end is not None
        if op.end.offset and first.get((_group(op), op.end.offset), op.end.t_mono_ns) >= op.end.t_mono_ns:
            yield f"position {op.invoke.i} has {op.end.offset}, which no member had set"


def _group(op: Operation) -> tuple[int | None, str | None]:
    return op.invoke.partition, op.invoke.resource
