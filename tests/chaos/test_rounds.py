"""Crashes in rounds: what was acknowledged, or written durably, is there when the power is back."""

import asyncio
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stockade.chaos.system.disks import DiskFailed, LoopDisk, NotMounted, why_not
from stockade.partition.log.fsutil import write_durably
from stockade.raft.wal.errors import WalFailed
from stockade.raft.wal.wal import Wal

from .broken_node import program
from .mutating import STOCKADE

pytestmark = pytest.mark.timeout(300)

needs_disks = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    disk = LoopDisk(tmp_path / "image", tmp_path / "disk", 64 << 20)
    disk.make()
    yield disk
    disk.unmount()


@needs_disks
def test_a_power_cut_takes_unsynced_writes_and_no_synced_one(disk: LoopDisk, tmp_path: Path) -> None:
    folder = tmp_path / "disk" / "replicas"
    write_durably(folder / "kept", b"old")
    write_durably(folder / "kept", b"new")
    (folder / "lost").write_bytes(b"never synced")
    disk.cut()
    with pytest.raises(OSError, match="Input/output"):
        (folder / "late").write_bytes(b"after the cut")
    disk.unmount()
    disk.mount()
    assert (folder / "kept").read_bytes() == b"new"
    assert not (folder / "lost").exists() or (folder / "lost").read_bytes() != b"never synced"


@needs_disks
def test_a_disk_that_another_process_keeps_mounted_has_no_power_and_says_why(disk: LoopDisk) -> None:
    """A process in a mount namespace of its own, such as a sandboxed service that began during the run: the nodes were
    started on a dead disk, and minutes later an error of one of their files asked for another folder.
    """
    words = ["unshare", "--mount", "sh", "-c", "echo up; cat"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"up\n"
        disk.cut()
        disk.unmount()
        with pytest.raises(DiskFailed, match="another mount namespace"):
            disk.mount()
        other.communicate()


async def durable_at_the_cut(disk: LoopDisk, folder: Path, chance: random.Random) -> int:
    """Append one record after the other, cut the power meanwhile, and answer which was the last reported durable.

    Files end, are given up and used again meanwhile.
    """
    wal = Wal(folder, asyncio.get_running_loop(), lambda _: None, file_bytes=1 << 20)
    cut_at, cut, last = chance.randrange(20, 80), asyncio.Future[None](), 0
    record_bytes = chance.choice([500, 1000, 30_000])
    with pytest.raises((WalFailed, OSError)):
        for index in range(1, 1 << 30):
            if index == cut_at:
                cut = asyncio.ensure_future(asyncio.to_thread(disk.cut))
            wal.append(1, index, 1, chance.randbytes(chance.randrange(200, 2 * record_bytes)))
            await wal.until_durable(wal.lsn)
            last = index
            if index % 8 == 0:
                wal.covered(1, index - 4)
                await wal.release(lambda group_id, gone: None)
    assert last >= cut_at - 1
    await cut
    await wal.close()
    return last


@needs_disks
def test_a_record_is_not_durable_when_the_power_is_cut_in_the_middle_of_its_sync(
    disk: LoopDisk, tmp_path: Path
) -> None:
    """An fdatasync into blocks that were only reserved told so of one record in each fifteenth cut, and it was lost."""
    chance, folder = random.Random(7), tmp_path / "disk" / "wal"
    for cut in range(40):
        last = asyncio.run(durable_at_the_cut(disk, folder, chance))
        disk.unmount()
        disk.mount()

        async def recovered() -> int:
            wal = Wal(folder, asyncio.get_running_loop(), lambda _: None)
            await wal.close()
            return wal.recovered[1].entries[-1].index

        assert asyncio.run(recovered()) >= last, f"cut {cut}"
        shutil.rmtree(folder)


def rounds(
    fault: str, count: int, folder: Path, stockade: Sequence[str] = STOCKADE
) -> "subprocess.CompletedProcess[str]":
    words = ["chaos", "rounds", "--fault", fault, "--rounds", str(count)]
    return subprocess.run(
        [*stockade, *words, "--history", str(folder / "history.jsonl")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@needs_disks
def test_no_acknowledged_write_and_no_replica_is_lost_when_all_nodes_lose_power(tmp_path: Path) -> None:
    done = rounds("power", 2, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 rounds in" in done.stdout


@needs_disks
def test_rounds_of_power_cuts_find_nodes_that_do_not_wait_for_their_disks(tmp_path: Path) -> None:
    """Rounds that no defect makes fail prove nothing."""
    done = rounds("power", 1, tmp_path, program("fsync"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "lost-write: partition " in done.stdout


def test_no_acknowledged_write_is_lost_when_nodes_are_killed_in_rounds(tmp_path: Path) -> None:
    done = rounds("kill", 3, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 rounds in" in done.stdout


@needs_disks
def test_faults_of_a_disk_leave_the_machines_own_alone_while_the_disk_is_not_mounted(
    disk: LoopDisk, tmp_path: Path
) -> None:
    """As between the two mounts of a repair. ``disk`` stands for the machine's own."""
    broken = LoopDisk(tmp_path / "other", tmp_path / "disk" / "n1", 32 << 20)
    broken.make()
    assert broken.is_well
    broken.unmount()
    assert not broken.is_well, "no node may start on the folder beneath"
    for strike in (broken.cut, broken.fill, broken.refuse_writes, lambda: broken.device):
        with pytest.raises(NotMounted, match="no disk is mounted at "):
            strike()
    assert disk.is_well and list(broken.mountpoint.iterdir()) == []
    broken.repair()
    assert broken.is_well
    broken.unmount()
