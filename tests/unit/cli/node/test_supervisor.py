"""What the supervisor does when a node process ends: start it again, later and later, or give up."""

import errno
import itertools
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import NoReturn

import pytest
from waiting import wait_until

from stockade.cli.local_cluster.ports import free_ports
from stockade.cli.node import supervisor
from stockade.cli.node.supervisor import NodeProcess, Supervisor, cannot_listen, ending, restart_delay_s, why_not_ready

Supervised = Callable[..., tuple[NodeProcess, list[str], list[str]]]

CUT_OFF = """
import socket, struct, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[-1])))
while True:
    connection, _ = listener.accept()
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 503 Service Unavailable\\r\\nContent-Length: 100\\r\\n\\r\\n{")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
"""
"""Stands in for a node that dies in each answer that it is not ready."""

READY = """
import http.server, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Ready).serve_forever()
"""
"""Stands in for a node: it is ready as soon as it listens."""


@pytest.fixture
def supervised(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    """Supervises one node that runs this Python program; answers it, what was told, and why it was given up."""
    monkeypatch.setattr(supervisor, "RESTART_AFTER_S", 0.05)
    with ExitStack() as stack:

        def start(program: str) -> tuple[NodeProcess, list[str], list[str]]:
            [port] = free_ports(1)
            node, told, reasons = NodeProcess("a.1", f"127.0.0.1:{port}"), list[str](), list[str]()
            words = [sys.executable, "-c", program, str(port)]
            watcher = Supervisor(
                [node],
                lambda _: subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True),
                told.append,
                give_up=reasons.append,
            )
            stack.callback(watcher.stop)
            watcher.start(node)
            watcher.watch()
            return node, told, reasons

        yield start


def is_told(told: list[str], lines: int) -> bool:
    return len(told) >= lines


@pytest.mark.parametrize(("ends", "delay_s"), [(0, 2), (1, 2), (2, 4), (3, 8), (4, 16), (5, 30), (6, 30), (10_000, 30)])
def test_a_node_that_is_never_ready_is_started_again_later_and_later_up_to_a_bound(ends: int, delay_s: float) -> None:
    assert restart_delay_s(ends) == delay_s


@pytest.mark.parametrize(
    ("returncode", "words"),
    [
        (0, "ended with exit code 0"),
        (3, "ended with exit code 3"),
        (-signal.SIGSEGV, "was killed by SIGSEGV"),
        (-50, "was killed by signal 50"),
    ],
)
def test_an_ending_is_named_by_its_signal_or_exit_code(returncode: int, words: str) -> None:
    assert ending(returncode) == words


