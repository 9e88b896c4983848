"""Text files as records, and back: every byte of every line, whatever its encoding, in the order of the file.

Key is the file's name, value the line without its end. Headers say where it belongs: ``line`` (from 1 on, decimal),
and ``end``, only on a last line that has no line feed behind it. Without them the number of line feeds would be lost.
A file without any byte has no lines, and so no records.
"""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

_HEADERS = "array<struct<key: string, value: binary>>"
_MARK = b"\xef\xbb\xbf"
"""Spark drops this mark of UTF-8 at the start of a file, and nothing else; it is put back."""
_MISSING = (0, -1, len(_MARK), len(_MARK) - 1)
"""Bytes by which a file may be longer than its lines: there is the mark or not, and a last line feed or not."""


def records(spark: Any, path: str) -> Any:
    """The lines of the files of a folder, or of one file: columns key, value, headers; lines of a file in order."""
    # Lines end with a line feed alone; Spark would cut at a carriage return as well, and drop it.
    text = spark.read.option("lineSep", "\n").text(path)
    rows = text.select(
        F.col("value").cast("binary").alias("value"),
        F.col("_metadata.file_name").alias("file"),
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


def files(rows: Any) -> Any:
    """(name, content) of each file of which these rows (key, value, headers) are the lines. A file fits into memory."""
    line = F.expr("filter(headers, h -> h.key = 'line')[0].value").cast("string").cast("long")
    end = F.when(F.expr("exists(headers, h -> h.key = 'end')"), F.lit(b"")).otherwise(F.lit(b"\n"))
    each = rows.select(
        F.col("key").cast("string").alias("name"),
        F.struct(line.alias("line"), F.concat("value", end).alias("text")).alias("row"),
    )
    whole = each.groupBy("name").agg(F.array_sort(F.collect_list("row")).alias("rows"))
    return whole.select("name", F.expr("unhex(array_join(transform(rows, row -> hex(row.text)), ''))").alias("content"))


def _checked() -> Any:
    """How many bytes of a file are not in its lines. Fails for files that Spark did not read as they are."""
    odd = F.concat(F.col("file"), F.lit(" is not text as it is: a compressed file, or one that was changed meanwhile"))
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
