"""A slow disk is said in the log, and not with each sync."""

import logging
from pathlib import Path

import pytest

from stockade.raft.wal import writer as module
from stockade.raft.wal.file_set import SpareFiles
from stockade.raft.wal.records import FILE_HEADER_BYTES, FileHeader, Run
from stockade.raft.wal.writer import AHEAD_BYTES, LOG_EVERY_S, SLOW_SYNC_S, WalWriter


def test_every_sync_is_counted_and_slow_ones_are_logged_at_a_bounded_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer = WalWriter(SpareFiles(tmp_path, AHEAD_BYTES).begin, lambda number, size: None)
    clock, takes, is_begun, start = 0.0, 0.0, False, FILE_HEADER_BYTES

    def now() -> float:
        """Moves at each second look, when a sync has ended."""
        nonlocal clock, is_begun
        is_begun = not is_begun
        clock += 0.0 if is_begun else takes
        return clock

    def synced(at: float, took: float) -> None:
        nonlocal clock, takes, is_begun, start
        clock, takes, is_begun = at, took, False
        writer.write([Run(1, start, AHEAD_BYTES, header, [b"r"])])
        start += 1

    header: FileHeader | None = FileHeader(7, 1, 0)
    monkeypatch.setattr(module, "perf_counter", now)
    synced(0.0, 0.001)  # begins the file, which is synced twice
    header = None
    counted = sum(writer.syncs.counts)
    with caplog.at_level(logging.WARNING):
        synced(1.0, SLOW_SYNC_S - 0.001)
        assert caplog.records == []
        synced(2.0, SLOW_SYNC_S)
        synced(2.0 + LOG_EVERY_S / 2, SLOW_SYNC_S)
        synced(3.0 + 2 * LOG_EVERY_S, 2.5)
    writer.close()
    assert sum(writer.syncs.counts) == counted + 4
    assert [vars(record)["event"] for record in caplog.records] == [
        {"event": "slow_disk", "seconds": 1.0, "slow_syncs": 1},
        {"event": "slow_disk", "seconds": 2.5, "slow_syncs": 2},
    ]
