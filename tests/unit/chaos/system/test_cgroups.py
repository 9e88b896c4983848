"""Processes that were bounded go back to the group that they came from."""

from pathlib import Path

import pytest

from stockade.chaos.system import cgroups


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders in place of the kernel's hierarchies: a file keeps the last number that was written to it."""
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "cgroup.procs").touch()
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [r"app-foo\x2dbar.scope", "a b", "$HOME", "plain"])
def test_a_process_goes_back_to_a_group_of_any_name(root: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    home = root / "memory" / name
    home.mkdir()
    monkeypatch.setattr(cgroups.Cgroup, "_group_of", lambda *_: home)
    group = cgroups.memory(1 << 30)
    group.add([4321])
    (group.path / "cgroup.procs").write_text("")  # as the kernel has it once the process is elsewhere
    group.close()
    assert (home / "cgroup.procs").read_text().split() == ["4321"]


def test_a_process_that_stays_bounded_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the run would go on as if the fault were healed."""
    monkeypatch.setattr(cgroups.Cgroup, "_group_of", lambda *_: root / "gone")
    group = cgroups.memory(1 << 30)
    group.add([4321])
    with pytest.raises(cgroups.CgroupFailed, match="not moved back to where it came from: process 4321"):
        group.close()
