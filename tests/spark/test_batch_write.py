"""``write.format("stockade")``: what is written, how often, and what is refused."""

from typing import Any

import pytest
from integration.api import Topic, call, expect
from pyspark.errors import AnalysisException

from .topics import load

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]


def write(frame: Any, topic: Topic, mode: str = "append", **options: str) -> None:
    frame.write.format("stockade").options(url=topic.node, topic=topic.name, **options).mode(mode).save()


def values(spark: Any, topic: Topic) -> list[int]:
    return sorted(int(row.value) for row in load(spark, topic).select("value").collect())


def test_a_batch_with_a_name_is_written_once_however_often_it_is_run(spark: Any, url: str) -> None:
    topic = Topic(url, "batches")
    topic.create(partitions=2)
    for first in (0, 1000):  # the second run computes other rows
        rows = spark.range(first, first + 100, 1, 2).selectExpr(
            "cast(id as string) as value", "cast(id as string) as key"
        )
        write(rows, topic, sink="batches-1")
    assert values(spark, topic) == list(range(100))
    write(spark.range(5).selectExpr("cast(id as string) as value"), topic)  # without a name: each run is one of its own
    assert values(spark, topic) == sorted([*range(100), *range(5)])


def test_temporary_views_read_and_write_in_sql_and_a_table_of_the_catalog_is_refused_with_this_advice(
    spark: Any, url: str
) -> None:
    topic = Topic(url, "in-sql")
    topic.create()
    options = f"USING stockade OPTIONS (url '{url}', {{}} '{topic.name}')"
    spark.sql(f"CREATE TEMPORARY VIEW written (value BINARY) {options.format('topic')}")
    spark.sql("INSERT INTO written VALUES (CAST('7' AS BINARY)), (CAST('8' AS BINARY))")
    spark.sql(f"CREATE TEMPORARY VIEW stored {options.format('subscribe')}")
    rows = spark.sql("SELECT CAST(value AS STRING) AS value FROM stored ORDER BY offset").collect()
    assert [row.value for row in rows] == ["7", "8"]
    with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE kept {options.format('subscribe')}")


@pytest.mark.parametrize(("mode", "told"), [("overwrite", "append"), ("error", "Append"), ("ignore", "Append")])
def test_every_mode_but_append_is_refused(spark: Any, url: str, mode: str, told: str) -> None:
    topic = Topic(url, "modes")
    with pytest.raises(Exception, match=told):
        write(spark.range(5).selectExpr("cast(id as string) as value"), topic, mode)


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ("id as value", {}, "column value must be bytes or text, and is int64"),
        ("'x' as value, 1.5D as partition", {}, "column partition must be whole numbers, and is double"),
        ("'x' as value, true as partition", {}, "column partition must be whole numbers, and is bool"),
        ("'x' as value, 7 as topic", {"topic": None}, "column topic must be text, and is int32"),
        ("'x' as value, 'k' as Key", {}, "column Key: name it key"),
    ],
)
def test_a_column_of_a_wrong_type_or_name_is_refused_before_any_task(
    spark: Any, url: str, columns: str, options: dict[str, Any], told: str
) -> None:
    given = {"topic": "t", **options}
    writer = spark.range(5).selectExpr(*columns.split(", ")).write.format("stockade").mode("append")
    with pytest.raises(AnalysisException, match=told):
        writer.options(url=url, **{name: value for name, value in given.items() if value}).save()


@pytest.mark.parametrize("options", [{}, {"sink": "failing"}])
def test_a_write_whose_rows_are_refused_leaves_no_stages(spark: Any, url: str, options: dict[str, str]) -> None:
    topic = Topic(url, f"failing-{len(options)}")
    topic.create()
    columns = "cast(id as string) as value", "if(id = 119999, 7, 0) as partition"
    with pytest.raises(Exception, match="and a row names 7"):  # in each attempt of a task that has staged a piece
        write(spark.range(0, 120_000, 1, 2).selectExpr(*columns), topic, **options)
    assert expect(200, call("GET", topic.url + "/partitions/0/stages"))["stages"] == []
    assert topic.values() == []


@pytest.mark.parametrize("setting", ["require_fence", "writer_group"])
def test_a_topic_that_refuses_the_rows_of_every_sink_stops_a_batch_before_it_is_decided(
    spark: Any, url: str, setting: str
) -> None:
    """It stopped the sink behind the decision: no batch followed, of whatever topic, before the setting was gone."""
    fenced, free = Topic(url, f"fenced-{setting}"), Topic(url, f"free-{setting}")
    fenced.create(config={setting: True if setting == "require_fence" else "group"})
    free.create()
    rows = spark.range(5).selectExpr("cast(id as string) as value")
    with pytest.raises(Exception, match=rf"refuses the rows of every sink \({setting}\), so nothing was decided"):
        write(rows, fenced, sink=setting)
    assert expect(200, call("GET", fenced.url + "/partitions/0/stages"))["stages"] == []
    write(rows, free, sink=setting)
    assert values(spark, free) == list(range(5))
