import socket
from pathlib import Path

import pytest

from stockade.cli.local_cluster.ports import LOOPBACK, LOWEST, PORTS, free_ports


def test_no_connection_is_given_the_port_of_a_server_that_is_down() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    found = free_ports(20)
    assert len(set(found)) == 20
    assert all(LOWEST <= port < first <= last for port in found)


def unused() -> int:
    """A port that ``free_ports`` has not given out."""
    with socket.create_server((LOOPBACK, 0)) as server:
        port: int = server.getsockname()[1]
    return port


def draws(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    drawn = iter(ports)
    monkeypatch.setattr("random.randrange", lambda *_: next(drawn))


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        taken, free = server.getsockname()[1], unused()
        draws(monkeypatch, taken, taken, free)
        assert free_ports(1) == [free]


def test_clusters_that_start_at_the_same_time_get_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server listens on the first one's ports yet. Without this, one of their nodes could not listen and ended."""
    first, second = unused(), unused()
    draws(monkeypatch, first, first, second)
    assert free_ports(1) == [first]
    assert free_ports(1) == [second]


def test_a_server_can_be_stopped_and_started_on_a_port_that_was_given_out() -> None:
    (port,) = free_ports(1)
    for _ in range(2):
        with socket.create_server((LOOPBACK, port)), socket.create_connection((LOOPBACK, port)):
            pass


def test_a_machine_without_free_ports_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr("random.randrange", lambda *_: taken)
        with pytest.raises(OSError, match="1 free ports were not found"):
            free_ports(1)


@pytest.mark.parametrize("range_of_connections", ["1024\t65535\n", "10000\t65535\n", "10001\t65535\n"])
def test_a_machine_that_gives_all_ports_to_connections_has_free_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, range_of_connections: str
) -> None:
    (tmp_path / "range").write_text(range_of_connections, encoding="utf-8")
    monkeypatch.setattr("stockade.cli.local_cluster.ports._OF_CONNECTIONS", tmp_path / "range")
    assert all(LOWEST <= port < PORTS for port in free_ports(20))
