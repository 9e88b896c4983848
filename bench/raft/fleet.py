"""Three node processes on this machine: started, asked, stopped, killed and started again."""

# ruff: noqa: S603  # it starts workers

import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

WORKER = Path(__file__).with_name("worker.py")
NODES = ("n1", "n2", "n3")
SETTLE_S = 120.0


class Fleet:
    """Three nodes with data under a directory. Use it as a context manager."""

    def __init__(self, directory: Path, *, fsync: bool = True, settings: dict[str, int] | None = None) -> None:
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in NODES]
        ports = [str(each.getsockname()[1]) for each in sockets]
        for each in sockets:
            each.close()
        self._options = ["--ports", *ports, "--directory", str(directory), "--settings", json.dumps(settings or {})]
        self._options += [] if fsync else ["--without-fsync"]
        self._opened: list[dict[str, Any]] = []
        self._founders: dict[str, int] = {}
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> "Fleet":
        for node in NODES:
            self.start(node)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for node in list(self.processes):
            self.kill(node)

    def start(self, node: str) -> None:
        """Start a node, and open on it all groups that are open on the others."""
        self.processes[node] = subprocess.Popen(
            [sys.executable, str(WORKER), node, *self._options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._founders[node] = self.answer(node)
        for groups in self._opened:
            self.ask(node, "open", **groups)

    def kill(self, node: str) -> None:
        """End a node as kill -9 does."""
        process = self.processes.pop(node)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()

    def say(self, node: str, command: str, **values: Any) -> None:
        """Send a command to a node; ``answer`` waits for the answer."""
        pipe = self.processes[node].stdin
        assert pipe is not None
        pipe.write(json.dumps([command, values]) + "\n")
        pipe.flush()

    def answer(self, node: str) -> Any:
        """Wait for a node's answer to a command that ``say`` has sent. EOFError if the node has died."""
        pipe = self.processes[node].stdout
        assert pipe is not None
        line = pipe.readline()
        if not line:
            raise EOFError(f"{node} has died")
        return json.loads(line)

    def ask(self, node: str, command: str, **values: Any) -> Any:
        """Send a command to a node, and return its answer."""
        self.say(node, command, **values)
        return self.answer(node)

    def ask_all(self, command: str, **values: Any) -> dict[str, Any]:
        """Send a command to all living nodes at once; return their answers by node."""
        for node in self.processes:
            self.say(node, command, **values)
        return {node: self.answer(node) for node in self.processes}

    def open(self, first: int, count: int, *, spread: bool = False) -> None:
        """Open ``count`` groups, from ``first`` on, on all nodes. The first node leads them, or, with ``spread``, each
        node a share. Returns when all are led.
        """
        groups = {"first": first, "count": count, "spread": spread, "founders": self._founders}
        self._opened.append(groups)
        self.ask_all("open", **groups)
        self.until(lambda states: all(state["led"] == self.groups for state in states))

    @property
    def groups(self) -> int:
        """The number of groups that are open on each node."""
        return sum(groups["count"] for groups in self._opened)

    def until(self, condition: Any) -> list[dict[str, Any]]:
        """Wait until ``condition`` holds of all living nodes' states; return these. TimeoutError after SETTLE_S."""
        end = time.monotonic() + SETTLE_S
        while not condition(states := list(self.ask_all("status").values())):
            if time.monotonic() > end:
                raise TimeoutError(f"not within {SETTLE_S:g} s: {states}")
            time.sleep(0.1)
        return states

    def until_resting(self) -> list[dict[str, Any]]:
        """Wait until every group is quiescent on every node; return the states."""
        return self.until(lambda states: all(state["resting"] == self.groups for state in states))

    def load(self, groups: list[int], **values: Any) -> dict[str, float]:
        """Load the groups on the node that leads them all. If none does, all others transfer theirs to the first node.

        ``cpu_us`` in the result is the processor time of all nodes together for a commit: on a machine that does other
        things as well it says more than commits a second.
        """
        end = time.monotonic() + SETTLE_S
        while time.monotonic() < end:
            for node in list(self.processes):
                before = self._cpu_s()
                result: dict[str, float] | None = self.ask(node, "load", groups=groups, **values)
                if result is not None:
                    return result | {"cpu_us": (self._cpu_s() - before) / result["commits"] * 1e6}
            first, *others = self.processes
            for node in others:
                self.ask(node, "transfer_leadership", to=first)
            time.sleep(0.1)
        raise TimeoutError(f"no node leads all of {len(groups)} groups")

    def _cpu_s(self) -> float:
        return float(sum(state["cpu_s"] for state in self.ask_all("status").values()))


@contextmanager
def fleet(**options: Any) -> Iterator[Fleet]:
    """Three nodes that run inside the context, with their data in a temporary folder of the working directory."""
    with (
        tempfile.TemporaryDirectory(prefix="stockade-bench-", dir=".") as directory,
        Fleet(Path(directory), **options) as f,
    ):
        yield f
