"""Full, failing, read-only disks and files that may not grow: the node stops cleanly, and acked nothing false.

D11: the stock library appends to memory before the disk, and to a mapped file, so a full disk kills the process with
SIGBUS after it has acknowledged what is on no disk.
"""

import asyncio
import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from child import ended
from waiting import until

from .file_machine import single_node
from .writing_process import WriterOutput

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


def command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def mounted(place: Path, *options: str) -> Iterator[Path]:
    """A small file system in memory."""
    place.mkdir()
    command("mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place))
    try:
        yield place
    finally:
        command("umount", "-l", str(place))


@contextmanager
def plugged(place: Path, image: Path) -> Iterator[Path]:
    """A small disk that can be pulled out."""
    place.mkdir()
    if not image.exists():
        with image.open("wb") as file:
            file.truncate(16 << 20)
        command("mkfs.ext4", "-q", str(image))
    command("mount", "-o", "loop", str(image), str(place))
    try:
        yield place
    finally:
        command("umount", "-l", str(place))
        place.rmdir()


def pull_out(disk: Path) -> None:
    """Nothing that was not synced reaches the disk any more, and every call fails."""
    fd = os.open(disk, os.O_RDONLY)
    fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    os.close(fd)


def written(data: Path, *arguments: str, fault: Callable[[], None] = lambda: None) -> WriterOutput:
    """The output of a process that appends until its node fails. ``fault`` is called after some acks."""
    path = os.pathsep.join(path for path in sys.path if path)
    with ended(
        subprocess.Popen(
            [sys.executable, "-c", "from unit.raft.writing_process import main; main()", str(data), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        writer.stdin.write("go\n")
        writer.stdin.flush()
        before = [writer.stdout.readline() for _ in range(5)]
        fault()
        # Not by `communicate`: it reads the pipe itself, and loses the lines that `readline` has read ahead.
        output = "".join(before) + writer.stdout.read()
    assert writer.returncode == 0, "it ended by itself, and not by a signal"
    return WriterOutput.of(output)


def found(data: Path) -> int:
    """How many commands a node finds on this disk."""

    async def scenario() -> int:
        async with single_node(data) as node:
            await until(lambda: node.group.ready)
            return node.machine.count

    return asyncio.run(scenario())


@needs_root
def test_d11_a_full_disk_stops_the_node_and_keeps_every_acked_entry(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=256k") as disk:
        output = written(disk / "data", "1000000000")
        assert "No space left on device" in output.failure
        assert output.acked > 10
        assert output.later == "Rejected"
        command("mount", "-o", "remount,size=4m", str(disk))
        assert output.allows(found(disk / "data"))


@needs_root
def test_a_disk_that_is_pulled_out_stops_the_node_and_keeps_every_acked_entry(tmp_path: Path) -> None:
    with plugged(tmp_path / "disk", tmp_path / "image") as disk:
        output = written(disk / "data", "1000000000", fault=lambda: pull_out(disk))
        assert "Input/output error" in output.failure
        assert output.later == "Rejected"
    with plugged(tmp_path / "disk", tmp_path / "image") as disk:
        assert output.allows(found(disk / "data"))


@needs_root
def test_a_disk_that_is_pulled_out_during_checkpoints_keeps_every_acked_entry(tmp_path: Path) -> None:
    """D18: the stock library syncs nothing, and loses everything."""
    with plugged(tmp_path / "disk", tmp_path / "image") as disk:
        output = written(disk / "data", "1500", fault=lambda: pull_out(disk))
    with plugged(tmp_path / "disk", tmp_path / "image") as disk:
        assert output.allows(found(disk / "data"))


@needs_root
def test_a_node_does_not_start_on_a_disk_that_it_cannot_write_to(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "ro") as disk, pytest.raises(OSError, match="Read-only file system"):
        found(disk / "data")


def test_a_file_that_may_not_grow_stops_the_node_without_a_signal(tmp_path: Path) -> None:
    output = written(tmp_path / "data", "1000000000", "2048")
    assert "File too large" in output.failure
    assert output.later == "Rejected"
    assert output.allows(found(tmp_path / "data"))
