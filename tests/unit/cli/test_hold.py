import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stockade.cli.main import main

from ..client.fake_cluster import FakeCluster

Run = Callable[..., Result]


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


def test_what_somebody_else_holds_is_refused_and_nothing_runs(cluster: FakeCluster, run: Run, tmp_path: Path) -> None:
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

    def take_over() -> None:
        deadline = time.monotonic() + 10
        while not running.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        cluster.take_over("jobs")

    thief = threading.Thread(target=take_over)
    thief.start()
    script = f"trap '' TERM; (sleep 30; touch {after}) & touch {running}; wait; sleep 30"
    done = run("--ttl", "1", "--grace", "0.2", "jobs", "--", "sh", "-c", script)
    thief.join()
    assert done.exit_code == 5, done.output
    assert "PRODUCER_FENCED" in done.output
    assert not after.exists()


def test_a_command_that_is_not_there_and_one_ended_by_a_signal_have_the_exit_codes_of_a_shell(
    cluster: FakeCluster, run: Run
) -> None:
    cluster.create("jobs")
    assert run("jobs", "--", "/no/such/command").exit_code == 127
    assert run("jobs", "--", "sh", "-c", "kill -9 $$").exit_code == 137
    assert cluster.sessions == {}
