"""A process that writes to a group of its own until its node fails, and tells what it was answered."""

import asyncio
import resource
import sys
from pathlib import Path
from typing import NamedTuple, Self

from stockade.raft.group import Committed
from stockade.raft.host import RaftHost, RaftSettings

from .cluster import GROUP, free_ports
from .filing import SMALL, Filing


class Told(NamedTuple):
    """How many commands were acked, why the node failed, and the answer to one more command."""

    acked: int
    failure: str
    later: str

    @classmethod
    def of(cls, output: str) -> Self:
        lines = [line.split(" ", 1) for line in output.splitlines()]
        said = dict(lines)
        return cls(sum(word == "acked" for word, _ in lines), said["failed"], said["later"])


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def write(data: Path, checkpoint_bytes: int, file_bytes_max: int) -> None:
    failures: list[BaseException] = []
    settings = RaftSettings(60, 120, 20, checkpoint_bytes=checkpoint_bytes, wal_file_bytes=SMALL.wal_file_bytes)
    host = RaftHost("n1", "house", ("127.0.0.1", free_ports(1)[0]), {}, data, settings, failures.append)
    await host.start()
    group = host.open_group(GROUP, {"n1": host.incarnation}, Filing())
    while not group.ready:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    _tell("ready")
    sys.stdin.readline()
    if file_bytes_max:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))
    while not failures:
        if isinstance(await group.propose(bytes(300), 5.0), Committed):
            _tell("acked -")
    _tell(f"failed {failures[0]!r}")
    _tell(f"later {type(await group.propose(b'later', 1.0)).__name__}")
    await host.stop()


def main() -> None:
    data, checkpoint_bytes, *rest = sys.argv[1:]
    asyncio.run(write(Path(data), int(checkpoint_bytes), int(rest[0]) if rest else 0))
