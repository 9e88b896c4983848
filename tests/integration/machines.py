"""Machines of several nodes on this one: `stockade serve` with `processes`, one supervisor for each."""

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from consecutive import consecutive_ports

from .api import call, eventually

STOP_TIMEOUT_S = 60
LIMITS = "[limits]\nwal_file_bytes = 1048576\nwal_bytes_max = 4194304\n"


class Machine:
    """One machine: its configuration and log in a folder of its own, its supervisor's process."""

    def __init__(self, name: str, folder: Path, http: int, raft: int, processes: int) -> None:
        self.name, self.folder = name, folder
        self.http, self.raft, self.processes = http, raft, processes
        self.supervisor: subprocess.Popen[bytes] | None = None

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{self.http + number}" for number in range(self.processes)]

    @property
    def log(self) -> str:
        """What supervisor and nodes have logged."""
        return (self.folder / "log").read_text(encoding="utf-8")

    def write(self, members: Sequence["Machine"]) -> None:
        self.folder.mkdir(parents=True)
        lines = [f'node_id = "{self.name}"', 'cluster_id = "machines"', 'data_dir = "data"']
        lines += [f"processes = {self.processes}", f'http = "127.0.0.1:{self.http}"']
        lines += [f'raft_listen = "127.0.0.1:{self.raft}"', LIMITS]
        for member in members:
            lines += ["[[members]]", f'node_id = "{member.name}"']
            lines += [f'url = "http://127.0.0.1:{member.http}"', f'raft = "127.0.0.1:{member.raft}"']
        (self.folder / "node.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def start(self) -> None:
        command = [sys.executable, "-m", "stockade", "serve", "--with-parent", "--config", "node.toml"]
        with (self.folder / "log").open("ab") as log:
            self.supervisor = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def pids(self) -> dict[str, int]:
        """The process ids with which the nodes were started first."""
        return {name: int(pid) for name, pid in re.findall(r"([\w.]+) \(pid (\d+)\)", self.log)}

    def stop(self) -> int | None:
        """Exit code after SIGTERM; None: it never ran."""
        if self.supervisor is None:
            return None
        self.supervisor.send_signal(signal.SIGTERM)
        return self.supervisor.wait(STOP_TIMEOUT_S)


class Machines:
    """A cluster of machines, ready in the ``with``; all are stopped behind it."""

    def __init__(self, folder: Path, names: str, processes: int) -> None:
        ports = iter(consecutive_ports(2 * len(names), processes))
        self.each = [Machine(name, folder / name, next(ports), next(ports), processes) for name in names]

    def __enter__(self) -> list[Machine]:
        try:
            for machine in self.each:
                machine.write(self.each)
                machine.start()
            for machine in self.each:
                for url in machine.urls:
                    eventually(partial(_is_ready, url))
        except BaseException:
            self._stop()
            raise
        return self.each

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for machine in self.each:
            if machine.supervisor is not None and machine.supervisor.poll() is None:
                machine.stop()


def _is_ready(url: str) -> bool:
    return call("GET", f"{url}/readyz").status == 200
