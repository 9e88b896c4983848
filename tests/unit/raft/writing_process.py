"""A process that appends to a group of its own until its node fails, and prints the answers that it got."""

import asyncio
import resource
import sys
from pathlib import Path
from typing import NamedTuple, Self

from stockade.cli.local_cluster.ports import free_ports
from stockade.raft.host import RaftHost, RaftSettings

from .cluster import GROUP
from .file_machine import SMALL, FileMachine


class WriterOutput(NamedTuple):
    """How many commands were acked, and of how many the outcome is unknown; why the node failed; one more answer."""

    acked: int
    unknown: int
    failure: str
    later: str

    @classmethod
    def of(cls, output: str) -> Self:
        lines = [line.split(" ", 1) for line in output.splitlines()]
        words = dict(lines)
        answers = [answer for word, answer in lines if word == "answered"]
        return cls(answers.count("Committed"), answers.count("Unknown"), words["failed"], words["later"])

    def allows(self, found: int) -> bool:
        """Whether a node may find so many commands: all that were acked, and any whose outcome is unknown."""
        return self.acked <= found <= self.acked + self.unknown


def _report(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def write(data: Path, checkpoint_bytes: int, file_bytes_max: int) -> None:
    failures: list[BaseException] = []
    settings = RaftSettings(60, 120, 20, checkpoint_bytes=checkpoint_bytes, wal_file_bytes=SMALL.wal_file_bytes)
    host = RaftHost("n1", "house", ("127.0.0.1", free_ports(1)[0]), {}, data, settings, failures.append)
    await host.start()
    group = host.open_group(GROUP, {"n1": host.incarnation}, FileMachine())
    while not group.ready:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    _report("ready")
    sys.stdin.readline()
    if file_bytes_max:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))
    while not failures:
        _report(f"answered {type(await group.propose(bytes(300), 5.0)).__name__}")
    _report(f"failed {failures[0]!r}")
    _report(f"later {type(await group.propose(b'later', 1.0)).__name__}")
    await host.stop()


def main() -> None:
    data, checkpoint_bytes, *rest = sys.argv[1:]
    asyncio.run(write(Path(data), int(checkpoint_bytes), int(rest[0]) if rest else 0))
