"""Three machines of two nodes each: no partition has two replicas on one, a killed node returns, one is drained and
comes back.
"""

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from child import ended
from click.testing import CliRunner

from stockade.cli.local_cluster.ports import free_ports
from stockade.cli.main import main

from .api import Topic, call, eventually, expect
from .machines import Machine, Machines

# Each of many steps may take a minute on a busy machine.
pytestmark = pytest.mark.timeout(600)


def machines_of(topic: Topic) -> list[set[str]]:
    """The machines on which each partition has its replicas."""
    partitions = expect(200, call("GET", topic.url))["partitions"]
    return [{node_id.partition(".")[0] for node_id in partition["replicas"]} for partition in partitions]


def seen(machine: Machine) -> Any:
    return expect(200, call("GET", f"{machine.urls[0]}/v1/cluster"))


def said(machine: Machine, *words: str) -> list[str]:
    """The lines of an order that is carried out."""
    result = CliRunner().invoke(main, ["cluster", *words, "--url", ",".join(machine.urls)])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_machines_of_two_nodes_keep_a_copy_each_outlive_a_kill_and_can_be_drained(tmp_path: Path) -> None:
    with Machines(tmp_path, "abc", 2) as (a, b, c):
        topic = Topic(b.urls[0], "spread")
        topic.create(partitions=4)
        assert machines_of(topic) == [{"a", "b", "c"}] * 4
        assert {node["node_id"]: node["zone"] for node in seen(b)["nodes"]} == {
            f"{zone}.{number}": zone for zone in "abc" for number in (1, 2)
        }
        assert seen(b)["controllers"] == ["a.1", "a.2", "b.1", "b.2", "c.1"], "no machine has the majority"
        expect(200, topic.append("before"))

        os.kill(b.pids()["b.1"], signal.SIGKILL)
        eventually(lambda: "stockade: b.1 was killed by SIGKILL; it starts again in 2 s\n" in b.log)
        eventually(lambda: "stockade: b.1 is ready again, " in b.log)
        assert "b.2 was killed" not in b.log

        assert said(c, "drain", "a") == ["a: removed: a.1, a.2"]
        eventually(lambda: tabled(c) == [("b", "2", "of", "2", "b.1,", "b.2"), ("c", "2", "of", "2", "c.1,", "c.2")])
        eventually(lambda: machines_of(topic.at(c.urls[0])) == [{"b", "c"}] * 4)
        assert eventually(topic.at(c.urls[1]).values) == ["before"]

        back = f"http://127.0.0.1:{a.http}", f"127.0.0.1:{a.raft}"
        assert said(c, "add", "a", *back, "--processes", "2")
        eventually(lambda: sorted(name[0] for name in seen(c)["controllers"]) == ["a", "b", "c"])
        assert [machine.stop() for machine in (a, b, c)] == [0, 0, 0], (a.log, b.log, c.log)
        assert all(is_gone(pid) for machine in (a, b, c) for pid in machine.pids().values())


def tabled(machine: Machine) -> list[tuple[str, ...]]:
    """The lines of the table of machines: which one, how many of its nodes are up, and their names."""
    lines = [line.split() for line in said(machine, "status")[2:]]
    return [(line[0], *line[1:4], *line[5:]) for line in lines[: lines.index([])]]


def test_a_machine_of_which_a_node_cannot_start_stops_as_a_whole_and_says_which(tmp_path: Path) -> None:
    [machine] = Machines(tmp_path, "a", 2).each
    machine.write([machine])
    damaged = machine.folder / "data" / "a.2" / "members.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{", encoding="utf-8")
    machine.start()
    assert machine.supervisor is not None
    assert machine.supervisor.wait(60) == 1
    last = machine.log.splitlines()[-2:]
    assert last == ["Error: machine a stopped:", "  - a.2 ended with exit code 1 before it was ready"]
    assert "members.json: damaged" in machine.log
    assert all(is_gone(pid) for pid in machine.pids().values())


