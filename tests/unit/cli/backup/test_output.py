"""What a backup is worth when its news cannot be written: standard output that is closed or full, and a metrics file
without a folder. And errors for programs.
"""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from child import ended, hearing_ctrl_c
from click.testing import CliRunner

from stockade.cli.backup.restore import CannotRestore, Restored
from stockade.cli.backup.restore_command import _told_of_a_part
from stockade.cli.backup.store import Store
from stockade.cli.main import main

from ...client.fake_cluster import FakeCluster
from ..conftest import Run
from .test_schedule import MADE, values

ANOTHER = msgspec.structs.replace(MADE, cluster_id="another")
"""A backup of another cluster."""
UNTOLD = "the backup is made; the cluster does not show it: "
"""The fake cluster does not know how to."""


@contextmanager
def closed_pipe() -> Iterator[int]:
    """Standard output whose reader is gone, as behind `head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


def create(cluster: FakeCluster, store: Store, *options: str) -> list[str]:
    return [sys.executable, "-m", "stockade", "backup", "create", store.url, "--url", cluster.nodes[0], *options]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "place"))


def test_a_backup_is_told_counted_and_pruned_though_the_reader_of_its_output_is_gone(
    cluster: FakeCluster, store: Store, tmp_path: Path
) -> None:
    """It ended with exit code 0 when it had printed, before any of that."""
    metrics = tmp_path / "backup.prom"
    for _ in range(2):
        command = create(cluster, store, "--keep-last", "1", "--metrics-file", str(metrics))
        with closed_pipe() as writer:
            ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
        assert (ended.returncode, ended.stderr.startswith(UNTOLD), ended.stderr.count("\n")) == (0, True, 1)
    assert len(store.manifests()) == 1
    assert values(metrics)["last_success_timestamp_seconds"] > 0


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_backup_that_cannot_be_shown_is_said_to_be_made_without_a_traceback(
    cluster: FakeCluster, store: Store, option: list[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        command = create(cluster, store, *option)
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    _, said = ended.stderr.splitlines()
    assert (ended.returncode, len(store.manifests())) == (1, 1)
    assert "the backup is made; standard output cannot be written" in said
    assert not option or json.loads(said)["code"] == "OUTPUT_NOT_WRITTEN"


@pytest.mark.parametrize("is_full", [False, True])
def test_backups_go_on_when_standard_output_cannot_be_written(
    cluster: FakeCluster, store: Store, is_full: bool
) -> None:
    """`--every 1s | head -1` ended with exit code 0, and on a full disk with a traceback: no more backups were made."""
    command = create(cluster, store, "--every", "1s")
    with closed_pipe() as writer, Path("/dev/full").open("w") as full:
        with hearing_ctrl_c():
            running = subprocess.Popen(
                command, stdout=full if is_full else writer, stderr=subprocess.PIPE, text=True, start_new_session=True
            )
        with ended(running):
            assert running.stderr is not None
            try:
                said = [running.stderr.readline() for _ in range(4)]
            finally:
                running.send_signal(signal.SIGINT)
    reason = "No space left on device" if is_full else "Broken pipe"
    assert [line.startswith(UNTOLD) for line in said] == [True, False, True, True]
    assert "nothing is shown there any more" in said[1]
    assert reason in said[1]
    assert running.returncode == 130
    assert len(store.manifests()) >= 3


def test_backups_wait_while_the_share_of_their_place_is_not_mounted(
    cluster: FakeCluster, store: Store, tmp_path: Path
) -> None:
    """All was copied into the bare folder, on the machine's own disk, and told as a success."""
    place, away = tmp_path / "place", tmp_path / "away"
    command = create(cluster, store, "--every", "1s")
    with hearing_ctrl_c():
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running = subprocess.Popen(command, **pipes, text=True, start_new_session=True)  # type: ignore[call-overload]
    with ended(running):
        try:
            running.stdout.readline()
            place.rename(away)
            place.mkdir()
            said = [running.stderr.readline() for _ in range(3)]
            assert list(place.iterdir()) == []
            place.rmdir()
            away.rename(place)
            running.stdout.readline()
        finally:
            running.send_signal(signal.SIGINT)
    assert [line.startswith(UNTOLD) for line in said] == [True, False, False]
    assert all(line.startswith("no backup: ") and "is it mounted?" in line for line in said[1:])
    assert len(store.manifests()) >= 2


