import asyncio
import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from child import ended
from waiting import wait_until

from stockade.partition.partitioner import partition_for_key

from ...client.fake_cluster import FakeCluster, Fault
from ..conftest import Run

AWKWARD = b"first\n\nwith cr\r\n\xff\x00 not text\nlast without end"
LINES = [b"first", b"", b"with cr\r", b"\xff\x00 not text", b"last without end"]


def release_all(cluster: FakeCluster) -> None:
    for grant in list(cluster.grants):
        cluster.release(grant)


def test_lines_of_standard_input_are_stored_byte_for_byte(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t")
    result = run("produce", "t", stdin=AWKWARD)
    assert result.exit_code == 0
    assert cluster.values("t") == LINES
    first, place = result.stdout.splitlines()
    assert re.fullmatch(r"t: 5 records, 0\.0 MB in \d+\.\d\d s \([\d,]+ records/s, [\d.,]+ MB/s\)", first)
    assert place == "  partition 0: offsets 0..4"


def test_files_are_stored_one_after_the_other_in_batches(cluster: FakeCluster, run: Run, tmp_path: Path) -> None:
    cluster.create("t")
    for name, content in (("a", b"1\n2\n3"), ("b", b"4\n5\n")):
        (tmp_path / name).write_bytes(content)
    result = run("produce", "t", str(tmp_path / "a"), str(tmp_path / "b"), "--batch-records", "2")
    assert result.exit_code == 0
    assert cluster.values("t") == [b"1", b"2", b"3", b"4", b"5"]
    assert max(batch.count for batch in cluster.machine("t", 0).log.read(0, 1 << 20).batches) == 2


def test_lines_are_stored_compressed_as_wished(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t")
    lines = [b"the same again and again"] * 1000
    for compression in ("none", "zstd"):
        assert run("produce", "t", "--compression", compression, stdin=b"\n".join(lines)).exit_code == 0
    plain, smaller = cluster.machine("t", 0).log.read(0, 1 << 20).batches
    assert (plain.count, smaller.count) == (1000, 1000)
    assert smaller.length < plain.length / 4
    assert cluster.values("t") == lines * 2


def test_many_lines_survive_faults_once_and_in_order(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t")
    cluster.faults = [Fault.LOSE_REPLY, None, Fault.UNAVAILABLE, Fault.LOSE_REQUEST, Fault.MOVED, Fault.GATEWAY_TIMEOUT]
    lines = [b"line %d" % number for number in range(2000)]
    result = run("produce", "t", "--batch-records", "100", stdin=b"\n".join(lines))
    assert result.exit_code == 0
    assert cluster.values("t") == lines


def test_keys_choose_the_partition_and_values_follow_the_separator(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t", 4)
    lines = [b"key%d:value:%d" % (number % 7, number) for number in range(50)]
    assert run("produce", "t", "--key-separator", ":", stdin=b"\n".join(lines)).exit_code == 0
    for partition in range(4):
        mine = [line for line in lines if partition_for_key(line.partition(b":")[0], 4) == partition]
        assert cluster.values("t", partition) == [line.partition(b":")[2] for line in mine]


def test_a_line_without_a_key_separator_is_refused(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t")
    result = run("produce", "t", "--key-separator", ":", stdin=b"no key here\n")
    assert result.exit_code == 1
    assert "The line b'no key here' has no key separator" in result.stderr
    assert cluster.values("t") == []


def test_one_partition_can_be_chosen(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t", 3)
    assert run("produce", "t", "--partition", "2", stdin=AWKWARD).exit_code == 0
    assert cluster.values("t", 2) == LINES
    assert run("produce", "t", "--partition", "3", stdin=AWKWARD).exit_code == 1


@pytest.mark.parametrize("option", ["--exclusive", "--fencing"])
def test_an_exclusive_upload_frees_the_partitions_at_its_end(cluster: FakeCluster, run: Run, option: str) -> None:
    cluster.create("t", 2, require_fence=True)
    assert run("produce", "t", option, stdin=AWKWARD).exit_code == 0
    assert cluster.values("t", 0) + cluster.values("t", 1) == LINES
    assert (cluster.grants, cluster.sessions) == ({}, {})
    without = run("produce", "t", stdin=AWKWARD)
    assert without.exit_code == 1
    assert "The option --exclusive does both." in without.stderr


def test_a_refusal_is_told_once_by_the_command_and_not_by_the_client_too(
    cluster: FakeCluster, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """The client's warning that the partition has halted came before it, so standard error was no JSON object."""
    cluster.create("t", require_fence=True)
    refused = run("produce", "t", "--json", stdin=b"a\n")
    assert json.loads(refused.stderr)["code"] == "FENCING_TOKEN_REQUIRED"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_shared_writer_is_refused_at_once_where_the_slot_is_held(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t", require_fence=True)
    assert run("produce", "t", "--shared", stdin=AWKWARD).exit_code == 0
    cluster.take_over("t")
    refused = run("produce", "t", "--shared", stdin=AWKWARD)
    assert refused.exit_code != 0
    assert "PRODUCER_BUSY" in refused.stderr


@pytest.mark.parametrize("other", ["--exclusive", "--wait", "--shared"])
def test_options_of_which_one_evicts_a_writer_and_the_other_does_not_are_refused(
    cluster: FakeCluster, run: Run, other: str
) -> None:
    """The last one won: ``--wait --fencing`` evicted the writer."""
    cluster.create("t")
    cluster.take_over("t")
    held = dict(cluster.grants)
    for options in ((other, "--fencing"), ("--fencing", other)):
        refused = run("produce", "t", *options, stdin=b"a\n")
        assert refused.exit_code == 2
        assert "exclude each other" in refused.stderr
    assert (cluster.grants, cluster.values("t")) == (held, [])


def test_a_held_topic_is_refused_and_fencing_takes_it_over(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t")
    cluster.take_over("t")
    refused = run("produce", "t", "--exclusive", stdin=AWKWARD)
    assert refused.exit_code == 1
    assert "--fencing" in refused.stderr
    assert cluster.values("t") == []
    assert run("produce", "t", "--fencing", stdin=AWKWARD).exit_code == 0
    assert cluster.values("t") == LINES


def test_a_writer_that_is_taken_over_says_how_many_records_are_stored(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t")
    arrived: list[int] = []

    def take_over_at_the_third() -> None:
        arrived.append(1)
        if len(arrived) == 3:
            cluster.take_over("t")

    cluster.fault_for = take_over_at_the_third
    lines = [b"%d" % number for number in range(20)]
    result = run("produce", "t", "--exclusive", "--batch-records", "2", stdin=b"\n".join(lines))
    assert result.exit_code == 5
    stored = cluster.values("t")
    assert stored == lines[: len(stored)] != lines
    assert f"t: {len(stored)} records" in result.stdout
    assert f"Stopped. Records stored: {len(stored)}; " in result.stderr
    assert "(PRODUCER_FENCED)" in result.stderr


def test_lines_that_a_lost_epoch_could_not_store_follow_under_the_next_one(cluster: FakeCluster, run: Run) -> None:
    """Other writers come in the middle of it, twice, and leave when this one stands in the queue."""
    cluster.create("t")
    appends = []

    def others_come() -> None:
        appends.append(1)
        if len(appends) in (6, 20):
            cluster.take_over("t")

    cluster.fault_for = others_come
    cluster.while_one_waits = lambda: release_all(cluster)
    lines = [b"%d" % number for number in range(40)]
    result = run("produce", "t", "--exclusive", "--reacquire", "--batch-records", "2", stdin=b"\n".join(lines))
    assert result.exit_code == 0, result.output
    assert cluster.values("t") == lines
    assert "t: 40 records" in result.stdout
    assert result.stderr.count("lost t: ") == result.stderr.count("acquired t again with epoch ") == 2


def test_a_refused_line_comes_before_a_later_one_also_when_everything_was_lost_and_acquired_between_them(
    cluster: FakeCluster,
) -> None:
    cluster.create("t")
    cluster.while_one_waits = lambda: release_all(cluster)
    command = [
        sys.executable,
        "-m",
        "stockade",
        "produce",
        "t",
        "--exclusive",
        "--reacquire",
        "--url",
        cluster.nodes[0],
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    with ended(subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)) as producer:
        assert producer.stdin is not None
        assert producer.stderr is not None
        producer.stdin.write(b"one\n")
        wait_until(lambda: cluster.values("t") == [b"one"])
        cluster.take_over("t")
        producer.stdin.write(b"two\n")
        told = b""
        while b"acquired t again" not in told:
            told += producer.stderr.read(100)
        assert told.startswith(b"lost t: ")
        producer.stdin.write(b"three\n")
        producer.stdin.close()
        assert producer.wait() == 0
    assert cluster.values("t") == [b"one", b"two", b"three"]


def test_a_loss_that_nothing_can_follow_says_which_lines_are_not_stored(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t")
    appends = []

    def a_later_producer_of_this_name_starts() -> None:
        appends.append(1)
        if len(appends) == 6:
            cluster.init_producer("mirror")
            cluster.take_over("t")

    cluster.fault_for = a_later_producer_of_this_name_starts
    cluster.while_one_waits = lambda: release_all(cluster)
    lines = [b"%d" % number for number in range(20)]
    options = ["--exclusive", "--reacquire", "--name", "mirror", "--batch-records", "2"]
    result = run("produce", "t", *options, stdin=b"\n".join(lines))
    assert result.exit_code == 5, result.output
    stored = cluster.values("t")
    assert stored == lines[: len(stored)] != lines
    assert f"Stopped. Records stored: {len(stored)}; " in result.stderr


def test_an_owner_of_the_writer_group_writes_and_others_are_refused_wait_or_take_over(
    cluster: FakeCluster, run: Run
) -> None:
    cluster.create("t", 2, writer_group="writers")
    assert run("produce", "t", stdin=b"a").exit_code == 1
    assert run("produce", "t", "--writer-group", "--partition", "1", stdin=b"a").exit_code == 0
    session = cluster.open_session(60_000)
    cluster.own("writers", session, [{"resource": "t/1"}], atomic=True, sever="session")
    refused = run("produce", "t", "--writer-group", "--partition", "1", stdin=b"b")
    assert (refused.exit_code, "(GENERATION_FENCED)" in refused.stderr) == (1, True)
    assert run("produce", "t", "--writer-group", "--partition", "0", stdin=b"free").exit_code == 0
    taken = run("produce", "t", "--writer-group", "--fencing", "--partition", "1", stdin=b"b")
    assert taken.exit_code == 0, taken.output
    assert cluster.values("t", 1) == [b"a", b"b"]
    assert all(row.owner is None for row in cluster.owned.values()), "free again at the end"
    cluster.create("plain")
    assert "plain has no writer_group" in run("produce", "plain", "--writer-group", stdin=b"a").stderr


def test_a_message_id_stores_the_input_once_as_one_batch(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t", 2, dedupe_window_ms=60_000)
    lines = [b"%d" % number for number in range(1500)]
    both = [run("produce", "t", "--partition", "1", "--message-id", "day-1", stdin=b"\n".join(lines)) for _ in range(2)]
    for result in both:
        assert result.exit_code == 0, result.output
        assert "partition 1: offsets 0..1499" in result.stdout
    assert ["had been stored before" in result.stdout for result in both] == [False, True]
    assert cluster.values("t", 1) == lines


def test_a_message_id_is_about_one_batch_and_a_larger_input_is_refused_whole(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t", batch_bytes_max=1024, dedupe_window_ms=60_000)
    result = run("produce", "t", "--partition", "0", "--message-id", "large", stdin=b"x" * 600 + b"\n" + b"y" * 600)
    assert (result.exit_code, "(MESSAGE_TOO_LARGE)" in result.stderr) == (1, True)
    assert cluster.values("t") == []


def test_each_line_has_its_message_id_in_a_field(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t", 4, dedupe_window_ms=60_000)
    lines = [b'{"order": "a", "v": 1}', b'{"order": 2}', b'{"order": "a", "v": 1}']
    result = run("produce", "t", "--message-id-field", "order", stdin=b"\n".join(lines))
    assert result.exit_code == 0, result.output
    assert "1 record had been stored before" in result.stdout
    assert sorted(value for partition in range(4) for value in cluster.values("t", partition)) == sorted(lines[:2])
    for line in (b"no json", b"[1]", b'{"order": true}', b'{"order": null}', b"{}", b"1"):
        refused = run("produce", "t", "--message-id-field", "order", stdin=line)
        assert (refused.exit_code, "(INVALID_RECORD)" in refused.stderr) == (1, True), line


def test_input_is_stored_only_at_the_logs_end_that_the_user_has_seen(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t")
    assert run("produce", "t", "--partition", "0", "--if-log-end", "0", stdin=AWKWARD).exit_code == 0
    late = run("produce", "t", "--partition", "0", "--if-log-end", "0", stdin=b"late")
    assert (late.exit_code, "(OFFSET_MISMATCH)" in late.stderr) == (1, True)
    assert cluster.values("t") == LINES


@pytest.mark.parametrize(
    "options",
    [
        ["--reacquire"],
        ["--reacquire", "--shared"],
        ["--writer-group", "--shared"],
        ["--writer-group", "--exclusive", "--reacquire"],
        ["--message-id", "a"],
        ["--if-log-end", "0"],
        ["--message-id", "a", "--message-id-field", "id", "--partition", "0"],
    ],
)
def test_options_that_exclude_or_need_each_other_are_wrong_usage(run: Run, options: list[str]) -> None:
    assert run("produce", "t", *options, stdin=b"a").exit_code == 2


def test_an_outcome_that_stays_unknown_ends_with_3(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t")
    cluster.fault_for = lambda: Fault.LOSE_REPLY
    result = run("produce", "t", stdin=b"a\nb", timeout="0.3")
    assert result.exit_code == 3
    assert "outcome unknown: 2" in result.stderr


def test_nothing_in_is_nothing_stored(cluster: FakeCluster, run: Run) -> None:
    cluster.create("t")
    result = run("produce", "t")
    assert result.exit_code == 0
    assert result.stdout.startswith("t: 0 records")


def test_a_missing_file_and_an_unknown_topic_are_errors(cluster: FakeCluster, run: Run) -> None:
    assert run("produce", "t", "/no/such/file").exit_code == 2
    assert run("produce", "t", stdin=b"a").exit_code == 1


def test_a_file_that_cannot_be_read_to_its_end_is_told_with_what_is_stored(
    cluster: FakeCluster, run: Run, tmp_path: Path
) -> None:
    """It ended in a traceback that said nothing of the records of the files before, with the code of a refusal."""
    cluster.create("t")
    (tmp_path / "a").write_bytes(b"1\n2\n3\n")
    result = run("produce", "t", str(tmp_path / "a"), "/proc/self/mem", "--batch-records", "2")
    assert result.exit_code == 1
    stored = len(cluster.values("t"))  # the third is sent if the reading of the next file takes its time
    assert (stored in {2, 3}, cluster.values("t")) == (True, [b"1", b"2", b"3"][:stored])
    assert result.stdout.startswith(f"t: {stored} records, ")
    assert f"Stopped. Records stored: {stored}; sent and not stored: 0.\n" in result.stderr
    assert "Error: /proc/self/mem cannot be read: Input/output error (INVALID_REQUEST)." in result.stderr


def test_ctrl_c_ends_produce_with_the_count_of_stored_records_also_in_the_middle_of_a_read(
    cluster: FakeCluster,
) -> None:
    cluster.create("t")
    command = [sys.executable, "-m", "stockade", "produce", "t", "--url", cluster.nodes[0]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    with ended(subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)) as producer:
        assert producer.stdin is not None
        producer.stdin.write(b"one\n")
        producer.stdin.flush()
        asyncio.run(cluster.seen("POST", 2))
        producer.send_signal(signal.SIGINT)
        assert producer.wait() == 130
        assert producer.stdout is not None
        assert producer.stderr is not None
        assert producer.stdout.read().startswith(b"t: 1 record,")
        assert producer.stderr.read() == b""
    assert cluster.values("t") == [b"one"]


def test_no_bar_is_drawn_over_lines_that_are_typed(cluster: FakeCluster) -> None:
    cluster.create("typed")
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "stockade", "produce", "typed", "--url", cluster.nodes[0]]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the other end is closed
        while block := os.read(ours, 1024):
            if not shown and b"Ctrl-D" in block:
                os.write(ours, b"first\nsecond\n\x04")
            shown += block
    os.close(ours)
    assert process.wait(60) == 0, shown
    assert cluster.values("typed") == [b"first", b"second"]
    assert b"\x1b" not in shown, shown
    assert b"Each line you type is a record of typed" in shown
