"""Three real hosts in one process: real sockets, real logs, one loop."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from waiting import until

from stockade.cli.local_cluster.ports import free_ports
from stockade.raft.core.group import Committed, Group
from stockade.raft.host import RaftHost, RaftSettings
from stockade.raft.machine import FileExtent, Image, Machine

GROUP = 7
FAST = RaftSettings(election_timeout_ms_min=300, election_timeout_ms_max=600, heartbeat_ms=50, wal_file_bytes=1 << 20)


class MemoryMachine(Machine):
    """A machine that remembers its commands, in memory alone; ``b"poison"`` makes it fail."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def apply(self, index: int, term: int, command: bytes) -> object:
        if command == b"poison":
            raise ZeroDivisionError(f"at {index} of term {term}")
        self.commands.append(command)
        return len(self.commands)

    def start(self, directory: Path) -> None: ...

    def capture(self) -> Image:
        return Image(msgspec.msgpack.encode(self.commands))

    def restore(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None:
        self.commands = msgspec.msgpack.decode(state, type=list[bytes])

    def inspect(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None: ...


def copy_of_a_moment(here: Path, there: Path) -> None:
    """Copy a folder that threads still write to, as it was at one moment: when it is read twice alike, it stood still
    between the two.
    """
    contents: dict[Path, bytes | None] = {}
    while (found := _contents(here)) != contents or not found:
        contents = found
    for path, content in contents.items():
        if content is None:
            (there / path).mkdir(parents=True)
        else:
            (there / path).write_bytes(content)


def _contents(folder: Path) -> dict[Path, bytes | None]:
    """What every path in a folder holds, folders first; None for a folder. Empty if something vanishes meanwhile."""
    try:
        paths = [folder, *sorted(folder.rglob("*"))]
        return {path.relative_to(folder): None if path.is_dir() else path.read_bytes() for path in paths}
    except FileNotFoundError:
        return {}


class Cluster:
    """Nodes n1, n2, n3, each with one group. Use it as an async context manager."""

    def __init__(
        self, directory: Path, settings: RaftSettings = FAST, machine: Callable[[], Any] = MemoryMachine
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.addresses = {f"n{number}": ("127.0.0.1", port) for number, port in enumerate(free_ports(3), 1)}
        self.founders: dict[str, int] = {}
        self.hosts: dict[str, RaftHost] = {}
        self.machines: dict[str, Any] = {}
        self._machine = machine
        self.fatal: list[tuple[str, BaseException]] = []
        self._lives = dict.fromkeys(self.addresses, 0)

    async def __aenter__(self) -> "Cluster":
        for node in self.addresses:
            await self._start_host(node)
        self.founders = {node: host.incarnation for node, host in self.hosts.items()}
        for node in self.addresses:
            self._open(node)
        await until(lambda: self.leader() is not None)
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in list(self.hosts):
            await self.stop(node)

    def _data(self, node: str) -> Path:
        return self.directory / f"{node}-{self._lives[node]}"

    async def start(self, node: str) -> None:
        await self._start_host(node)
        self._open(node)

    def _open(self, node: str) -> None:
        self.machines[node] = self._machine()
        self.hosts[node].open_group(GROUP, self.founders, self.machines[node])

    async def _start_host(self, node: str) -> None:
        def on_fatal(error: BaseException) -> None:
            self.fatal.append((node, error))

        host = RaftHost(node, "house", self.addresses[node], self.addresses, self._data(node), self.settings, on_fatal)
        host.serve(self._answer)
        await host.start()
        self.hosts[node] = host

    async def _answer(self, node_id: str, payload: bytes) -> bytes:
        return node_id.encode() + b" asked " + payload

    async def stop(self, node: str) -> None:
        await self.hosts.pop(node).stop()

    async def kill(self, node: str) -> None:
        """End a node as kill -9 does: what it has written until now is what its next life finds."""
        here, transport = self._data(node), self.hosts[node]._transport
        position = transport.position()
        transport.position = lambda: position  # it tells of nothing that comes after the copy
        self._lives[node] += 1
        copy_of_a_moment(here, self._data(node))
        for group in self.hosts[node].groups.values():
            group.halt()
        await self.stop(node)

    def group(self, node: str) -> Group:
        return self.hosts[node].groups[GROUP]

    def leader(self) -> str | None:
        """The one leader that a majority agrees on."""
        leaders = [node for node in self.hosts if GROUP in self.hosts[node].groups and self.group(node).is_leader]
        agree = [node for node in self.hosts if leaders and self.group(node).leader == leaders[0]]
        return leaders[0] if len(leaders) == 1 and len(agree) >= 2 else None

    async def led(self) -> str:
        """The leader, once there is one: a busy machine may elect another at any moment."""
        await until(lambda: self.leader() is not None)
        leader = self.leader()
        assert leader is not None
        return leader

    async def commit(self, command: bytes) -> int:
        """Propose on the leader until it is committed; returns its index. The command may be appended twice."""
        async with asyncio.timeout(60.0):
            while True:
                leader = self.leader()
                outcome: Any = await self.group(leader).propose(command, 10.0) if leader else None
                if isinstance(outcome, Committed):
                    return outcome.index
                await asyncio.sleep(0.002)
