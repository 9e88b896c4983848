"""The form of what a checker finds, and the two shapes of question that most of them ask."""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from .evidence import WHOLE

_PLACE = ("topic", f"nullif(partition, {WHOLE}) as partition")
"""The place of a violation in SQL: one of a topic as a whole has no partition."""


def violations(frame: Any, checker: str, condition: str, what: str, offset: str | None = None) -> Any:
    """Rows (checker, topic, partition, offset, what) where ``condition`` holds; ``what`` is SQL for a sentence."""
    place = F.col(offset) if offset else F.lit(None)
    return frame.where(condition).select(
        F.lit(checker).alias("checker"),
        *map(F.expr, _PLACE),
        place.cast("long").alias("offset"),
        F.expr(what).alias("what"),
    )


def all_of(frame: Any, *found: tuple[str, str, str], offset: str | None = None) -> Any:
    """Several kinds of violations found in one pass: (checker, condition, what) each. A row may be several of them."""
    kinds = [
        F.when(F.expr(condition), F.struct(F.lit(checker).alias("checker"), F.expr(what).alias("what")))
        for checker, condition, what in found
    ]
    place = F.col(offset) if offset else F.lit(None)
    # First whether it is any of them: most rows are none, and what follows is slow.
    odd = frame.where(any_of(*found))
    each = odd.withColumn("found", F.array_compact(F.array(*kinds)))
    exploded = each.select(*map(F.expr, _PLACE), place.cast("long").alias("offset"), F.explode("found").alias("found"))
    return exploded.select("found.checker", "topic", "partition", "offset", "found.what")


def any_of(*found: tuple[str, str, str]) -> str:
    """The condition that a row is at least one of these kinds."""
    return " or ".join(f"({condition})" for _, condition, _ in found)


def behind(known: Any, asked: Any, keys: list[str]) -> Any:
    """Rows of ``asked`` with ``high``: the greatest ``known.high`` of the same keys that was there before.

    ``known`` has columns keys, t, high; ``asked`` keys, t, seen, and what is wanted besides. At equal times nothing was
    known before.
    """
    rows = asked.withColumn("is_known", F.lit(False)).unionByName(
        known.select(*keys, "t", F.col("high").alias("_high")).withColumn("is_known", F.lit(True)),
        allowMissingColumns=True,
    )
    before = Window.partitionBy(*keys).orderBy("t", "is_known").rowsBetween(Window.unboundedPreceding, -1)
    return rows.withColumn("high", F.max("_high").over(before)).where("not is_known and seen < high")
