"""Turns text files into records and back: every byte of every line, in any encoding, in the order of the file.

A record's key is the file's name, its value the line without its LF. The header ``line`` is the line's number, from 1
on, in decimal; the header ``end`` marks a last line without an LF, which would otherwise be restored with one. An
empty file has no records.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

_HEADERS = "array<struct<key: string, value: binary>>"
_MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8. Spark drops it at the start of a file; ``records`` puts it back."""
_MISSING = (0, -1, len(_MARK), len(_MARK) - 1)
"""By how many bytes a file may be longer than its lines with an LF each: with or without the mark, and the last LF."""
LINE = "try_cast(cast(get(filter(headers, h -> h.key = 'line'), 0).value as string) as long)"
"""SQL: the number of a line, from its headers; null if they have none."""
_HAS_END = "exists(headers, h -> h.key = 'end')"
_NEVER_READ = ("_metadata", "_common_metadata")
"""Prefixes of names that Spark reserves for Parquet: it lists such files, and does not read them."""
_UNREAD = "\ufffd"
"""Java's character for a byte of a file's name that is not in the encoding of its locale."""
_ADVICE = f"; Java cannot read a name with {_UNREAD}: start it with LC_ALL=C.UTF-8, or rename the file"


class LoadRefused(ValueError):
    """The files cannot be loaded."""


def text(spark: Any, path: str, **options: str) -> Any:
    """Spark's text source over every file of ``path``. Raises LoadRefused, with their names, if it leaves files out."""
    # With this option Spark 4.3 takes names that begin with . or _. Spark 4.2 does not know it.
    rows = spark.read.options(ignoredPathSegmentRegex="", **options).text(path)
    listed = {PurePosixPath(unquote(urlsplit(url).path)) for url in rows.inputFiles()}
    left_out = _left_out(spark, path, {file for file in listed if not file.name.startswith(_NEVER_READ)})
    if left_out:
        raise LoadRefused(
            f"a load would leave out {', '.join(left_out)}: it takes the files of a folder, but not of its sub-folders,"
            " no byte order mark with nothing behind it, and names that begin with . or _ from Spark 4.3 on; name what"
            f" to load by a pattern, as in 'FOLDER/*.log'{_ADVICE if _UNREAD in ''.join(left_out) else ''}"
        )
    return rows


def _left_out(spark: Any, path: str, taken: set[PurePosixPath]) -> list[str]:
    """The names of the files that ``path`` matches and Spark would leave out: not empty, and either not ``taken``, or a
    byte order mark alone. For a file in a sub-folder, the sub-folder's name.
    """
    context = spark.sparkContext
    pattern = context._jvm.org.apache.hadoop.fs.Path(path)  # as Spark sees it: on any of Hadoop's file systems
    system = pattern.getFileSystem(context._jsc.hadoopConfiguration())
    names = set(_unread(context, system, path))
    for start in system.globStatus(pattern) or []:
        root = PurePosixPath(start.getPath().toUri().getPath())
        below = system.listFiles(start.getPath(), True)  # True: with all sub-folders
        while below.hasNext():
            status = below.next()
            file = PurePosixPath(status.getPath().toUri().getPath())
            if status.getLen() and (file not in taken or _is_mark(context, system, status)):
                first, *deeper = file.relative_to(root).parts or ("",)
                names.add(f"{root / first}{'/' if deeper else ''}")
    return sorted(names)


def _unread(context: Any, system: Any, path: str) -> Iterator[str]:
    """The names of which Java cannot read all bytes, of the files that ``path`` matches and of those in its folders.

    Hadoop leaves them out when it lists a local folder, and so does Spark.
    """
    hadoop = context._jvm.org.apache.hadoop.fs
    for single in hadoop.GlobExpander.expand(path) if system.getUri().getScheme() == "file" else ():
        pattern = system.makeQualified(hadoop.Path(single))
        parent, wanted = pattern.getParent(), hadoop.GlobFilter(pattern.getName())
        for folder in _folders(system, pattern):
            yield from (f"{folder}/{name}" for name in _unread_names(context, folder))
        for folder in _folders(system, parent) if parent else ():
            found = _unread_names(context, folder)
            yield from (f"{folder}/{name}" for name in found if wanted.accept(hadoop.Path("/", name)))


def _folders(system: Any, pattern: Any) -> list[str]:
    found = system.globStatus(pattern) or []
    return [each.getPath().toUri().getPath() for each in found if each.isDirectory()]


def _unread_names(context: Any, folder: str) -> list[str]:
    file = context._jvm.java.io.File
    return [name for name in file(folder).list() or [] if _UNREAD in name and not file(folder, name).exists()]


