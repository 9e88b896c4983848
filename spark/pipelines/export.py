"""``stockade pipeline export``: a topic into files; as a script, examples/pipeline_export.py.

An export to Parquet is a stream: it continues at its checkpoint, and the files of a micro-batch count once, because the
folder's own log (``rows/_spark_metadata``) lists them. Read the folder with Spark, which uses this log.

Spark never compares checkpoint and log: it skips every micro-batch whose number the log has, whatever its records are.
"""

import argparse
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ..options import OptionsError
from ..sink.store import SinkRefused
from ..source.planning.ranges import DataLost
from ..source.topics import pinned
from . import lines
from .arguments import add_options, options_of
from .lines import LoadRefused
from .reporting import Progress, summary
from .session import session

FORMATS = ("parquet", "delta", "text")
NAME_BYTES_MAX = 255
"""Longest name of a file, in bytes, in most file systems."""
PERIOD_S = 1
_BATCH = re.compile(r"([0-9]+)(?:\.compact)?")
"""Name of a file in a log of Spark's: its micro-batch; a compact file also has all micro-batches before that."""


class Exported(NamedTuple):
    """The result of an export. ``parts``: the number of micro-batches with rows, or of text files."""

    rows: int
    parts: int
    seconds: float


class ExportRefused(ValueError):
    """The records cannot be exported in this format."""


def export(
    spark: Any,
    topic: str,
    folder: str,
    options: Mapping[str, str],
    *,
    form: str = "parquet",
    follow: bool = False,
    on_batch: Callable[[int], None] = lambda rows: None,
) -> Exported:
    """Write the records of the topic that were not written yet; with ``follow``, go on until the query is stopped.

    ``options`` are those of the source, with ``url``; ``on_batch`` is called with the number of rows written so far.
    Raises ExportRefused if the folder's rows and checkpoint do not belong to one export.
    """
    started = time.monotonic()
    _check_progress(spark, folder, form)
    wanted = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true", **options}
    rows = spark.readStream.format("stockade").options(**wanted).load().selectExpr("*", "to_date(timestamp) as date")
    writer = rows.writeStream.format(form).partitionBy("date").option("checkpointLocation", f"{folder}/checkpoint")
    query = _started(writer if follow else writer.trigger(availableNow=True), f"{folder}/rows", form)
    counts: dict[int, int] = {}
    is_over = False
    try:
        while not is_over:
            is_over = query.awaitTermination(PERIOD_S)
            counts |= {each.batchId: each.numInputRows for each in query.recentProgress}
            on_batch(sum(counts.values()))
    finally:
        query.stop()
    return Exported(sum(counts.values()), sum(1 for rows in counts.values() if rows), time.monotonic() - started)


def _check_progress(spark: Any, folder: str, form: str) -> None:
    """Raises ExportRefused if the rows have other micro-batches than the checkpoint, but for one that was interrupted.

    Spark enters a micro-batch into the offsets, then into the log of the rows, then into the commits, so
    ``committed <= written <= planned``. Of a Delta table this knows only whether it is there and has rows.
    """
    committed, planned = (_newest(_names(spark, f"{folder}/checkpoint/{log}")) for log in ("commits", "offsets"))
    if form == "parquet":
        written = _newest(_names(spark, f"{folder}/rows/_spark_metadata"))
        told = f"{written + 1:,}"
    else:
        names = _names(spark, f"{folder}/rows")
        has_rows = any(name.startswith("date=") for name in names)  # not so for a table that was made beforehand
        written = max(committed, 0 if has_rows else -1) if "_delta_log" in names else -1
        told = "some" if has_rows else "none"
    if not committed <= written <= planned:
        raise ExportRefused(
            f"{folder}: micro-batches in rows: {told}, in checkpoint: {max(committed, planned) + 1:,}. One of the two"
            " was deleted or put back, and records would be left out or doubled: export into another folder"
        )


def _names(spark: Any, folder: str) -> list[str]:
    """The names in a folder on any of Hadoop's file systems; none if there is no such folder."""
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(folder)
    system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    return [each.getPath().getName() for each in system.listStatus(path)] if system.exists(path) else []


