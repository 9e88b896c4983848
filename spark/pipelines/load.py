"""``stockade pipeline load``: files or a table of Spark's into a topic; as a script, examples/pipeline_load.py.

The rows go through the exactly-once sink under the name of the load: a load with the same name is written once, however
often it runs.
"""

import argparse
import hashlib
import json
import time
import uuid
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812

from ..sink.named_batch import NamedBatch
from ..sink.options import parse_write_options
from ..sink.writer import connect, writer_of
from . import lines
from .arguments import add_options, options_of
from .reporting import Progress, print_line, summary, watched
from .session import session

FORMATS = ("text", "json", "parquet", "table")


ALREADY_LOADED = "already loaded under the name {}: nothing was written. Under another --name it is loaded again"


class Loaded(NamedTuple):
    """What a load wrote, and how long it took. ``already_loaded``: nothing, because an earlier load had this name."""

    rows: int
    bytes: int
    seconds: float
    already_loaded: bool = False


def source(spark: Any, path: str, form: str) -> Any:
    """The rows to load, in columns key, value, and headers if there are any.

    text: each line is a record (lines.py). json: each line is a record, and must be JSON. parquet, table: columns with
    these names are taken; if there is no column ``value``, each row becomes a JSON object.
    """
    if form == "text":
        return lines.records(spark, path)
    if form == "json":
        odd = F.concat(F.lit("not JSON, or a key twice: "), F.left("value", F.lit(80)))
        valid = F.when(F.expr(_is_json()), F.col("value")).otherwise(F.raise_error(odd))
        rows = lines.text(spark, path).where(F.length(F.btrim("value", F.lit(" \t"))) > 0)
        return rows.select(F.lit(None).cast("binary").alias("key"), valid.cast("binary").alias("value"))
    frame = spark.table(path) if form == "table" else spark.read.parquet(path)
    if "value" not in frame.columns:
        return frame.select(
            F.lit(None).cast("binary").alias("key"), F.to_json(F.struct("*")).cast("binary").alias("value")
        )
    taken = [F.col(name).cast("binary").alias(name) for name in ("key", "value") if name in frame.columns]
    return frame.select(*taken, *(["headers"] if "headers" in frame.columns else []))


def _is_json() -> str:
    """The condition, in SQL, that ``value`` is JSON as a whole, in UTF-8.

    Spark parses one document and ignores what follows it. So it parses a list of the value and a word that no value
    has: the word is the second item only if nothing but one document is before it.
    """
    word = uuid.uuid4().hex
    listed = f"""try_parse_json(concat('[', value, ',"{word}"]'))"""
    return f"is_valid_utf8(value) and try_variant_get({listed}, '$[1]', 'string') = '{word}'"


def name_of(spark: Any, path: str, form: str, topic: str) -> str:
    """The default name of a load: a digest of path, format and topic, so the same three are the same load.

    A relative path is made absolute. The host is not part of the name, because a path may be on a file system that many
    hosts share. If two loads then share a name by mistake, the second one says that it is left out; a load that is done
    twice would say nothing.
    """
    return "load-" + hashlib.sha256(json.dumps([_absolute(spark, path, form), form, topic]).encode()).hexdigest()[:16]


def _absolute(spark: Any, path: str, form: str) -> str:
    """The path with its file system and working folder, as Spark sees them; the name of a table unchanged."""
    if form == "table":
        return path
    found = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(path)
    return str(found.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).makeQualified(found).toString())


def load(rows: Any, topic: str, name: str, options: Mapping[str, str]) -> Loaded:
    """Write the rows, all or none, unless a load with this name was done before.

    ``options`` are those of the sink, with ``url``. Raises BatchRefused if a topic of the earlier load was deleted, or
    if another load with this name ran at the same time.
    """
    started = time.monotonic()
    wanted = {**options, "topic": topic, "sink": name}
    parsed = parse_write_options(wanted, "batch")
    connect(parsed)
    with closing(writer_of(parsed)) as asking:
        batch = NamedBatch(asking, name)
        if batch.was_decided():
            return Loaded(0, 0, time.monotonic() - started, already_loaded=True)
        seen = Observation(f"load {name} {time.monotonic_ns()}")
        size = F.coalesce(F.sum(F.length("value")), F.lit(0))
        counted = rows.observe(seen, F.count(F.lit(1)).alias("rows"), size.alias("bytes"))
        counted.write.format("stockade").mode("append").options(**wanted).save()
        batch.check_alone()
    return Loaded(seen.get["rows"], seen.get["bytes"], time.monotonic() - started)


def main(arguments: list[str] | None = None) -> int:
    """Run the load as a script; return its exit code."""
    parser = argparse.ArgumentParser(description="Load files or a table into a topic, exactly once.")
    parser.add_argument("path", help="file, folder, or name of a table")
    parser.add_argument("topic")
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--name", help="name of this load; by default made of path, format and topic")
    add_options(parser, "sink")
    given = parser.parse_args(arguments)
    spark = session("stockade load")
    options = options_of(given)
    name = given.name or name_of(spark, given.path, given.format, given.topic)
    with watched(spark, Progress("tasks done")):
        loaded = load(source(spark, given.path, given.format), given.topic, name, options)
    if loaded.already_loaded:
        print_line(ALREADY_LOADED.format(name))
    told = {"rows": loaded.rows, "bytes": loaded.bytes, "seconds": loaded.seconds}
    summary({"topic": given.topic, "name": name, **told})
    return 0
