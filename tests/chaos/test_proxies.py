"""The proxies do to connections what their names say; the other tests of this folder rest on it."""

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
from sources import ROOT

from stockade.chaos.system.proxies import Address, ProxyError, ProxyServer, find_server

from .proxied import CuttableMesh

pytestmark = pytest.mark.processes

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[ProxyServer]:
    with ProxyServer() as running:
        yield running


@pytest.fixture
def target() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        yield listener


def link(address: Address, target: socket.socket) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection through a proxy."""
    near = socket.create_connection(address, timeout=PATIENCE_S)
    far, _ = target.accept()
    far.settimeout(PATIENCE_S)
    return near, far


def mesh_of(server: ProxyServer, target: socket.socket, prefix: str) -> tuple[CuttableMesh, Address]:
    nodes = {f"{prefix}{k}": target.getsockname()[:2] for k in (1, 2, 3)}
    mesh = CuttableMesh(server, nodes)
    return mesh, mesh.address(f"{prefix}2", f"{prefix}1")


def test_bytes_pass_both_ways(server: ProxyServer, target: socket.socket) -> None:
    _, address = mesh_of(server, target, "pass")
    near, far = link(address, target)
    with near, far:
        near.sendall(b"to")
        assert far.recv(9) == b"to"
        far.sendall(b"fro")
        assert near.recv(9) == b"fro"


def test_a_refused_cut_breaks_the_connection_and_healing_lets_a_new_one_in(
    server: ProxyServer, target: socket.socket
) -> None:
    mesh, address = mesh_of(server, target, "refused")
    near, far = link(address, target)
    with near, far:
        mesh.isolate(["refused1"], "refused")
        assert near.recv(9) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=PATIENCE_S)
    mesh.heal()
    near, far = link(address, target)
    with near, far:
        near.sendall(b"again")
        assert far.recv(9) == b"again"


def test_a_silent_cut_swallows_bytes_and_healing_breaks_the_connection(
    server: ProxyServer, target: socket.socket
) -> None:
    mesh, address = mesh_of(server, target, "silent")
    near, far = link(address, target)
    with near, far:
        mesh.isolate(["silent1"], "silent")
        near.sendall(b"lost")
        far.settimeout(0.3)
        with pytest.raises(TimeoutError):
            far.recv(9)
        mesh.heal()
        far.settimeout(PATIENCE_S)
        assert far.recv(9) == b""


def test_links_within_the_majority_stay_up(server: ProxyServer, target: socket.socket) -> None:
    mesh, _ = mesh_of(server, target, "inner")
    mesh.isolate(["inner1"], "refused")
    near, far = link(mesh.address("inner3", "inner2"), target)
    with near, far:
        near.sendall(b"up")
        assert far.recv(9) == b"up"


def test_a_server_ends_with_the_process_that_started_it() -> None:
    script = (
        "import os; from stockade.chaos.system.proxies import ProxyServer;"
        " print(ProxyServer()._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    with suppress(ProcessLookupError):
        server = os.pidfd_open(int(killed.stdout))
        assert select.select([server], [], [], PATIENCE_S)[0], "it has not ended"
        os.close(server)


def test_a_refusal_of_the_proxy_server_is_an_error(server: ProxyServer, target: socket.socket) -> None:
    server.create("twice", target.getsockname()[:2])
    with pytest.raises(ProxyError, match="already exists"):
        server.create("twice", target.getsockname()[:2])


def test_the_server_that_the_tools_set_up_is_found_without_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: path and f"{path}/{name}")
    assert find_server() == ROOT / ".tools" / "bin" / "toxiproxy-server"