def _newest(names: list[str]) -> int:
    """The number of the last micro-batch in a log of Spark's; -1 if the log has none."""
    return max((int(found[1]) for found in map(_BATCH.fullmatch, names) if found), default=-1)


def _started(writer: Any, folder: str, form: str) -> Any:
    try:
        return writer.start(folder)
    except Exception as error:  # from Java: PySpark has no class for it
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            raise ExportRefused(f"this Spark cannot write {form}: its package is not installed") from error
        raise


def restore(spark: Any, topic: str, folder: Path, options: Mapping[str, str]) -> Exported:
    """Write the files that ``load`` has read, byte for byte, under their names.

    Raises ExportRefused for records that are not lines of files, for files with a line missing, doubled, or behind the
    marked end, and for names that no file may have. It writes nothing then.
    """
    started = time.monotonic()
    wanted = pinned({"subscribe": topic, "includeHeaders": "true", **options})
    rows = spark.read.format("stockade").options(**wanted).load()
    strange = rows.where(f"key is null or value is null or {lines.LINE} is null").limit(1).collect()
    if strange:
        place = f"{topic}/{strange[0]['partition']} at {strange[0]['offset']}"
        raise ExportRefused(f"{place}: not a line of a file; text is for topics that were loaded from files of text")
    counts = lines.counts(rows).collect()
    if odd := sorted(_torn(each) for each in counts if not lines.is_whole(each)):
        raise ExportRefused(
            f"{topic} does not have each line once of {', '.join(odd)}: it was loaded under two names, or another file"
            " of its name was loaded, or its first records are gone. The format parquet writes every record"
        )
    for each in counts:
        _check_name(each["name"])
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".unfinished-", dir=folder) as scratch:
        unfinished = Path(scratch, "file")
        for name, content in lines.files(rows).toLocalIterator():
            unfinished.write_bytes(content)
            unfinished.replace(folder / name)  # atomic: the file is there whole, or not at all
    return Exported(sum(each["lines"] for each in counts), len(counts), time.monotonic() - started)


def _torn(file: Any) -> str:
    ends = f", its end behind line {file['end']:,}" if file["end"] is not None else ""
    numbered = f"numbered {file['first']:,} to {file['last']:,}"
    return f"{file['name']} ({file['lines']:,} lines, {file['different']:,} different ones, {numbered}{ends})"


def _check_name(name: str) -> None:
    """Raises ExportRefused for a name that would leave the folder, that no file may have, or that is too long."""
    if name in ("", ".", "..") or Path(name).name != name or "\0" in name or len(os.fsencode(name)) > NAME_BYTES_MAX:
        raise ExportRefused(f"{name!r} is not the name of a file")


def main(arguments: list[str] | None = None) -> int:
    """Run the export as a script; return its exit code."""
    parser = argparse.ArgumentParser(description="Write a topic into files, exactly once.")
    parser.add_argument("topic")
    parser.add_argument("folder")
    parser.add_argument("--format", choices=FORMATS, default="parquet")
    parser.add_argument("--follow", action="store_true", help="go on until stopped")
    add_options(parser, "source")
    given = parser.parse_args(arguments)
    options = options_of(given)
    spark = session("stockade export")
    if given.format == "text":
        done = restore(spark, given.topic, Path(given.folder), options)
    else:
        progress = Progress("records written")
        done = export(
            spark, given.topic, given.folder, options, form=given.format, follow=given.follow, on_batch=progress
        )
    summary({"topic": given.topic, "folder": given.folder, **done._asdict()})
    return 0


REFUSALS = (PySparkException, Py4JError, ExportRefused, LoadRefused, SinkRefused, OptionsError, DataLost)
_RAISED = re.compile(r"(?:stockade(?:\.\w+)+|(?:\w+\.)*\w*Error): ")
"""The beginning of the line with which a traceback ends: an exception of this package, or an error of Python."""


def why(error: Exception) -> str:
    """The most useful line of an error's message: that of the last Python exception in it, otherwise the first line."""
    told = str(getattr(error, "java_exception", error))
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    return raised[-1] if raised else next(iter(lines), "Spark gives no reason")
