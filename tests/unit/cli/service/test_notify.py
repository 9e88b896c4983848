"""What a service manager hears: of a node, of a machine of several, and of neither where it does not ask."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from child import ended
from consecutive import consecutive_ports

from stockade.cli.service.notify import ServiceManager

HEARD_S = 60.0


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(HEARD_S)
        yield listener


def heard(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().split("\n")


def environ_of(manager: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(manager.getsockname()), **more}


def test_messages_are_those_of_the_protocol(manager: socket.socket) -> None:
    teller = ServiceManager.taken(environ_of(manager))
    teller.ready("node n1 serves")
    teller.reloading()
    teller.stopping()
    assert heard(manager) == ["READY=1", "STATUS=node n1 serves"]
    first, second = heard(manager)
    assert (first, second.partition("=")[0]) == ("RELOADING=1", "MONOTONIC_USEC")
    assert second.partition("=")[2].isdecimal()
    assert heard(manager)[0] == "STOPPING=1"


def test_an_abstract_socket_is_reached() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(HEARD_S)
        name = f"stockade-test-{os.getpid()}"
        listener.bind(f"\0{name}")
        ServiceManager(f"@{name}").ready("")
        assert heard(listener) == ["READY=1", "STATUS="]


def test_children_of_the_process_do_not_get_the_variables_of_the_service_manager(manager: socket.socket) -> None:
    environ = environ_of(manager, WATCHDOG_USEC="3000000", WATCHDOG_PID=str(os.getpid()), PATH="p")
    assert ServiceManager.taken(environ).alive_every_s == 1.0
    assert environ == {"PATH": "p"}


@pytest.mark.parametrize(
    "variables", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}]
)
def test_a_watchdog_that_does_not_watch_this_process_hears_nothing(
    manager: socket.socket, variables: dict[str, str]
) -> None:
    assert ServiceManager.taken(environ_of(manager, **variables)).alive_every_s is None


def test_without_a_service_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("a socket was opened"))
    ServiceManager.taken({"WATCHDOG_USEC": "9"}).ready("x")


def test_a_service_manager_that_is_gone_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager(str(tmp_path / "gone")).ready("x")
    assert "the service manager did not take READY=1" in caplog.text


def test_the_watchdog_hears_of_a_loop_that_turns(manager: socket.socket) -> None:
    async def turn() -> None:
        task = asyncio.ensure_future(ServiceManager(str(manager.getsockname()), 0.01).stay_alive())
        await asyncio.sleep(0)
        assert await asyncio.to_thread(heard, manager) == ["WATCHDOG=1"]
        assert await asyncio.to_thread(heard, manager) == ["WATCHDOG=1"]
        task.cancel()

    asyncio.run(turn())


def environ_of_node(manager: socket.socket, processes: int | None, tmp_path: Path) -> dict[str, str]:
    """The environment of a node, or of a machine of several, that alone is a cluster."""
    http, raft = consecutive_ports(2, processes or 1)
    return dict(os.environ) | environ_of(
        manager,
        WATCHDOG_USEC="600000",
        STOCKADE_NODE_ID="a",
        STOCKADE_CLUSTER_ID="c",
        STOCKADE_DATA_DIR=str(tmp_path / "data"),
        STOCKADE_HTTP=f"127.0.0.1:{http}",
        STOCKADE_RAFT_LISTEN=f"127.0.0.1:{raft}",
        STOCKADE_MEMBERS=f'[{{"node_id": "a", "url": "http://127.0.0.1:{http}", "raft": "127.0.0.1:{raft}"}}]',
        **({} if processes is None else {"STOCKADE_PROCESSES": str(processes)}),
    )


@pytest.mark.processes
@pytest.mark.parametrize("processes", [None, 2])
def test_a_node_and_a_machine_of_two_say_when_they_serve_read_again_live_and_stop(
    manager: socket.socket, processes: int | None, tmp_path: Path
) -> None:
    environ = environ_of_node(manager, processes, tmp_path)
    node = subprocess.Popen([sys.executable, "-m", "stockade", "serve", "--with-parent"], env=environ)
    try:
        until(manager, "READY=1")
        until(manager, "WATCHDOG=1")
        node.send_signal(signal.SIGHUP)
        until(manager, "RELOADING=1")
        until(manager, "READY=1")
        until(manager, "WATCHDOG=1")
        node.send_signal(signal.SIGTERM)
        until(manager, "STOPPING=1")
        assert node.wait(HEARD_S) == 0
    finally:
        node.kill()
        node.wait()


@pytest.mark.processes
@pytest.mark.parametrize(("processes", "first"), [(None, "STATUS=starting"), (2, "WATCHDOG=1")])
def test_a_signal_during_the_start_ends_no_node_and_is_obeyed_when_it_serves(
    manager: socket.socket, processes: int | None, first: str, tmp_path: Path
) -> None:
    """A machine said that it was ready, and SIGHUP and SIGUSR1 killed the nodes that it had just started."""
    environ = environ_of_node(manager, processes, tmp_path)
    words = [sys.executable, "-m", "stockade", "serve", "--with-parent"]
    with (tmp_path / "log").open("wb") as log, ended(subprocess.Popen(words, env=environ, stderr=log)) as node:
        until(manager, first)
        node.send_signal(signal.SIGHUP)
        if processes is not None:
            node.send_signal(signal.SIGUSR1)
        until(manager, "READY=1")
        node.send_signal(signal.SIGTERM)
        assert node.wait(HEARD_S) == 0
    lines = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if "was killed" in line] == []
    read = [
        line
        for line in lines
        if line.endswith("[principals]: new connections and requests use the files as they are now")
    ]
    assert len(read) == (processes or 1)
    assert len([line for line in lines if "SIGUSR1: the log has lines from DEBUG on" in line]) == (processes or 0)


def until(manager: socket.socket, wanted: str) -> None:
    """Hear until this message comes. What comes before it is the watchdog's, or a status."""
    while (lines := heard(manager))[0] != wanted:
        assert lines[0] == "WATCHDOG=1" or lines[0].startswith("STATUS="), lines
