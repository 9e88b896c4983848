"""The form of violations, and the two queries that most checkers are made of."""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from .evidence import WHOLE

_PLACE = ("topic", f"nullif(partition, {WHOLE}) as partition")
"""SQL: the place of a violation; that of a topic as a whole has no partition."""


def violations(frame: Any, checker: str, condition: str, what: str, offset: str | None = None) -> Any:
    """A violation (checker, topic, partition, offset, what) for each row for which ``condition`` holds; ``what`` is SQL
    that makes a sentence.
    """
    place = F.col(offset) if offset else F.lit(None)
    return frame.where(condition).select(
        F.lit(checker).alias("checker"),
        *map(F.expr, _PLACE),
        place.cast("long").alias("offset"),
        F.expr(what).alias("what"),
    )


def all_of(frame: Any, *found: tuple[str, str, str], offset: str) -> Any:
    """The violations of several kinds, each (checker, condition, what), in one pass; a row may be a violation of
    several.
    """
    kinds = [
        F.when(F.expr(condition), F.struct(F.lit(checker).alias("checker"), F.expr(what).alias("what")))
        for checker, condition, what in found
    ]
    # Filter first: most rows are no violation, and the rest of the query is slow.
    odd = frame.where(any_of(*found))
    each = odd.withColumn("found", F.array_compact(F.array(*kinds)))
    exploded = each.select(
        *map(F.expr, _PLACE), F.col(offset).cast("long").alias("offset"), F.explode("found").alias("found")
    )
    return exploded.select("found.checker", "topic", "partition", "offset", "found.what")


def any_of(*found: tuple[str, str, str]) -> str:
    """The condition, in SQL, that a row is a violation of at least one of these kinds."""
    return " or ".join(f"({condition})" for _, condition, _ in found)


def behind(known: Any, asked: Any, keys: list[str]) -> Any:
    """The rows of ``asked`` with ``seen < high``, where ``high`` is the greatest ``known.high`` of the same keys with
    ``known.t < asked.t``.

    ``known`` has the columns ``keys``, ``t``, ``high``; ``asked`` has ``keys``, ``t``, ``seen``, and any others.
    """
    rows = asked.withColumn("is_known", F.lit(False)).unionByName(
        known.select(*keys, "t", F.col("high").alias("_high")).withColumn("is_known", F.lit(True)),
        allowMissingColumns=True,
    )
    before = Window.partitionBy(*keys).orderBy("t", "is_known").rowsBetween(Window.unboundedPreceding, -1)
    return rows.withColumn("high", F.max("_high").over(before)).where("not is_known and seen < high")
