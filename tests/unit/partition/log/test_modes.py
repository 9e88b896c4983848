"""What is written is for its user and its group alone, whatever the umask; what older versions wrote is mended."""

import stat
from collections.abc import Callable
from pathlib import Path

from stockade.partition.durable.stage_files import DiskStageFiles
from stockade.partition.log.fsutil import make_directory, write_durably
from stockade.partition.log.modes import DATA_MODE, FOLDER_MODE, SECRET_MODE, close_to_others, open_to_others
from stockade.partition.log.segments import SegmentLog

from .test_segments import command

Umask = Callable[[int], int]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_small_file_and_the_folders_that_it_needs(tmp_path: Path, umask: Umask) -> None:
    write_durably(tmp_path / "data" / "node" / "founders.json", b"{}")
    write_durably(tmp_path / "data" / "secret", b"opens something", SECRET_MODE)
    assert mode(tmp_path / "data" / "node" / "founders.json") == DATA_MODE == 0o640
    assert mode(tmp_path / "data" / "secret") == SECRET_MODE == 0o600
    assert mode(tmp_path / "data") == mode(tmp_path / "data" / "node") == FOLDER_MODE == 0o750


def test_a_stricter_umask_is_obeyed(tmp_path: Path, umask: Umask) -> None:
    umask(0o077)
    write_durably(tmp_path / "data" / "founders.json", b"{}")
    assert (mode(tmp_path / "data"), mode(tmp_path / "data" / "founders.json")) == (0o700, 0o600)


def test_a_file_that_a_dead_process_left_gives_its_rights_to_no_secret(tmp_path: Path) -> None:
    (tmp_path / "secret.new").write_bytes(b"")
    (tmp_path / "secret.new").chmod(0o666)
    write_durably(tmp_path / "secret", b"opens something", SECRET_MODE)
    assert mode(tmp_path / "secret") == SECRET_MODE


def test_segments_and_their_indices(tmp_path: Path, umask: Umask) -> None:
    log = SegmentLog(1 << 20)
    log.begin(tmp_path)
    log.append(command([1]), 0)
    log.flush()
    log.close()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".arrow", ".index"]
    assert {mode(path) for path in tmp_path.iterdir()} == {DATA_MODE}


def test_stages(tmp_path: Path, umask: Umask) -> None:
    files = DiskStageFiles()
    files.begin(tmp_path)
    files.write(1, b"message")
    assert [mode(path) for path in tmp_path.iterdir()] == [DATA_MODE]


def test_modes_open_to_others_are_found_and_narrowed_and_narrower_ones_stay(tmp_path: Path) -> None:
    modes = {"wal": 0o2755, "wal/1": 0o644, "wal/2": 0o664, "wal/3": 0o600, "groups": 0o750, "groups/x": 0o640}
    make_directory(tmp_path / "wal")
    make_directory(tmp_path / "groups")
    for name, wanted in modes.items():
        path = tmp_path / name
        path.touch()
        path.chmod(wanted)
    assert {str(path.relative_to(tmp_path)): found for path, found in open_to_others(tmp_path / "wal")} == {
        name: modes[name] for name in ("wal", "wal/1", "wal/2")
    }
    assert close_to_others([tmp_path / "wal", tmp_path / "groups", tmp_path / "partitions"]) == 3
    assert {name: mode(tmp_path / name) for name in modes} == {
        **modes,
        "wal": 0o2750,
        "wal/1": 0o640,
        "wal/2": 0o640,
    }
    assert close_to_others([tmp_path / "wal"]) == 0


def test_links_inside_lead_nowhere_and_a_folder_that_is_one_is_mended(tmp_path: Path) -> None:
    elsewhere, wal = tmp_path / "elsewhere", tmp_path / "other-disk"
    elsewhere.touch()
    elsewhere.chmod(0o644)
    wal.mkdir(0o755)
    (wal / "link").symlink_to(elsewhere)
    (wal / "1").touch(0o644)
    (wal / "1").chmod(0o644)
    (tmp_path / "wal").symlink_to(wal)
    wal.chmod(0o755)
    assert close_to_others([tmp_path / "wal"]) == 2
    assert (mode(elsewhere), mode(wal), mode(wal / "1")) == (0o644, 0o750, 0o640)
