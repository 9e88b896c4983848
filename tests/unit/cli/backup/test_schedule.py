"""Backups at intervals: the gauges that a monitoring system reads, and a failure that does not end them."""

import asyncio
import socket
from pathlib import Path

import pytest

from stockade.cli.backup.begin import CannotBackUp
from stockade.cli.backup.commands import _again_and_again, shown
from stockade.cli.backup.manifest import Manifest
from stockade.cli.backup.schedule import GAUGES, Gauges
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
def test_what_the_cluster_shows_of_a_place_has_no_credentials(place: str, expected: str) -> None:
    assert shown(place) == expected
