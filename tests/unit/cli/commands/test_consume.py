import os
import signal
import subprocess
import sys

import msgspec
import pytest
from child import ended

from stockade.partition.commands import Trim

from ...client.fake_cluster import FakeCluster
from ..conftest import Run

LINES = [b"first", b"", b"with cr\r", b"\xff\x00", b"last"]


@pytest.fixture
def filled(cluster: FakeCluster, run: Run) -> FakeCluster:
    cluster.create("t")
    assert run("produce", "t", "--batch-records", "2", stdin=b"\n".join(LINES)).exit_code == 0
    return cluster


def test_values_come_back_byte_for_byte_each_with_lf(filled: FakeCluster, run: Run) -> None:
    assert run("consume", "t").stdout_bytes == b"".join(line + b"\n" for line in LINES)


def test_raw_puts_nothing_between_the_values(filled: FakeCluster, run: Run) -> None:
    assert run("consume", "t", "--format", "raw").stdout_bytes == b"".join(LINES)


def test_output_json_means_json_for_records_and_for_refusals(filled: FakeCluster, run: Run) -> None:
    assert run("consume", "t", "--output", "json").stdout_bytes == run("consume", "t", "--format", "json").stdout_bytes
    done = run("consume", "nowhere", "--output", "json")
    assert done.exit_code == 1
    assert msgspec.json.decode(done.stderr)["detail"] == "No such topic: nowhere"


def test_json_has_an_object_a_line_and_base64_where_bytes_are_not_text(filled: FakeCluster, run: Run) -> None:
    lines = run("consume", "t", "--format", "json").stdout_bytes.splitlines()
    objects = [msgspec.json.decode(line) for line in lines]
    assert [each["offset"] for each in objects] == [0, 1, 2, 3, 4]
    assert objects[2] | {"timestamp_ms": 0} == {
        "partition": 0,
        "offset": 2,
        "timestamp_ms": 0,
        "key": None,
        "value": "with cr\r",
        "headers": [],
    }
    assert objects[3]["value_base64"] == "/wA="
    assert "value" not in objects[3]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (["--from", "3"], LINES[3:]),
        (["--from", "latest"], []),
        (["--max", "3"], LINES[:3]),
        (["--from", "1", "--max", "1"], LINES[1:2]),
        (["--partition", "0", "--follow", "--max", "5"], LINES),
    ],
)
def test_options_choose_the_records_that_consume_reads(
    filled: FakeCluster, run: Run, options: list[str], lines: list[bytes]
) -> None:
    assert run("consume", "t", *options).stdout_bytes == b"".join(line + b"\n" for line in lines)


def test_an_offset_that_is_not_there_is_refused_and_a_word_that_is_none_is_wrong_usage(
    filled: FakeCluster, run: Run
) -> None:
    refused = run("consume", "t", "--from", "6")
    assert refused.exit_code == 1
    assert "`stockade topics offsets TOPIC`" in refused.stderr
    assert run("consume", "t", "--from", "yesterday").exit_code == 2


def test_trimmed_records_end_the_command_or_are_skipped_with_a_warning(filled: FakeCluster, run: Run) -> None:
    filled.apply(filled.machine("t", 0), Trim(2))
    done = run("consume", "t", "--from", "1", "--skip-trimmed")
    assert done.stdout_bytes == b"".join(line + b"\n" for line in LINES[2:])
    assert run("consume", "t", "--from", "1").exit_code == 1


def test_consume_ends_quietly_when_the_reader_of_its_output_does(filled: FakeCluster) -> None:
    command = [sys.executable, "-m", "stockade", "consume", "t", "--url", filled.nodes[0]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        consumer.stdout.close()
        assert consumer.stderr.read() == b""
        assert consumer.wait() == 0


def test_ctrl_c_ends_following_quietly(filled: FakeCluster) -> None:
    command = [sys.executable, "-m", "stockade", "consume", "t", "--follow", "--url", filled.nodes[0]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == b"first\n"
        consumer.send_signal(signal.SIGINT)
        assert consumer.wait() == 130
        assert consumer.stderr.read() == b""
