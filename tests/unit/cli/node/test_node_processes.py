"""A machine of several nodes: what its main thread does while its nodes start."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade.cli.node import node_processes
from stockade.cli.node.node_processes import NodeProcesses
from stockade.cli.node.supervisor import NodeProcess
from stockade.cli.service.notify import ServiceManager
from stockade.cluster.config import NodeConfig
from stockade.cluster.machines import Member

IDLE = [sys.executable, "-c", "import signal; signal.pause()"]
"""Stands in for a node that never answers."""
ROUNDS = 8


class Heard(ServiceManager):
    """A service manager that notes the watchdog messages that it hears, in ``events``."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self._events = events

    def alive(self) -> None:
        self._events.append("alive")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Takes the handlers of a machine away behind each test."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_nodes_that_hang_keep_neither_the_watchdog_nor_the_order_to_stop_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a machine of 64 the watchdog heard nothing for half a minute while each node was asked for half a second."""
    events = list[str]()

    def hangs(node: NodeProcess, timeout_s: float, *, path: str) -> bool:
        events.append("asked")
        if events.count("asked") == ROUNDS:
            os.kill(os.getpid(), signal.SIGTERM)
        return False

    monkeypatch.setattr(node_processes, "is_ready", hangs)
    monkeypatch.setattr(node_processes, "PARENT_S", 0.01)
    monkeypatch.setattr(node_processes, "in_use", lambda nodes: [])  # the nodes do not listen here
    http, raft = "127.0.0.1:7101", "127.0.0.1:7201"
    members = [Member("a", f"http://{http}", raft)]
    config = NodeConfig("a", "c", str(tmp_path), http=http, raft_listen=raft, members=members, processes=3)
    assert NodeProcesses(config, IDLE, Heard(events)).run(None) == []
    assert events == ["alive", "asked"] * ROUNDS
