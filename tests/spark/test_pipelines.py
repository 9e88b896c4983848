"""Files into a topic and out of it again, byte for byte; and what the pipelines refuse."""

import gzip
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from integration.api import Topic, call, expect
from pyspark.errors import PySparkException
from sources import ROOT

from stockade.cli.main import main
from stockade.spark.pipelines import lines
from stockade.spark.pipelines.export import ExportRefused, export, restore, why
from stockade.spark.pipelines.lines import LoadRefused
from stockade.spark.pipelines.load import load, name_of, source
from stockade.spark.sink.named_batch import BatchRefused

from .topics import append, record

SAMPLES = ROOT / "examples" / "data"

ODD = {
    "mark.txt": b"\xef\xbb\xbfa\r\n\r\nb\n",
    "open-mark.txt": b"\xef\xbb\xbfa\nb",
    "no-utf8.txt": b"\xff\xfe\x00\r\rx\n\n\n",
    "line-feed.txt": b"\n",
    "open.txt": b"x",
    "returns.txt": b"\r\n\r",
    ".hidden": b"begins with a dot\n",
    "_under": b"begins with\nan underscore",
    f"{'n' * 246}.txt": b"a name of 250 bytes\n",
    "sp ace%20+[x]=ä.txt": b"a name that a URL would have to encode\n",
}


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Real logs, and every oddity of text that there is."""
    shutil.copytree(SAMPLES, tmp_path / "in", copy_function=shutil.copyfile)
    (tmp_path / "in").chmod(0o755)
    for name, content in ODD.items():
        (tmp_path / "in" / name).write_bytes(content)
    return tmp_path / "in"


@pytest.mark.timeout(600)
def test_files_come_back_byte_for_byte_over_two_topics_and_parquet(
    spark: Any, url: str, folder: Path, tmp_path: Path
) -> None:
    there, again = Topic(url, "circle-there"), Topic(url, "circle-again")
    there.create(partitions=3)
    again.create(partitions=2)
    rows = sum(each.count(b"\n") + (not each.endswith(b"\n")) for each in contents(folder).values())
    size = sum(len(each.replace(b"\n", b"")) for each in contents(folder).values())
    for wanted in ((rows, size, False), (0, 0, True)):  # under one name it is done once
        loaded = load(source(spark, str(folder), "text"), there.name, "circle", {"url": url})
        assert (loaded.rows, loaded.bytes, loaded.already_loaded) == wanted

    out = str(tmp_path / "out")
    assert export(spark, there.name, out, {"url": url}).rows == rows
    assert export(spark, there.name, out, {"url": url}).rows == 0
    shutil.rmtree(f"{out}/checkpoint/commits")  # as if it had crashed before Spark noted that the rows were written
    export(spark, there.name, out, {"url": url})
    assert spark.read.parquet(f"{out}/rows").count() == rows

    load(source(spark, f"{out}/rows", "parquet"), again.name, "circle-again", {"url": url})
    restored = restore(spark, again.name, tmp_path / "back", {"url": url})
    assert (restored.rows, restored.parts) == (rows, len(contents(folder)))
    assert contents(tmp_path / "back") == contents(folder)


@pytest.mark.parametrize(
    ("written", "planned", "committed", "reason"),
    [
        ("9.compact 10", "", "", "in rows: 11, in checkpoint: 0"),
        ("9.compact 10", "0 1", "0 1", "in rows: 11, in checkpoint: 2"),
        ("", "0 1", "0 1", "in rows: 0, in checkpoint: 2"),
        ("9.compact", "9 10 11", "9 10", "in rows: 10, in checkpoint: 12"),
    ],
)
def test_an_export_whose_rows_and_checkpoint_do_not_match_is_refused(
    spark: Any, tmp_path: Path, written: str, planned: str, committed: str, reason: str
) -> None:
    """Spark leaves out every record of a micro-batch whose number is in the rows already, and says nothing."""
    logs = {"rows/_spark_metadata": written, "checkpoint/offsets": planned, "checkpoint/commits": committed}
    for log, names in logs.items():
        (tmp_path / log).mkdir(parents=True)
        for name in names.split():
            (tmp_path / log / name).touch()
            (tmp_path / log / f".{name}.crc").touch()
    with pytest.raises(ExportRefused, match=reason):
        export(spark, "any", str(tmp_path), {"url": "http://127.0.0.1:1"})


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ("rows/_delta_log/0 rows/date=2026-01-01/a", "in rows: some, in checkpoint: 0"),
        ("checkpoint/offsets/1 checkpoint/commits/1", "in rows: none, in checkpoint: 2"),
        ("checkpoint/offsets/1 checkpoint/commits/1 rows/_spark_metadata/1", "in rows: none, in checkpoint: 2"),
        ("checkpoint/offsets/1 checkpoint/commits/1 rows/_delta_log/0 rows/date=2026-01-01/a", "cannot write delta"),
        ("checkpoint/offsets/0 rows/_delta_log/0 rows/date=2026-01-01/a", "cannot write delta"),
        ("checkpoint/offsets/0", "cannot write delta"),
        ("rows/_delta_log/0", "cannot write delta"),
    ],
)
def test_an_export_to_a_delta_table_without_its_checkpoint_or_the_reverse_is_refused(
    spark: Any, tmp_path: Path, files: str, reason: str
) -> None:
    """Spark added every record to the table a second time, and said nothing."""
    for name in files.split():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    with pytest.raises(ExportRefused, match=reason):
        export(spark, "any", str(tmp_path), {"url": "http://127.0.0.1:1"}, form="delta")


def test_a_compressed_file_is_not_taken_for_its_lines(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"line\n" * 1000))
    with pytest.raises(PySparkException, match=r"x\.gz cannot be read byte by byte"):
        lines.records(spark, str(tmp_path)).collect()


@pytest.mark.parametrize("form", ["text", "json"])
def test_files_whose_names_begin_with_a_dot_or_an_underscore_are_loaded(spark: Any, tmp_path: Path, form: str) -> None:
    for name in ("plain", ".hidden", "_under"):
        (tmp_path / name).write_text(f'"{name}"\n')
    (tmp_path / "_SUCCESS").touch()
    expected = [b'".hidden"', b'"_under"', b'"plain"']
    assert sorted(bytes(each.value) for each in source(spark, str(tmp_path), form).collect()) == expected
    (alone,) = source(spark, str(tmp_path / ".hidden"), form).collect()
    assert bytes(alone.value) == b'".hidden"'


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_load_that_would_leave_files_out_is_refused_and_names_them(spark: Any, tmp_path: Path, form: str) -> None:
    for name in ("plain", "half._COPYING_", "_metadata.log", "sub/one", "sub/two", ".git/config", "empty/sub/_SUCCESS"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("" if name.startswith("empty") else "{}\n")
    left_out = ", ".join(f"{tmp_path}/{name}" for name in (".git/", "_metadata.log", "half._COPYING_", "sub/"))
    with pytest.raises(LoadRefused, match=re.escape(f"would leave out {left_out}: ")):
        source(spark, str(tmp_path), form)
    assert source(spark, f"{tmp_path}/[!._h]*", form).count() == 3  # plain, and the files of a folder that is named
    with pytest.raises(LoadRefused, match=re.escape(f"would leave out {tmp_path}/half._COPYING_: ")):
        source(spark, f"{tmp_path}/h*", form)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_file_whose_name_java_cannot_read_is_not_left_out_unsaid(spark: Any, tmp_path: Path, form: str) -> None:
    for name in ("plain", "plain\ufffd"):  # also the name of a file that was copied with a wrong encoding
        (tmp_path / name).write_text("{}\n")
    (tmp_path / os.fsdecode(b"odd\xff")).write_text("{}\n")
    for path in (tmp_path, f"{tmp_path}/*", f"{tmp_path}/{{plain,odd?}}", f"{tmp_path.parent}/{{{tmp_path.name}/*}}"):
        with pytest.raises(
            LoadRefused, match=re.escape(f"would leave out {tmp_path}/odd\ufffd: ") + ".*LC_ALL=C.UTF-8"
        ):
            source(spark, str(path), form)
    assert source(spark, f"{tmp_path}/p*", form).count() == 2


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_file_of_which_spark_has_no_line_is_not_left_out_unsaid(spark: Any, tmp_path: Path, form: str) -> None:
    for name, content in {"mark": b"\xef\xbb\xbf", "123": b"123", "empty": b""}.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(LoadRefused, match=re.escape(f"would leave out {tmp_path}/mark: ")):
        source(spark, str(tmp_path), form)
    assert source(spark, f"{tmp_path}/[!m]*", form).count() == 1


def test_lines_that_are_no_json_are_refused_and_nothing_is_loaded(spark: Any, url: str, tmp_path: Path) -> None:
    topic = Topic(url, "json")
    topic.create()
    (tmp_path / "some.json").write_text('{"a": 1}\n\n[2]\n{"a":\n')
    with pytest.raises(PySparkException, match=r'not JSON, or a key twice: \{"a":'):
        load(source(spark, str(tmp_path), "json"), topic.name, "bad", {"url": url})
    assert topic.values() == []
    (tmp_path / "some.json").write_text('{"a": 1}\n\n \t \n[2]\n')  # blank lines are left out
    assert load(source(spark, str(tmp_path), "json"), topic.name, "good", {"url": url})[:2] == (2, 11)
    assert topic.values() == ['{"a": 1}', "[2]"]


def test_a_line_that_goes_on_behind_its_json_is_no_json(spark: Any, tmp_path: Path) -> None:
    good = [b'{"a": [1, {"b": null}]}', b' "x" ', b"1e999", b'"\xc3\xa4"']
    (tmp_path / "good").write_bytes(b"\n".join(good))
    assert [bytes(row.value) for row in source(spark, str(tmp_path / "good"), "json").collect()] == good
    for line in (b'{"a": 1} oops', b'{"a": 1},', b"1],[2", b'"\xff"'):
        (tmp_path / "bad").write_bytes(line)
        with pytest.raises(PySparkException, match="not JSON, or a key twice"):
            source(spark, str(tmp_path / "bad"), "json").collect()


def test_rows_of_a_table_become_json(spark: Any) -> None:
    spark.range(2).selectExpr("id", "concat('n', id) as name").createOrReplaceTempView("people")
    assert [bytes(each.value) for each in source(spark, "people", "table").collect()] == [
        b'{"id":0,"name":"n0"}',
        b'{"id":1,"name":"n1"}',
    ]


def test_files_that_are_not_there_whole_and_once_are_not_restored(spark: Any, url: str, tmp_path: Path) -> None:
    topic = Topic(url, "torn")
    topic.create()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.log").write_text("a\nb\n")
    for name in ("torn-1", "torn-2"):
        load(source(spark, str(tmp_path / "in"), "text"), topic.name, name, {"url": url})
    with pytest.raises(ExportRefused, match=r"of x\.log \(4 lines, 2 different ones, numbered 1 to 2\): it was"):
        restore(spark, topic.name, tmp_path / "out", {"url": url})
    assert not (tmp_path / "out").exists()
    first = {"url": url, "endingOffsets": '{"torn": {"0": 2}}'}
    assert restore(spark, topic.name, tmp_path / "out", first)[:2] == (2, 1)
    assert contents(tmp_path / "out") == contents(tmp_path / "in")
    expect(200, call("POST", f"{topic.url}/partitions/0/trim", {"before": 1}))
    with pytest.raises(ExportRefused, match=r"of x\.log \(1 lines, 1 different ones, numbered 2 to 2\): it was"):
        restore(spark, topic.name, tmp_path / "out", first)


def test_a_file_with_any_name_comes_back_beside_others(spark: Any, url: str, tmp_path: Path) -> None:
    topic, files = Topic(url, "any-name"), {name: name.encode() for name in (".unfinished", *"abcdefgh")}
    topic.create()
    (tmp_path / "in").mkdir()
    for name, content in files.items():
        (tmp_path / "in" / name).write_bytes(content)
    load(source(spark, str(tmp_path / "in"), "text"), topic.name, "any-name", {"url": url})
    assert restore(spark, topic.name, tmp_path / "out", {"url": url}).parts == len(files)
    assert contents(tmp_path / "out") == files


def test_files_of_one_name_are_not_loaded_as_one(spark: Any, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.log").write_text("\n")
    both = re.escape(f"{tmp_path}/a/x.log, {tmp_path}/b/x.log have one name")
    with pytest.raises(LoadRefused, match=both):
        source(spark, f"{tmp_path}/*/x.log", "text")


def test_records_that_are_no_lines_do_not_become_files(spark: Any, url: str, tmp_path: Path) -> None:
    topic = Topic(url, "no-lines")
    topic.create()
    append(topic, 0, [record(0, 1)])
    with pytest.raises(ExportRefused, match="no-lines/0 at 0: not a line of a file"):
        restore(spark, topic.name, tmp_path / "out", {"url": url})


def line(name: str, number: bytes, value: bytes | None = b"x", *, is_end: bool = False) -> dict[str, Any]:
    headers = [{"key": "line", "value": number}, *([{"key": "end", "value": b""}] if is_end else [])]
    return {"key": name.encode(), "value": value, "headers": headers}


TORN = {
    "null": ([line("b", b"1"), line("b", b"2", None)], "0 at 2: not a line of a file"),
    "word": ([line("b", b"one")], "0 at 1: not a line of a file"),
    "zero": ([line("b", b"0"), line("b", b"2")], r"b \(2 lines, 2 different ones, numbered 0 to 2\)"),
    "end": ([line("b", b"1", is_end=True), line("b", b"2")], r"b \(.*, numbered 1 to 2, its end behind line 1\)"),
    "name": ([line("sub/b", b"1")], "'sub/b' is not the name of a file"),
    "long": ([line("n" * 256, b"1")], "'n{256}' is not the name of a file"),
}


@pytest.mark.parametrize("torn", TORN)
def test_records_that_do_not_make_up_a_file_byte_for_byte_are_refused_before_any_file_is_written(
    spark: Any, url: str, tmp_path: Path, torn: str
) -> None:
    records, reason = TORN[torn]
    topic = Topic(url, f"torn-{torn}")
    topic.create()
    append(topic, 0, [line("a", b"1"), *records])
    with pytest.raises(ExportRefused, match=reason):
        restore(spark, topic.name, tmp_path / "out", {"url": url})
    assert not (tmp_path / "out").exists()


def test_the_same_files_and_topic_are_the_same_load(spark: Any) -> None:
    here = spark.sparkContext._jvm.java.lang.System.getProperty("user.dir")
    same = [f"{here}/*.log", "*.log", f"file:{here}/*.log", f"{here}/x/../*.log"]
    assert len({name_of(spark, path, "text", "t") for path in same}) == 1
    other = [("/elsewhere/*.log", "text", "t"), ("*.log", "json", "t"), ("*.log", "text", "u"), ("t", "table", "t")]
    assert len({name_of(spark, *each) for each in (*other, ("*.log", "text", "t"))}) == 5


def test_a_load_into_a_topic_that_was_made_anew_is_refused_under_the_same_name(
    spark: Any, url: str, tmp_path: Path
) -> None:
    topic = Topic(url, "reloaded")
    (tmp_path / "a").write_text("a\n")
    topic.create()
    assert load(source(spark, str(tmp_path), "text"), topic.name, "reloaded", {"url": url}).rows == 1
    assert call("DELETE", topic.url).status in (200, 204)
    topic.create()
    with pytest.raises(BatchRefused, match="a topic reloaded that has been deleted since"):
        load(source(spark, str(tmp_path), "text"), topic.name, "reloaded", {"url": url})
    assert load(source(spark, str(tmp_path), "text"), topic.name, "reloaded-2", {"url": url}).rows == 1
    assert topic.values() == ["a"]


def stockade(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["pipeline", *arguments])


@pytest.mark.timeout(300)
def test_the_commands_load_and_export_and_tell_what_they_did(spark: Any, url: str, tmp_path: Path) -> None:
    topic = Topic(url, "commanded")
    topic.create()
    (tmp_path / "in.txt").write_bytes(b"a\r\nb")
    loaded = stockade("load", str(tmp_path / "in.txt"), topic.name, "--url", url, "--output", "json")
    assert loaded.exit_code == 0, loaded.output
    assert json.loads(loaded.stdout)["rows"] == 2
    again = stockade("load", str(tmp_path / "in.txt"), topic.name, "--url", url, "--output", "json")
    facts = json.loads(again.stdout)
    assert (again.exit_code, facts["rows"], facts["already_loaded"]) == (0, 0, True)
    assert f"already loaded under the name {facts['name']}: nothing was written" in again.stderr
    restored = stockade("export", topic.name, str(tmp_path / "out"), "--format", "text", "--url", url)
    assert restored.exit_code == 0, restored.output
    assert restored.stdout.splitlines()[0].split() == ["topic", "folder", "rows", "parts", "seconds", "rows/s"]
    assert contents(tmp_path / "out") == {"in.txt": b"a\r\nb"}
    exported_once = stockade("export", topic.name, str(tmp_path / "parquet"), "--url", url, "--output", "json")
    assert json.loads(exported_once.stdout)["rows"] == 2


@pytest.mark.parametrize(
    "raised",
    [
        "stockade.partition.errors.TopicSealed: TOPIC_SEALED: the topic was sealed for good; the log ends at 0",
        "stockade.spark.sink.store.OtherQuery: sink s belongs to query q, and not to batch",
        "stockade.spark.source.planning.ranges.DataLost: t/0 is gone",
        "OverflowError: date value out of range",
    ],
)
def test_the_reason_of_a_failure_is_the_exception_at_the_end_of_its_traceback(raised: str) -> None:
    """For errors of the cluster it was Spark's first line, "An exception was thrown from the Python worker:"."""
    told = f"""[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/x/http.py", line 78, in request
    stockade.partition.errors.raised(source, content)
{raised}
What to do next: Write to another topic: this one is sealed.
 SQLSTATE: 38000
"""
    assert why(Exception(told)) == raised


