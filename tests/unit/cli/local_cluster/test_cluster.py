import errno
import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from waiting import wait_until

from stockade.cli.local_cluster.cluster import ClusterFailed, LocalCluster
from stockade.cli.node import supervisor

SERVER = """
import http.server, sys, tomllib
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
host, _, port = tomllib.load(open(sys.argv[-1], "rb"))["http"].rpartition(":")
http.server.HTTPServer((host, int(port)), Ready).serve_forever()
"""
"""Stands in for a node: it is ready as soon as it listens."""

Started = Callable[..., tuple[LocalCluster, list[str]]]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Starts a cluster of one node that runs this Python program; answers it, and what its supervisor tells."""
    with ExitStack() as stack:

        def start(program: str, *, restart: bool = True) -> tuple[LocalCluster, list[str]]:
            told: list[str] = []
            words = (sys.executable, "-c", program)
            local = LocalCluster(tmp_path, 1, port_base=0, restart=restart, program=words, tell=told.append)
            stack.callback(local.stop)
            local.start()
            return local, told

        yield start


def test_the_supervisor_tells_which_signal_ended_a_node_and_when_it_is_back(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "RESTART_AFTER_S", 0.1)
    local, told = started(SERVER)
    local.wait_ready()
    assert told == []
    local.kill(local.nodes[0])
    wait_until(lambda: len(told) >= 3)
    died, starts, ready = told
    assert died == "n1 was killed by SIGKILL; it starts again in 0.1 s"
    assert starts == f"n1 starts again (restart 1), pid {local.nodes[0].pid}"
    assert ready.startswith("n1 is ready again, ")


def test_the_supervisor_tells_the_exit_code_and_what_the_node_logged_last(started: Started) -> None:
    _, told = started("import sys; sys.exit('the disk is full')", restart=False)
    wait_until(lambda: bool(told))
    assert told == ["n1 ended with exit code 1; it stays down; its log ends: the disk is full"]


def test_a_node_is_started_again_and_stopped_although_the_listing_of_nodes_cannot_be_written(
    started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supervisor, "RESTART_AFTER_S", 0.1)
    local, told = started(SERVER)
    listing = tmp_path / "cluster.json"
    listing.unlink()
    listing.mkdir()
    local.kill(local.nodes[0])
    wait_until(lambda: any(line.startswith("n1 is ready again, ") for line in told))
    assert told[0] == "cluster.json cannot be written, and lists the processes of before: Is a directory"
    process = local.nodes[0].process
    local.stop()
    assert process is not None
    assert process.poll() is not None


def test_a_node_that_ended_is_named_although_the_one_before_it_only_waits(tmp_path: Path) -> None:
    """The first of three nodes waited a minute for the second one, and the failure showed its log alone."""
    program = f"""
import sys
if "/n2/" in sys.argv[-1]:
    sys.exit("n2 cannot listen")
{SERVER.replace("200", "503")}"""
    local = LocalCluster(tmp_path, 3, port_base=0, restart=False, program=(sys.executable, "-c", program))
    with pytest.raises(ClusterFailed, match=r"n2 ended with exit code 1\.\nn2 cannot listen"), local:
        pass


def test_a_node_that_is_not_ready_in_time_is_shown_with_its_answer_and_its_log(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stockade.cli.local_cluster.cluster.READY_TIMEOUT_S", 0.1)
    local, _ = started(f"import sys\nprint('the log', file=sys.stderr)\n{SERVER.replace('200', '503')}")
    (node,) = local.nodes
    wait_until(lambda: supervisor.why_not_ready(node, 1.0, "/readyz") == "503: ")
    with (node.data / "node.log").open("a", encoding="utf-8") as file:
        file.write("INFO stockade.http.access: GET /readyz 503 1.0 ms 706 bytes\n" * 20)
    with pytest.raises(ClusterFailed, match=r"^n1 is not ready after 0\.1 s: 503: \nthe log$"):
        local.wait_ready()


def test_an_order_to_stop_ends_the_wait_for_nodes_that_are_not_ready(started: Started) -> None:
    """Ctrl-C was heard only when the cluster was ready, or had failed after a minute."""
    local, _ = started(SERVER.replace("200", "503"))
    stopping = supervisor.Stopping()
    stopping.order()
    assert not local.wait_ready(stopping)


def test_nodes_that_have_run_in_the_folder_and_are_not_started_are_found(tmp_path: Path) -> None:
    for name in ("n1", "n4", "n2"):
        (tmp_path / name / "wal").mkdir(parents=True)
    (tmp_path / "n5").mkdir()
    assert LocalCluster(tmp_path, 1, port_base=0).not_started == ["n2", "n4"]
    assert LocalCluster(tmp_path, 4, port_base=0).not_started == []


def test_a_folder_that_cannot_be_made_is_a_failure_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClusterFailed, match="file/data: Not a directory: choose another folder with --data"):
        LocalCluster(tmp_path / "file" / "data", 1, port_base=0).start()


def test_a_disk_that_is_full_is_a_failure_that_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("stockade.cli.local_cluster.cluster.write_durably", full)
    local = LocalCluster(tmp_path / "data", 1, port_base=0)
    with pytest.raises(ClusterFailed, match="data: No space left on device: choose another folder"):
        local.start()
    monkeypatch.undo()
    local.stop()


@pytest.mark.parametrize("name", ['say "data"', "back\\slash", "dätä", "new\nline"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    local = LocalCluster(tmp_path / name, 1, port_base=0, restart=False, program=(sys.executable, "-c", "pass"))
    local.start()
    local.stop()
    with (tmp_path / name / "n1" / "node.toml").open("rb") as file:
        assert tomllib.load(file)["data_dir"] == str(tmp_path / name / "n1")
