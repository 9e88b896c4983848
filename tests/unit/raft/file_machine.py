"""A machine that keeps its commands in files, as a partition does, and hosts of a single node that run it."""

import os
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from waiting import until

from stockade.cli.local_cluster.ports import free_ports
from stockade.raft.checkpoint.group_storage import ENTRY_BYTES
from stockade.raft.core.group import Committed, Group
from stockade.raft.host import RaftHost, RaftSettings
from stockade.raft.machine import FileExtent, Image, ImageDamaged, Machine

from .cluster import GROUP

COMMANDS_PER_FILE = 5
SMALL = RaftSettings(
    election_timeout_ms_min=60,
    election_timeout_ms_max=120,
    heartbeat_ms=20,
    checkpoint_bytes=20 * (100 + ENTRY_BYTES),  # of the commands below
    wal_bytes_max=1 << 20,
    wal_file_bytes=4096,
)


class FileMachine(Machine):
    """Appends each command to a file, a new one after every COMMANDS_PER_FILE; its state is how many and their CRC."""

    def __init__(self) -> None:
        self.count = 0
        self.crc = 0
        self.applied: list[int] = []
        """Indexes applied in this life."""
        self.captures = 0
        self.directory = Path()

    def start(self, directory: Path) -> None:
        assert list(directory.iterdir()) == []
        self.directory = directory

    def apply(self, index: int, term: int, command: bytes) -> object:
        with (self.directory / f"{self.count // COMMANDS_PER_FILE:06d}").open("ab") as file:
            file.write(command + b"\n")
        self.crc = zlib.crc32(command + b"\n", self.crc)
        self.count += 1
        self.applied.append(index)
        return self.count

    def capture(self) -> Image:
        self.captures += 1
        paths = sorted(self.directory.iterdir())

        def sync() -> None:
            for path in paths:
                fd = os.open(path, os.O_RDONLY)
                os.fsync(fd)
                os.close(fd)

        files = tuple(FileExtent(path.name, path.stat().st_size, path is not paths[-1]) for path in paths)
        return Image(msgspec.msgpack.encode((self.count, self.crc)), files, sync)

    def restore(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None:
        self.directory = directory
        self.count, self.crc = msgspec.msgpack.decode(state, type=tuple[int, int])
        sizes = {extent.name: extent.size for extent in files}
        for path in list(directory.iterdir()):
            if path.name not in sizes:
                path.unlink()
        for name, size in sizes.items():
            if (found := (directory / name).stat().st_size) < size:
                raise ImageDamaged(f"{directory / name} is shorter than {size} bytes")
            if found > size:
                os.truncate(directory / name, size)

    def inspect(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None:
        crc = 0
        for extent in files:
            crc = zlib.crc32((directory / extent.name).read_bytes()[: extent.size], crc)
        if crc != msgspec.msgpack.decode(state, type=tuple[int, int])[1]:
            raise ImageDamaged(f"the files in {directory} are not what they were")

    def commands(self) -> list[bytes]:
        content = b"".join(path.read_bytes() for path in sorted(self.directory.iterdir()))
        return content.split(b"\n")[:-1]


class SingleNode:
    """A host of one node and what it runs."""

    def __init__(self, data: Path, settings: RaftSettings = SMALL) -> None:
        self.fatal: list[BaseException] = []
        address = ("127.0.0.1", free_ports(1)[0])
        self.host = RaftHost("n1", "house", address, {}, data, settings, self.fatal.append)
        self.machines: dict[int, FileMachine] = {}

    def open(self, group_id: int = GROUP, founders: Mapping[str, int] | None = None) -> Group:
        """``founders``: None for this node alone."""
        machine = self.machines[group_id] = FileMachine()
        return self.host.open_group(group_id, {"n1": self.host.incarnation} if founders is None else founders, machine)

    @property
    def machine(self) -> FileMachine:
        return self.machines[GROUP]

    @property
    def group(self) -> Group:
        return self.host.groups[GROUP]

    async def commit(self, count: int, group_id: int = GROUP, size: int = 100) -> list[bytes]:
        """Commit so many commands, one after the other."""
        group, machine = self.host.groups[group_id], self.machines[group_id]
        await until(lambda: group.is_leader and group.ready)
        commands = [b"%0*d" % (size, machine.count + number) for number in range(count)]
        for command in commands:
            assert isinstance(await group.propose(command, 5.0), Committed)
        return commands


@asynccontextmanager
async def single_node(
    data: Path, settings: RaftSettings = SMALL, groups: Sequence[int] = (GROUP,)
) -> AsyncIterator[SingleNode]:
    """A started host of one node, with these groups open."""
    node = SingleNode(data, settings)
    await node.host.start()
    try:
        for group_id in groups:
            node.open(group_id)
        yield node
    finally:
        await node.host.stop()


def wal_numbers(data: Path) -> list[int]:
    return sorted(int(path.stem) for path in (data / "wal").glob("*.wal"))
