"""The course of a run, for the plot: how many operations began when, and how they ended."""

from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from .evidence import Evidence
from .findings import Slot, Timeline

SLOTS = 120
MARKS_MAX = 200
"""Of what the nemesis did, the first so many are shown."""
NS = 1_000_000_000


def timeline(evidence: Evidence) -> Timeline:
    """At most SLOTS slots."""
    ops = evidence.operations
    first, last = ops.select(F.min("begun_ns"), F.max("begun_ns")).first()
    if first is None:
        return Timeline(1.0, [], [])
    width = max(-(-(last - first + 1) // SLOTS), 1)
    counts: dict[tuple[int, str], int] = {}
    for slot, kind, count in _counted(ops, first, width):
        counts[slot, kind] = count
    slots = [
        Slot(*(counts.get((slot, kind), 0) for kind in Slot._fields)) for slot in range((last - first) // width + 1)
    ]
    return Timeline(width / NS, slots, _marks(evidence, first, last))


def _counted(ops: Any, first: int, width: int) -> list[Any]:
    slot = F.expr(f"(begun_ns - {first}L) div {width}L").alias("slot")
    found: list[Any] = ops.groupBy(slot, "type").count().collect()
    return found


def _marks(evidence: Evidence, first: int, last: int) -> list[tuple[float, str]]:
    within = evidence.marks.where(F.col("t_mono_ns").between(first, last)).orderBy("i").limit(MARKS_MAX)
    return [
        ((row["t_mono_ns"] - first) / NS, f"{row['f']}: {row['error'] or ''}".rstrip(": ")) for row in within.collect()
    ]
