"""The interface between the runner and a system, and what all systems need: processes, waiting, programs."""

# ruff: noqa: S603  # it starts servers and loads

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from figures import Load
from processor import PIDS

NODES = 3
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
T = TypeVar("T")
LOADS = Path(__file__).resolve().parents[1] / "loads"


class Failed(Exception):
    """A system does not start or a load does not end well; the message says why, in a line."""


class Running(Protocol):
    """Three nodes that run, with nothing in them but what ``create`` made."""

    @property
    def pids(self) -> Sequence[int]:
        """The processes of the nodes."""
        ...

    def create(self, partitions: int) -> None:
        """Make a topic, or what the system has instead, and return when every partition is led."""
        ...

    def delete(self, partitions: int) -> None:
        """Remove what ``create`` made."""
        ...

    def command(self, workload: str, partitions: int, amount: float) -> list[str]:
        """The command of the process that loads the nodes; ``amount`` is seconds, or a number of records to read."""
        ...


class System(NamedTuple):
    """One system. ``sync``: what an acknowledgement says of the disks. ``workloads``: on how many partitions each can
    be measured. ``warms_up``: it gets faster while it runs, and so each turn begins with a load that does not count.

    ``had``: finds or installs the programs, and returns the version; raises `setup_tools.CannotHave`. ``start``: runs
    three nodes with their data in a folder, as long as its context lasts.
    """

    name: str
    title: str
    sync: str
    client: str
    workloads: Mapping[str, Sequence[int]]
    had: Callable[[], str]
    start: Callable[[Path], AbstractContextManager[Running]]
    warms_up: bool = False


@dataclass
class Spawned:
    """A server and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise Failed if it has ended."""
        if self.process.poll() is not None:
            raise Failed(f"{self.log.stem} has ended: {last_line(self.log.read_text(errors='replace'))}")


@contextmanager
def spawned(
    commands: Mapping[str, Sequence[object]], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[list[Spawned]]:
    """Start servers, given by name and command, each with a log in the folder. They end with the block."""
    servers: list[Spawned] = []
    try:
        for name, command in commands.items():
            path = folder / f"{name}.log"
            with path.open("wb") as log:
                process = subprocess.Popen(
                    list(map(str, command)), stdout=log, stderr=log, env=os.environ | dict(environment or {})
                )
            servers.append(Spawned(process, path))
        yield servers
    finally:
        for server in servers:
            server.process.terminate()
        for server in servers:
            try:
                server.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                server.process.kill()
                server.process.wait()


def until(servers: Sequence[Spawned], look: Callable[[], T | None], what: str) -> T:
    """Poll ``look`` until it returns a result, and return it; None, OSError and ValueError mean: not yet. Raises Failed
    after READY_TIMEOUT_S, or when a server has ended.
    """
    end = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < end:
        with suppress(OSError, ValueError):
            if (found := look()) is not None:
                return found
        for server in servers:
            server.check()
        time.sleep(0.1)
    raise Failed(f"{what}: not within {READY_TIMEOUT_S:g} s")


def until_open(servers: Sequence[Spawned], ports: Sequence[int], name: str) -> None:
    """Return when a server listens at each of these ports. Raises Failed, which names the system, as ``until`` does."""

    def is_open(port: int) -> bool:
        with socket.create_connection(("127.0.0.1", port), 1.0):
            return True

    for port in ports:
        until(servers, partial(is_open, port), f"{name} listens")


def python_load(name: str, **arguments: Any) -> list[str]:
    """The command of a load in Python."""
    return [sys.executable, str(LOADS), name, json.dumps(arguments)]


def loaded(
    pids: Sequence[int], command: Sequence[str], environment: Mapping[str, str] | None = None, timeout_s: float = 120.0
) -> Load:
    """Run a load of the servers with these process ids to its end. Raises Failed."""
    said = finished(command, {PIDS: ",".join(map(str, pids))} | dict(environment or {}), timeout_s)
    return Load(**json.loads(said))


def last_line(text: str) -> str:
    """The last line of a program's output."""
    return (text.strip().splitlines() or ["no output"])[-1][:300]


def finished(command: Sequence[str], environment: Mapping[str, str] | None = None, timeout_s: float = 120.0) -> str:
    """Run a program to its end; return what it prints. Raises Failed: with its last line, or if it is late."""
    try:
        done = subprocess.run(
            command,
            env=os.environ | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command[:3])}: not within {timeout_s:g} s") from None
    if done.returncode:
        raise Failed(last_line(done.stderr or done.stdout))
    return done.stdout
