import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from child import ended, hearing_ctrl_c
from click.testing import CliRunner, Result
from waiting import wait_until

from stockade.cli.main import main
from stockade.cli.ownership.subreaper import descendants

from ...client.fake_cluster import FakeCluster

Run = Callable[..., Result]


SLEEP = "for i in $(seq 1200); do sleep 0.1; done\n"
"""Two minutes in pieces, as a shell obeys a trap between commands only."""


def take_over_once(condition: Callable[[], bool], cluster: FakeCluster) -> None:
    wait_until(condition)
    cluster.take_over("jobs")


class Orphan:
    """A process that did all it could to get away from who started it (``start`` is the shell's line for that)."""

    def __init__(self, folder: Path, first: str = ":") -> None:
        self.started = folder / "started"
        script = folder / "orphan"
        script.write_text(f"{first}\necho $$ > {self.started}.new\nmv {self.started}.new {self.started}\n{SLEEP}")
        self.start = f"(setsid sh {script} &)"

    def is_running(self) -> bool:
        try:
            return "State:\tZ" not in Path(f"/proc/{self.started.read_text().strip()}/status").read_text()
        except FileNotFoundError:
            return False


@pytest.fixture
def run(cluster: FakeCluster) -> Run:
    """Options behind COMMAND would be its own, so the address comes by the environment."""

    def call(*arguments: str) -> Result:
        url = ",".join(cluster.nodes)
        return CliRunner().invoke(main, ["hold", "--timeout", "10", *arguments], env={"STOCKADE_URL": url})

    return call


def test_a_command_runs_as_the_owner_and_its_exit_code_is_ours(cluster: FakeCluster, run: Run, tmp_path: Path) -> None:
    topic = cluster.create("jobs", 2)
    told = tmp_path / "token"
    script = f'echo "$STOCKADE_TOPIC $STOCKADE_EPOCH $STOCKADE_GRANT $STOCKADE_SESSION" > {told}; exit 7'
    done = run("jobs", "--partition", "1", "--", "sh", "-c", script)
    assert done.exit_code == 7, done.output
    name, epoch, grant, session = told.read_text().split()
    assert (name, epoch) == ("jobs", "1")
    assert grant
    assert session
    assert [machine.topic_epoch for machine in topic.machines] == [0, 1]
    assert cluster.grants == {}
    assert cluster.sessions == {}


def test_a_command_with_a_shared_grant_is_told_the_epoch_of_each_partition(
    cluster: FakeCluster, run: Run, tmp_path: Path
) -> None:
    """It knew the highest alone, with which every partition of a lower epoch refused its appends."""
    cluster.create("jobs", 2)
    told = tmp_path / "epochs"
    assert run("jobs", "--partition", "1", "--", "true").exit_code == 0
    assert run("jobs", "--mode", "shared", "--", "sh", "-c", f'echo "$STOCKADE_EPOCHS" > {told}').exit_code == 0
    assert told.read_text() == '{"0":0,"1":1}\n'


def test_hold_is_refused_a_topic_of_another_session_and_runs_nothing(
    cluster: FakeCluster, run: Run, tmp_path: Path
) -> None:
    cluster.create("jobs")
    cluster.take_over("jobs")
    done = run("jobs", "--", "touch", str(tmp_path / "ran"))
    assert done.exit_code == 1
    assert "PRODUCER_BUSY" in done.output
    assert not (tmp_path / "ran").exists()
    assert run("--mode", "fencing", "jobs", "--", "touch", str(tmp_path / "ran")).exit_code == 0
    assert (tmp_path / "ran").exists()


def test_a_command_is_ended_with_its_children_when_its_partitions_are_lost(
    cluster: FakeCluster, run: Run, tmp_path: Path
) -> None:
    cluster.create("jobs")
    running, after = tmp_path / "running", tmp_path / "after"

    thief = threading.Thread(target=take_over_once, args=(running.exists, cluster))
    thief.start()
    script = f"trap '' TERM; (sleep 30; touch {after}) & touch {running}; wait; sleep 30"
    done = run("--ttl", "3", "--grace", "0.2", "jobs", "--", "sh", "-c", script)
    thief.join()
    assert done.exit_code == 5, done.output
    assert "PRODUCER_FENCED" in done.output
    assert not after.exists()