@pytest.mark.timeout(300)
def test_the_commands_tell_in_one_line_what_they_refuse(spark: Any, url: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    Topic(url, "refused").create()
    missing = stockade("load", str(tmp_path / "bad.json"), "no-such-topic", "--url", url)
    assert (missing.exit_code, "UNKNOWN_TOPIC_OR_PARTITION" in missing.stderr) == (1, True)
    bad = stockade("load", str(tmp_path / "bad.json"), "refused", "--format", "json", "--url", url)
    assert (bad.exit_code, "a key twice: {" in bad.stderr, bad.stderr.count("\n")) == (1, True, 1)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "more.json").write_text("{}")
    partial = stockade("load", str(tmp_path), "refused", "--url", url)
    assert (partial.exit_code, f"leave out {tmp_path}/sub/:" in partial.stderr) == (1, True)
    assert partial.stderr.count("\n") == 1
    strange = stockade("load", "nosuch://bucket/x", "refused", "--url", url)
    assert (strange.exit_code, strange.stderr.count("\n")) == (1, 1), strange.output
    assert 'No FileSystem for scheme "nosuch"' in strange.stderr
    absent = stockade("export", "refused", str(tmp_path / "out"), "--format", "delta", "--url", url)
    assert (absent.exit_code, "cannot write delta" in absent.stderr, absent.stderr.count("\n")) == (1, True, 1)
    wrong = stockade("audit", str(tmp_path / "bad.json"), str(tmp_path / "bad.json"))
    assert (wrong.exit_code, "cannot be read as Parquet" in wrong.stderr) == (2, True)