def _is_mark(context: Any, system: Any, status: Any) -> bool:
    """Whether a file is only a byte order mark, which Spark drops, so that no line is left."""
    if status.getLen() != len(_MARK):
        return False
    content = system.open(status.getPath())
    try:
        return bytes(context._jvm.org.apache.hadoop.io.IOUtils.readFullyToByteArray(content)) == _MARK
    finally:
        content.close()


def records(spark: Any, path: str) -> Any:
    """The lines of the files of a folder, or of one file, in columns key, value, headers. The lines of a file are in
    order.
    """
    # Spark gives file names as in a URL, and url_decode turns a plus into a space.
    # Lines end with a line feed alone; Spark would cut at a carriage return as well, and drop it.
    found = text(spark, path, lineSep="\n")
    _check_names(found)
    rows = found.select(
        F.col("value").cast("binary").alias("value"),
        F.expr("url_decode(replace(_metadata.file_name, '+', '%2B'))").alias("file"),
        F.col("_metadata.file_size").alias("size"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("place"),
    )
    whole = Window.partitionBy("file")
    numbered = rows.withColumns(
        {
            "line": F.row_number().over(whole.orderBy("block", "place")),
            "lines": F.count("*").over(whole),
            "missing": F.col("size") - F.sum(F.length("value") + 1).over(whole),
        }
    )
    checked = numbered.sortWithinPartitions("file", "line").withColumn("missing", _checked())
    value = F.when(F.expr("line = 1 and missing > 0"), F.concat(F.lit(_MARK), "value")).otherwise(F.col("value"))
    return checked.select(F.col("file").cast("binary").alias("key"), value.alias("value"), _headers().alias("headers"))


def _check_names(rows: Any) -> None:
    """Raises LoadRefused if two files have the same name, because their lines would have the same key."""
    paths = sorted(unquote(urlsplit(url).path) for url in rows.inputFiles())
    names = Counter(PurePosixPath(path).name for path in paths)
    doubled = [path for path in paths if names[PurePosixPath(path).name] > 1]
    if doubled:
        raise LoadRefused(f"{', '.join(doubled)} have one name, by which lines are known: use a topic for each")


def files(rows: Any) -> Any:
    """The name and content of each file, from rows (key, value, headers) of its lines. Each must fit into memory."""
    line = F.expr(LINE)
    end = F.when(F.expr(_HAS_END), F.lit(b"")).otherwise(F.lit(b"\n"))
    each = rows.select(
        F.col("key").cast("string").alias("name"),
        F.struct(line.alias("line"), F.concat("value", end).alias("text")).alias("row"),
    )
    whole = each.groupBy("name").agg(F.array_sort(F.collect_list("row")).alias("rows"))
    return whole.select("name", F.expr("unhex(array_join(transform(rows, row -> hex(row.text)), ''))").alias("content"))


def counts(rows: Any) -> Any:
    """A row for each file, from rows of its lines: its ``name``; the number of ``lines``, and of ``different`` line
    numbers; the ``first`` and ``last`` line number; and the lowest line number with the header ``end``, or null.
    """
    each = rows.select(
        F.col("key").cast("string").alias("name"),
        F.expr(LINE).alias("line"),
        F.expr(f"if({_HAS_END}, {LINE}, null)").alias("end"),
    )
    number = F.col("line")
    return each.groupBy("name").agg(
        F.count("*").alias("lines"),
        F.count_distinct(number).alias("different"),
        F.min(number).alias("first"),
        F.max(number).alias("last"),
        F.min("end").alias("end"),
    )


def is_whole(file: Any) -> bool:
    """Whether the ``counts`` of a file show each line once, from 1 on, and ``end`` on no line but the last."""
    numbers = file["lines"], file["different"], file["first"], file["end"] or file["last"]
    return numbers == (file["last"], file["last"], 1, file["last"])


def _checked() -> Any:
    """The column ``missing``, checked: the query fails for a file that Spark did not read byte by byte."""
    odd = F.concat(F.col("file"), F.lit(" cannot be read byte by byte: it is compressed, or was changed meanwhile"))
    return F.when(F.col("missing").isin(*_MISSING), F.col("missing")).otherwise(F.raise_error(odd).cast("long"))


def _headers() -> Any:
    number = F.col("line").cast("string").cast("binary")
    is_open = F.expr("line = lines and missing in (-1, 2)")
    return F.array_compact(
        F.array(
            F.struct(F.lit("line").alias("key"), number.alias("value")),
            F.when(is_open, F.struct(F.lit("end").alias("key"), F.lit(b"").alias("value"))),
        )
    ).cast(_HEADERS)