def test_a_command_whose_output_cannot_be_written_ends_without_a_traceback(cluster: FakeCluster) -> None:
    command = [sys.executable, "-m", "stockade", "topics", "list", "--url", cluster.nodes[0], "--json"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (
        3,
        "Error: standard output cannot be written: No space left on device\n",
    )


def test_a_backup_is_made_also_where_its_gauges_cannot_be_written(run: Run, store: Store, tmp_path: Path) -> None:
    """It was told as "no backup", and older ones were not removed."""
    done = run("backup", "create", store.url, "--metrics-file", str(tmp_path / "missing" / "m.prom"))
    assert (done.exit_code, len(store.manifests())) == (0, 1)
    assert done.stderr.startswith("the backup is made; the gauges are old: ")
    assert "no backup" not in done.stderr


def test_gauges_that_cannot_be_written_hide_no_failure_of_a_backup(run: Run, store: Store, tmp_path: Path) -> None:
    store.add(ANOTHER)
    done = run("backup", "create", store.url, "--metrics-file", str(tmp_path / "missing" / "m.prom"))
    gauges, failure = done.stderr.splitlines()
    assert (done.exit_code, gauges.startswith("the gauges are old: ")) == (1, True)
    assert failure.startswith(f"Error: {store.url} has backups of the cluster another")


NOWHERE = "http://127.0.0.1:1"
"""No node listens there."""


def test_a_cluster_that_does_not_answer_is_a_failed_backup_for_the_gauges(store: Store, tmp_path: Path) -> None:
    """Nothing was written: the alert about old backups never fired where the first one had failed so."""
    metrics = tmp_path / "backup.prom"
    done = CliRunner().invoke(
        main, ["backup", "create", store.url, "--url", NOWHERE, "--timeout", "0.1", "--metrics-file", str(metrics)]
    )
    assert (done.exit_code, "CLUSTER_UNREACHABLE" in done.stderr) == (4, True)
    assert values(metrics).items() >= {"last_success_timestamp_seconds": 0, "last_attempt_failed": 1}.items()


def test_backups_go_on_when_the_cluster_did_not_answer_at_their_start(store: Store) -> None:
    """`--every` ended: it went on after any failure but that of its first request."""
    command = [*(sys.executable, "-m", "stockade", "backup", "create", store.url, "--every", "1s"), "--url", NOWHERE]
    with hearing_ctrl_c():
        running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    with ended(running):
        assert running.stderr is not None
        try:
            said = [running.stderr.readline() for _ in range(2)]
        finally:
            running.send_signal(signal.SIGINT)
    assert all(line.startswith("no backup: No node answers") for line in said)
    assert running.returncode == 130


COMMANDS = [["list"], ["verify"], ["prune", "--keep-last", "1"]]


def problem(text: str) -> tuple[str, int, bool, bool]:
    about: dict[str, Any] = json.loads(text)
    assert about.keys() == {"code", "detail", "hint", "exit_code", "retriable", "no_side_effects"}
    return about["code"], about["exit_code"], about["retriable"], about["no_side_effects"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command[0]))
def test_failures_of_backups_are_json_where_the_output_is(command: list[str], store: Store) -> None:
    """The page promises it of all commands; these wrote text."""
    done = CliRunner().invoke(main, ["backup", command[0], store.url, *command[1:], "--json"])
    assert done.exit_code == 1
    assert problem(done.stderr) == ("BACKUP_UNREADABLE", 1, False, command[0] != "prune")


def test_refusals_of_backups_and_restores_are_json_where_the_output_is(run: Run, store: Store) -> None:
    store.add(ANOTHER)
    done = run("backup", "create", store.url, "--output", "json")
    assert problem(done.stderr) == ("CANNOT_BACK_UP", 1, False, True)
    done = run("backup", "restore", store.url, "--topic", "missing", "--json")
    assert problem(done.stderr) == ("CANNOT_RESTORE", 1, False, True)


def test_a_restore_that_is_cut_short_is_json_where_the_output_is(capsys: pytest.CaptureFixture[str]) -> None:
    done = [Restored("t", 0, 4, 4, 0)]
    with pytest.raises(SystemExit), _told_of_a_part(done, "json"):
        raise CannotRestore("others write there")
    said = capsys.readouterr()
    assert problem(said.err) == ("CANNOT_RESTORE", 1, False, False)
    assert json.loads(said.out) == [done[0]._asdict()]


class Closed(io.StringIO):
    """Standard output whose reader is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_restore_that_is_cut_short_fails_though_what_is_complete_cannot_be_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe that is closed is a success of other commands."""
    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(SystemExit) as ended, _told_of_a_part([Restored("t", 0, 4, 4, 0)], "table"):
        raise CannotRestore("others write there")
    assert ended.value.code == 1
    assert capsys.readouterr().err.endswith("Error: others write there\n")