@pytest.mark.parametrize(("given", "seconds"), [((), 2.0), (("--grace", "7"), 7.0)])
def test_a_command_that_ignores_sigterm_has_ended_before_another_session_may_own_unless_it_is_given_more_time(
    cluster: FakeCluster, run: Run, tmp_path: Path, given: tuple[str, ...], seconds: float
) -> None:
    """A session that cannot renew gives up a fifth of its time to live before the cluster ends it. The parent of
    COMMAND has the seconds as its second argument.
    """
    cluster.create("jobs")
    seen = tmp_path / "seen"
    assert run(*given, "--ttl", "12", "jobs", "--", "sh", "-c", f"cat /proc/$PPID/cmdline > {seen}").exit_code == 0
    words = seen.read_bytes().split(b"\0")
    assert float(words[words.index(b"sh") - 1]) == seconds


def test_a_command_that_is_not_there_and_one_ended_by_a_signal_have_the_exit_codes_of_a_shell(
    cluster: FakeCluster, run: Run
) -> None:
    cluster.create("jobs")
    assert run("jobs", "--", "/no/such/command").exit_code == 127
    assert run("jobs", "--", "sh", "-c", "kill -9 $$").exit_code == 137
    assert cluster.sessions == {}


def test_a_grandchild_that_left_the_session_ends_with_the_ownership(
    cluster: FakeCluster, run: Run, tmp_path: Path
) -> None:
    """It has a session and a process group of its own, its parent is gone, and it ignores SIGTERM."""
    cluster.create("jobs")
    orphan = Orphan(tmp_path, first="trap '' TERM")
    thief = threading.Thread(target=take_over_once, args=(orphan.started.exists, cluster))
    thief.start()
    done = run("--ttl", "3", "--grace", "0.2", "jobs", "--", "sh", "-c", f"{orphan.start}; sleep 300")
    thief.join()
    assert done.exit_code == 5, done.output
    assert not orphan.is_running()


def test_processes_that_a_command_leaves_behind_are_asked_to_end_before_the_ownership_does(
    cluster: FakeCluster, run: Run, tmp_path: Path
) -> None:
    cluster.create("jobs")
    asked = tmp_path / "asked"
    orphan = Orphan(tmp_path, first=f"trap 'touch {asked}; exit' TERM")
    done = run(
        "--grace", "60", "jobs", "--", "sh", "-c", f"{orphan.start}; until [ -e {orphan.started} ]; do :; done; exit 3"
    )
    assert done.exit_code == 3, done.output
    assert not orphan.is_running()
    assert asked.exists()


def test_nothing_goes_on_when_the_holder_itself_is_killed(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.create("jobs")
    orphan = Orphan(tmp_path)
    command = ["--url", cluster.nodes[0], "--", "sh", "-c", f"{orphan.start}; sleep 300"]
    with ended(subprocess.Popen([sys.executable, "-m", "stockade", "hold", "jobs", *command])) as holder:
        wait_until(orphan.started.exists)
        holder.kill()
    wait_until(lambda: not orphan.is_running())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_every_process_ends_the_command_gently_and_all_of_it_before_the_ownership_ends(
    cluster: FakeCluster, tmp_path: Path, number: signal.Signals
) -> None:
    """As a service manager stops a service. COMMAND was killed at once, and what it had started went on."""
    cluster.create("jobs")
    orphan, clean = Orphan(tmp_path, first="trap '' INT TERM HUP"), tmp_path / "clean"
    gentle = f"trap 'touch {clean}; exit 4' INT TERM HUP; {orphan.start}; {SLEEP}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "STOCKADE_URL": cluster.nodes[0]}
    command = [sys.executable, "-m", "stockade", "hold", "--grace", "1", "jobs", "--", "sh", "-c", gentle]
    with hearing_ctrl_c(), ended(subprocess.Popen(command, env=environment)) as holder:
        wait_until(orphan.started.exists)
        for pid in (holder.pid, *descendants(holder.pid)):
            with suppress(ProcessLookupError):  # a tenth of a second's sleep of the shell
                os.kill(pid, number)
        assert holder.wait(60) == 4
    assert clean.exists()
    assert not orphan.is_running()
    assert cluster.sessions == {}


def test_ctrl_c_ends_a_holder_that_waits_to_hold_again_and_it_leaves_the_queue(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.create("jobs")
    running = tmp_path / "running"
    words = [
        "hold",
        "jobs",
        "--reacquire",
        "--ttl",
        "3",
        "--grace",
        "0",
        "--",
        "sh",
        "-c",
        f"touch {running}; sleep 60",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "STOCKADE_URL": cluster.nodes[0]}
    command = [sys.executable, "-m", "stockade", *words]
    with ended(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)) as holder:
        take_over_once(running.exists, cluster)
        wait_until(lambda: bool(cluster.line))
        holder.send_signal(signal.SIGINT)
        assert holder.wait() == 130
        assert holder.stderr is not None
        assert b"Error: lost jobs" in holder.stderr.read()
    assert cluster.line == {}
