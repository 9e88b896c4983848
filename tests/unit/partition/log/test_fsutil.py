"""Small files reach the disk whole: their bytes before their name, and their name before the caller goes on."""

from pathlib import Path

import pytest
from disk_calls import recorded

from stockade.partition.log.fsutil import erase_durably, write_durably


def test_a_small_file_is_on_disk_before_it_gets_its_name_and_its_name_before_the_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename may survive a power cut that loses the bytes: then neither the old content is there nor the new one."""
    path = tmp_path / "identity"
    path.write_bytes(b"old")
    calls = recorded(monkeypatch)
    write_durably(path, b"new")
    assert calls == [("sync", tmp_path / "identity.new"), ("rename", path), ("sync", tmp_path)]
    assert path.read_bytes() == b"new"


def test_a_removed_file_is_gone_from_the_disk_before_the_removal_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "replica.json"
    path.write_bytes(b"{}")
    calls = recorded(monkeypatch)
    erase_durably(path)
    assert calls == [("remove", path), ("sync", tmp_path)]