def test_nodes_whose_supervisor_was_killed_stop_by_themselves(tmp_path: Path) -> None:
    with Machines(tmp_path, "a", 1) as [machine]:
        assert machine.supervisor is not None
        machine.supervisor.kill()
        machine.supervisor.wait()
        eventually(lambda: is_closed(machine.urls[0]))
        assert "a.1 stockade: the process that started this node is gone: stopping" in machine.log


def test_nodes_whose_supervisor_was_killed_as_soon_as_it_had_started_them_stop_by_themselves(tmp_path: Path) -> None:
    """They looked for their parent later, took the one that had adopted them for it, and kept the ports for good."""
    [machine] = Machines(tmp_path, "a", 1).each
    machine.write([machine])
    machine.start()
    assert machine.supervisor is not None
    eventually(lambda: bool(machine.pids()))
    machine.supervisor.kill()
    machine.supervisor.wait()
    node = os.pidfd_open(machine.pids()["a.1"])
    try:
        assert select.select([node], [], [], 60)[0], "the node runs on"
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(node, signal.SIGKILL)
        os.close(node)


def test_a_cluster_whose_output_is_closed_goes_on_and_starts_nodes_again(tmp_path: Path) -> None:
    """`stockade cluster | head`: the first line that `head` did not take ended the supervisor, in silence."""
    (first,) = free_ports(1)
    words = [sys.executable, "-m", "stockade", "cluster", "--nodes", "1", "--port-base", str(first), "--data"]
    with ended(subprocess.Popen([*words, str(tmp_path)], stdout=subprocess.PIPE)) as running:
        assert running.stdout is not None
        assert any(b"ready" in line for line in running.stdout)
        running.stdout.close()
        [node] = json.loads((tmp_path / "cluster.json").read_bytes())["nodes"]
        os.kill(node["pid"], signal.SIGKILL)
        eventually(partial(is_closed, node["http"]))
        eventually(partial(is_open, node["http"]))
        running.terminate()


STRUCK = """
import signal, sys, threading
from stockade.cli.main import main

def strike(frame, event, _):
    handler = signal.getsignal(signal.SIGTERM)
    if frame.f_code.co_filename != threading.__file__ or not callable(handler):
        return None
    if event == "line":
        handler(signal.SIGTERM, frame)
    return strike

sys.settrace(strike)
main(sys.argv[1:])
"""
"""A command whose main thread gets a SIGTERM in each line in which threads wait for each other."""

ASIDE = """
import signal, sys, threading, time
from stockade.cli.main import main

def waits():
    frame = sys._current_frames()[threading.main_thread().ident]
    return frame.f_code.co_name == "wait" and callable(signal.getsignal(signal.SIGTERM))

def strike():
    while not waits():
        time.sleep(0.01)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

threading.Thread(target=strike, daemon=True).start()
main(sys.argv[1:])
"""
"""A command that gets a SIGTERM on another thread while its main thread waits: the kernel chooses one."""


@pytest.mark.parametrize("program", [STRUCK, ASIDE], ids=["at any moment", "on any thread"])
@pytest.mark.parametrize("command", ["serve", "cluster"])
def test_a_signal_at_any_moment_stops_serve_and_cluster(tmp_path: Path, command: str, program: str) -> None:
    """After two signals at once, as `timeout` sends them, it waited for itself, and after some of one for another."""
    [machine] = Machines(tmp_path, "a", 1).each
    machine.write([machine])
    port = str(machine.http)
    options = {"serve": ["--config", "node.toml"], "cluster": ["--nodes", "1", "--port-base", port, "--data", "data"]}
    words = [sys.executable, "-c", program, command, *options[command]]
    with ended(subprocess.Popen(words, cwd=machine.folder, stdout=subprocess.PIPE)) as running:
        assert running.wait(60) == 0


def is_open(url: str) -> bool:
    return call("GET", f"{url}/readyz").status == 200


def is_closed(url: str) -> bool:
    try:
        call("GET", f"{url}/readyz")
    except OSError:
        return True
    return False