def test_nodes_are_started_again_also_when_no_line_and_no_list_of_them_can_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a full disk, say: the supervisor ended in silence, and what was killed later stayed down."""
    monkeypatch.setattr(supervisor, "RESTART_AFTER_S", 0.05)

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    node = NodeProcess("a.1", "127.0.0.1:1")
    words = [sys.executable, "-c", "raise SystemExit(3)"]
    watcher = Supervisor([node], lambda _: subprocess.Popen(words), full, last_words=full, changed=full)
    try:
        watcher.start(node)
        watcher.watch()
        wait_until(lambda: node.restarts >= 2)
    finally:
        watcher.stop()


def test_a_node_that_ends_with_an_exit_code_before_it_was_ready_cannot_start(supervised: Supervised) -> None:
    node, told, reasons = supervised("import sys; sys.exit(3)")
    wait_until(lambda: bool(reasons))
    assert reasons == ["a.1 ended with exit code 3 before it was ready"]
    assert (told, node.restarts) == ([], 0)


def test_a_node_that_was_killed_before_it_was_ready_is_started_again(supervised: Supervised) -> None:
    node, told, reasons = supervised("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    wait_until(lambda: node.restarts >= 2)
    assert told[:1] == ["a.1 was killed by SIGKILL; it starts again in 0.05 s"]
    assert "a.1 was killed by SIGKILL; it starts again in 0.1 s" in told
    assert reasons == []


def test_a_node_that_was_ready_once_is_started_again_whatever_its_exit_code(supervised: Supervised) -> None:
    node, told, reasons = supervised(READY)
    wait_until(lambda: node.was_ready)
    for count in (1, 2):
        assert node.process is not None
        node.process.send_signal(signal.SIGTERM)
        wait_until(partial(is_told, told, 3 * count))
    plans = [line for line in told if "starts again in" in line]
    assert plans == ["a.1 was killed by SIGTERM; it starts again in 0.05 s"] * 2, "it was ready in between"
    assert reasons == []


def test_a_node_that_does_not_listen_to_signals_yet_may_be_stopped_by_one() -> None:
    words = [sys.executable, "-c", "import sys; print('x', flush=True); sys.stdin.read()"]
    processes = [NodeProcess(name, "127.0.0.1:1") for name in ("a.1", "a.2")]
    with ExitStack() as stack:
        started = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in processes]
        for process in started:
            stack.enter_context(process)
        own = dict(zip(("a.1", "a.2"), started, strict=True))
        watcher = Supervisor(processes, lambda node: own[node.name], print)
        for node in processes:
            watcher.start(node)
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == b"x\n"
        own["a.2"].kill()
        own["a.2"].wait()
        assert watcher.stop() == ["a.2 was killed by SIGKILL"]


def test_a_node_for_which_there_is_no_process_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RESTART_AFTER_S", 0.05)
    told, attempts = list[str](), itertools.count(1)
    node = NodeProcess("a.1", "127.0.0.1:1")

    def spawn(_: NodeProcess) -> "subprocess.Popen[bytes]":
        if next(attempts) == 2:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return subprocess.Popen([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])

    watcher = Supervisor([node], spawn, told.append)
    watcher.start(node)
    watcher.watch()
    wait_until(partial(is_told, told, 3))
    watcher.stop()
    assert told[:2] == [
        "a.1 was killed by SIGKILL; it starts again in 0.05 s",
        f"a.1 cannot be started: [Errno {errno.EAGAIN}] Resource temporarily unavailable; the next attempt is in 0.1 s",
    ]
    assert told[2].startswith("a.1 starts again (restart 1), pid ")


def test_a_node_that_does_not_answer_is_told_with_its_address_and_the_cause_in_words() -> None:
    [port] = free_ports(1)
    said = why_not_ready(NodeProcess("n1", f"127.0.0.1:{port}"), 60.0, "/readyz/data")
    assert said == f"http://127.0.0.1:{port}/readyz/data does not answer (Connection refused): does the node run?"


def test_an_address_whose_name_does_not_resolve_is_told_in_words() -> None:
    """It was `Unknown error -2`."""
    assert (cannot_listen("nowhere.invalid:7101") or "").endswith(("not known", "in name resolution"))


def test_a_node_that_dies_in_its_answer_that_it_is_not_ready_is_told_as_one_that_does_not_answer(
    supervised: Supervised,
) -> None:
    node, told, reasons = supervised(CUT_OFF)
    wait_until(lambda: node.asked_at > 0 and cannot_listen(node.http) is not None)
    said = why_not_ready(node, 60.0, "/readyz")
    assert said == f"{node.url}/readyz does not answer (Connection reset by peer): does the node run?"
    asked_at = node.asked_at
    wait_until(lambda: node.asked_at > asked_at)
    assert node.process is not None
    node.process.kill()
    wait_until(partial(is_told, told, 2))
    assert node.restarts == 1, "the supervisor outlived the answer"
    assert reasons == []


def test_a_bug_in_the_supervisors_look_is_logged_and_ends_no_supervision(
    supervised: Supervised, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, told, _ = supervised(READY)
    monkeypatch.setattr(supervisor, "ending", lambda _: 1 / 0)
    wait_until(lambda: node.was_ready)
    assert node.process is not None
    node.process.kill()
    wait_until(partial(is_told, told, 2))
    assert told[0].startswith("a.1 starts again (restart 1), pid ")
    assert "a look at a.1 failed; the supervisor goes on" in caplog.text
