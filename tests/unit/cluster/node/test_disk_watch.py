"""When a disk counts as low or full, and as better again; and the room that a node holds back on it."""

import asyncio
import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.cluster.config import LimitsSection
from stockade.cluster.node import disk_watch
from stockade.cluster.node.disk_watch import DiskState, DiskWatch, judge
from stockade.cluster.node.node_service import NodeService
from stockade.partition.log.space import with_space

from ..fakes import FakeHost
from .test_node import run

GROUP: Any = None
SOFT, HARD, RESERVE = 8000, 1600, 4096


@pytest.mark.parametrize(
    ("free", "before", "state"),
    [
        (SOFT, "ok", "ok"),
        (SOFT - 1, "ok", "low"),
        (SOFT, "low", "low"),
        (SOFT + SOFT // 8 - 1, "low", "low"),
        (SOFT + SOFT // 8, "low", "ok"),
        (HARD, "low", "low"),
        (HARD - 1, "low", "full"),
        (HARD - 1, "ok", "full"),
        (HARD, "full", "full"),
        (HARD + HARD // 8 - 1, "full", "full"),
        (HARD + HARD // 8, "full", "low"),
        (SOFT + SOFT // 8, "full", "ok"),
        (0, "ok", "full"),
    ],
)
def test_the_watermarks_to_the_byte(free: int, before: DiskState, state: DiskState) -> None:
    assert judge(free, SOFT, HARD, before) == state


def test_without_a_soft_watermark_no_disk_is_low() -> None:
    assert judge(0, 0, 0, "ok") == judge(0, 0, HARD, "ok") == "ok"


class Disk:
    """What statvfs says, in blocks of one byte; a process without privileges gets ``available``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, available: int) -> None:
        self.available = available
        monkeypatch.setattr(os, "statvfs", lambda _: self)
        monkeypatch.setattr(disk_watch, "PERIOD_S", 0)

    f_frsize, f_blocks, f_bfree = 1, 1_000_000, 900_000
    f_files = f_favail = 0

    @property
    def f_bavail(self) -> int:
        return self.available


def limits(**changed: int) -> LimitsSection:
    return LimitsSection(disk_soft_free_bytes=SOFT, disk_hard_free_bytes=HARD, disk_reserve_bytes=RESERVE, **changed)


def test_a_change_is_told_at_once_and_again_while_there_is_little_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, SOFT + RESERVE)
    told: list[tuple[str, int, int]] = []

    watch = DiskWatch("n1", tmp_path, limits())
    watch.changed = lambda: told.append((watch.state, watch.free_bytes, watch.total_bytes))
    for disk.available in (SOFT - 1, SOFT - 2, 2 * SOFT, 2 * SOFT):
        watch._judge(*watch._measure())
    watch.close()
    assert told == [("low", SOFT - 1, 1_000_000), ("low", SOFT - 2, 1_000_000), ("ok", 2 * SOFT, 1_000_000)]


def test_a_disk_that_has_bytes_and_few_files_left_counts_as_little_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All nodes whose disks something else had filled with small files ended at their next file, "No space left"."""
    disk = Disk(monkeypatch, 2 * SOFT)
    watch, states = DiskWatch("n1", tmp_path, limits()), list[str]()
    for disk.f_files, disk.f_favail in (
        *((1 << 20, each) for each in (1024, 1023, 256, 255, 287, 288, 1151, 1152, 0)),
        *((6400, each) for each in (113, 99, 24)),
        (0, 0),  # as of btrfs
    ):
        watch._judge(*watch._measure())
        states.append(watch.state)
    watch.close()
    assert states == [*["ok", "low", "low", "full", "full", "low", "low", "ok", "full"], *["ok", "low", "full"], "ok"]
    assert "is low: 16000 of 1000000 bytes are free" in caplog.text
    assert "below 1024 free files: 1023 of 1048576 are" in caplog.text


def test_bytes_that_never_lacked_do_not_keep_a_disk_low_when_there_are_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many bytes as are not enough to leave the state, and enough not to come into it: appends stayed refused."""
    disk = Disk(monkeypatch, RESERVE + SOFT + 1)
    watch, states = DiskWatch("n1", tmp_path, limits()), list[str]()
    for disk.available, disk.f_files, disk.f_favail in ((SOFT + 1, 1 << 20, 9), (SOFT + 1, 1 << 20, 1 << 20)):
        watch._judge(*watch._measure())
        states.append(watch.state)
    watch.close()
    assert states == ["full", "ok"]


def test_where_no_watermark_is_set_few_files_are_no_reason_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, SOFT)
    disk.f_files, disk.f_favail = 1 << 20, 0
    watch = DiskWatch("n1", tmp_path, LimitsSection(disk_soft_free_bytes=0, disk_hard_free_bytes=0))
    assert watch.state == "ok"
    watch.close()


def test_a_watch_measures_until_it_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, SOFT + RESERVE)

    async def scenario() -> None:
        changed = asyncio.Event()
        watch = DiskWatch("n1", tmp_path, limits())
        watch.changed = changed.set
        running = asyncio.create_task(watch.run())
        disk.available = SOFT - 1
        await changed.wait()
        running.cancel()
        await asyncio.wait([running], timeout=60)
        assert running.cancelled()
        watch.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(("available", "is_held"), [(HARD + RESERVE, True), (HARD + RESERVE - 1, False)])
def test_room_is_held_back_where_it_does_not_make_the_disk_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, available: int, is_held: bool
) -> None:
    Disk(monkeypatch, available)
    watch = DiskWatch("n1", tmp_path, limits())
    assert watch.has_reserve == is_held
    assert watch.free_bytes == available - (RESERVE if is_held else 0)
    watch.close()


def test_a_node_that_starts_on_a_full_disk_holds_the_reserve_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left its reserve where it was, and ended with "No space left on device", or did not start at all."""
    disk = Disk(monkeypatch, 2 * SOFT)
    DiskWatch("n1", tmp_path, limits()).close()
    disk.available = 0
    watch = DiskWatch("n1", tmp_path, limits())
    assert (watch.has_reserve, watch.free_bytes, watch.state) == (True, 0, "full")
    watch.close()
    os.truncate(tmp_path / "reserve", 0)  # as it is once it was used
    watch = DiskWatch("n1", tmp_path, limits())
    assert (watch.has_reserve, watch.state) == (False, "full")
    watch.close()


def test_a_disk_whose_reserve_was_used_is_full_at_once_and_until_there_is_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, 2 * SOFT)
    watch = DiskWatch("n1", tmp_path, limits())
    assert watch.without_room(GROUP) == []
    faults = [OSError(errno.ENOSPC, "No space left on device")]

    def write() -> None:
        if faults:
            raise faults.pop()

    with_space(write)
    found: list[tuple[str, bool]] = [(watch.state, watch.has_reserve)]
    assert watch.without_room(GROUP) == ["n1"]
    disk.available = HARD + RESERVE - 1
    watch._judge(*watch._measure())
    found.append((watch.state, watch.has_reserve))
    disk.available = 2 * SOFT
    watch._judge(*watch._measure())
    found.append((watch.state, watch.has_reserve))
    assert found == [("full", False), ("full", False), ("ok", True)]
    assert watch.without_room(GROUP) == []
    watch.close()


def test_a_disk_is_measured_before_a_node_takes_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, HARD - 1)
    watch = DiskWatch("n1", tmp_path / "new", limits())
    assert watch.state == "full"
    watch.close()


def test_a_disk_that_cannot_be_measured_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Any) -> Any:
        raise OSError(5, "Input/output error")

    watch = DiskWatch("n1", tmp_path, limits())
    monkeypatch.setattr(os, "statvfs", fail)
    monkeypatch.setattr(disk_watch, "PERIOD_S", 0)
    with pytest.raises(OSError, match="Input/output error"):
        asyncio.run(watch.run())
    watch.close()


def watching(tmp_path: Path, disks: dict[str, int], connected: str) -> DiskWatch:
    watch = DiskWatch("n1", tmp_path, limits())
    watch.host = SimpleNamespace(disks=disks, connected=set(connected.split()))  # type: ignore[assignment]
    return watch


def group(voters: str, group_id: int = 0, *, leads: bool = True, behind: str = "") -> Any:
    return SimpleNamespace(voters=tuple(voters.split()), group_id=group_id, is_leader=leads, out_of_sync=behind.split())


@pytest.mark.parametrize(
    ("voters", "disks", "connected", "lacking"),
    [
        ("n1 n2 n3", {}, "n2 n3", []),
        ("n1 n2 n3", {"n2": 1}, "n2 n3", []),  # n1 and n3 have room
        ("n1 n2 n3", {"n2": 2, "n3": 1}, "n2 n3", ["n2", "n3"]),
        ("n1 n2 n3", {"n2": 1}, "n2", ["n2"]),  # n3 is away: what is committed is on n2
        ("n1 n2 n3", {}, "n2", []),
        ("n1 n2 n3", {"n4": 2}, "n2 n3 n4", []),  # n4 has no replica
        ("n1 n2 n3 n4 n5", {"n2": 1, "n3": 1}, "n2 n3 n4 n5", []),
        ("n1 n2 n3 n4 n5", {"n2": 1, "n3": 1, "n4": 2}, "n2 n3 n4 n5", ["n2", "n3", "n4"]),
        ("n1", {"n2": 2}, "n2", []),
    ],
)
def test_a_leader_takes_appends_while_a_majority_has_room(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    voters: str,
    disks: dict[str, int],
    connected: str,
    lacking: list[str],
) -> None:
    Disk(monkeypatch, 2 * SOFT)
    watch = watching(tmp_path, disks, connected)
    assert watch.without_room(group(voters)) == lacking
    assert watch.heir(group(voters)) is None  # its own disk has room
    watch.close()


@pytest.mark.parametrize(
    ("voters", "disks", "connected", "heirs"),
    [
        ("n1 n2 n3", {}, "n2 n3", {"n2", "n3"}),
        ("n1 n2 n3", {"n3": 1}, "n2 n3", {None}),  # two of three have little room
        ("n1 n2 n3", {}, "n2", {None}),
        ("n1 n2 n3 n4 n5", {"n3": 1}, "n2 n3 n4 n5", {"n2", "n4", "n5"}),
        ("n1", {}, "n2", {None}),
    ],
)
def test_a_leader_without_room_hands_over_to_voters_with_room_if_they_are_a_majority(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    voters: str,
    disks: dict[str, int],
    connected: str,
    heirs: set[str | None],
) -> None:
    Disk(monkeypatch, SOFT - 1)
    watch = watching(tmp_path, disks, connected)
    assert {watch.heir(group(voters, number)) for number in range(12)} == heirs
    assert watch.without_room(group(voters)) == ["n1"]
    assert watch.heir(group(voters, leads=False)) is None
    watch.close()


def test_a_voter_that_is_far_behind_is_no_part_of_the_majority_with_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, 2 * SOFT)
    watch = watching(tmp_path, {"n2": 2}, "n2 n3")
    assert watch.without_room(group("n1 n2 n3", behind="n3")) == ["n2"]
    assert watch.without_room(group("n1 n2 n3", behind="n2")) == []
    disk.available = SOFT - 1
    watch._judge(*watch._measure())
    assert watch.heir(group("n1 n2 n3 n4 n5", behind="n3")) is None
    watch.close()
    lonely = watching(tmp_path, {}, "n2 n3")
    lonely._judge(*lonely._measure())
    assert {lonely.heir(group("n1 n2 n3", number)) for number in range(4)} == {"n2", "n3"}
    assert lonely.heir(group("n1 n2 n3", behind="n3")) is None
    lonely.close()


@pytest.mark.parametrize(("available", "state"), [(501_000, "ok"), (499_000, "low"), (249_000, "full")])
def test_a_disk_smaller_than_the_watermarks_takes_appends_until_half_of_it_is_used(
    available: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Disk(monkeypatch, available)
    watch = DiskWatch("n1", tmp_path, LimitsSection())
    assert (watch.soft_free_bytes, watch.hard_free_bytes) == (500_000, 250_000)
    assert watch.state == state
    watch.close()


def test_copies_of_other_nodes_may_take_the_disk_down_to_the_hard_watermark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        disk = service.measuring.disk
        assert disk is not None
        assert host.room_at_start() == disk.free_bytes - disk.hard_free_bytes > 0

    run(tmp_path, monkeypatch, scenario)
