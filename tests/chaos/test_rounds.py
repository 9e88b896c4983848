"""Crashes in rounds: what was acknowledged, or written durably, is there when the power is back."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade.chaos.disks import LoopDisk, why_not
from stockade.raft.durable import write_durably

needs_disks = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    disk = LoopDisk(tmp_path / "image", tmp_path / "disk", 64 << 20)
    disk.make()
    yield disk
    disk.unmount()


@needs_disks
def test_a_power_cut_takes_what_was_not_synced_and_nothing_that_was(disk: LoopDisk, tmp_path: Path) -> None:
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


def rounds(fault: str, count: int, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "stockade", "chaos", "rounds", "--fault", fault, "--rounds", str(count)]
    return subprocess.run(
        [*command, "--history", str(folder / "history.jsonl")],
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


def test_no_acknowledged_write_is_lost_when_nodes_are_killed_in_rounds(tmp_path: Path) -> None:
    done = rounds("kill", 3, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 rounds in" in done.stdout
