"""Backups at intervals: the gauges that a monitoring system reads, and a failure that does not end them."""

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest

from stockade.cli.backup.begin import CannotBackUp
from stockade.cli.backup.commands import PRUNING_S, Pruning, _again_and_again, shown
from stockade.cli.backup.manifest import Manifest
from stockade.cli.backup.schedule import GAUGES, Gauges, Schedule
from stockade.cli.backup.store import Store
from stockade.partition.errors import LeaderNotAvailable
from stockade.partition.places.place import CannotReach

MADE = Manifest("20260101T000000.000000Z", "c", "1", 5_000, 6_000, 9_000, [], [], [])


def values(path: Path) -> dict[str, float]:
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {name.removeprefix("stockade_backup_"): float(value) for name, value in lines}


def test_a_failure_keeps_the_time_of_the_last_success_also_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "backup.prom"
    gauges = Gauges(str(path), 60)
    gauges.failed()
    assert (values(path)["last_success_timestamp_seconds"], values(path)["last_attempt_failed"]) == (0, 1)
    gauges.succeeded(MADE)
    assert set(values(path)) == set(GAUGES)
    known = {"last_success_timestamp_seconds": 5, "seconds": 4, "interval_seconds": 60, "last_attempt_failed": 0}
    assert values(path).items() >= known.items()
    Gauges(str(path), 30).failed()
    assert values(path).items() >= (known | {"interval_seconds": 30, "last_attempt_failed": 1}).items()


def test_a_file_that_is_none_of_gauges_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary", encoding="utf-8")
    with pytest.raises(CannotReach, match=r"notes\.txt"):
        Gauges(str(path), 60)
    assert path.read_text(encoding="utf-8") == "dear diary"


def test_a_backup_that_fails_is_followed_by_the_next_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "backup.prom"
    gauges = Gauges(str(path), 1)
    failures: list[Exception | None] = [LeaderNotAvailable(), CannotBackUp("pruned"), CannotReach("full"), None]

    async def once() -> None:
        failure = failures.pop(0)
        if failure is not None:
            raise failure
        gauges.succeeded(MADE)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(_again_and_again(once, gauges, 0.0))
    said = capsys.readouterr().err.splitlines()
    assert [line.startswith("no backup: ") for line in said] == [True] * 3
    assert values(path)["last_attempt_failed"] == 0


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("s3://key:secret@backups/orders?region=eu", "s3://backups/orders"),
        ("gs://backups/orders", "gs://backups/orders"),
        ("/mnt/backups", f"{socket.gethostname()}:/mnt/backups"),
        ("file:///mnt/backups", f"{socket.gethostname()}:/mnt/backups"),
    ],
)
def test_a_place_is_shown_without_its_credentials(place: str, expected: str) -> None:
    assert shown(place) == expected


def test_a_backup_that_is_made_is_none_the_worse_for_a_pruning_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was told as no backup, and set the gauge that an alert looks at."""
    store = Store(str(tmp_path))
    store.write("manifests/20260101T000000.000000Z.json", b"cut off")
    Pruning(Schedule(60, None, 1, None)).run(store, 0.0)
    said = capsys.readouterr().err
    assert said.startswith("the backup is made; older ones could not be removed: ")
    assert "manifests/20260101T000000.000000Z.json" in said


def test_older_backups_are_removed_after_the_first_one_and_then_once_an_hour(tmp_path: Path) -> None:
    store, pruning = Store(str(tmp_path)), Pruning(Schedule(60, None, 1, None))

    def left(now_s: float) -> int:
        for _ in range(2):
            store.add(msgspec.structs.replace(MADE, name=f"2026{len(store.manifests()):04}-{now_s}"))
        pruning.run(store, now_s)
        return len(store.manifests())

    assert [left(5.0), left(5.0 + PRUNING_S - 1), left(5.0 + PRUNING_S)] == [1, 3, 1]


def test_a_pruning_that_failed_is_made_again_after_the_next_backup(tmp_path: Path) -> None:
    store, pruning = Store(str(tmp_path)), Pruning(Schedule(60, None, 1, None))
    store.write("manifests/1.json", b"cut off")
    pruning.run(store, 5.0)
    store.forget("1")
    for name in ("2", "3"):
        store.add(msgspec.structs.replace(MADE, name=name))
    pruning.run(store, 6.0)
    assert store.manifests() == ["3"]
