import errno
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stockade.cli.main import main
from stockade.raft.wal.files import lock_directory


def rebuild(data: Path, *options: str, answer: str = "") -> Result:
    return CliRunner().invoke(main, ["rebuild", "--data", str(data), *options], input=answer)


def filled(tmp_path: Path) -> Path:
    for folder in ("wal", "groups/0001", "partitions"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("wal/1.wal", "groups/0001/checkpoint", "founders.json", "node.toml"):
        (tmp_path / file).write_text(file, encoding="utf-8")
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_rebuild_moves_all_stored_files_aside_and_no_other_file(tmp_path: Path) -> None:
    data = filled(tmp_path)
    done = rebuild(data, "--yes")
    assert done.exit_code == 0, done.output
    [aside] = [path for path in data.iterdir() if path.is_dir()]
    assert names(data) == {aside.name, "node.toml"}
    assert names(aside) == {"wal", "groups", "partitions", "founders.json"}
    assert (aside / "groups/0001/checkpoint").read_text(encoding="utf-8") == "groups/0001/checkpoint"


def test_nothing_is_moved_without_a_yes(tmp_path: Path) -> None:
    data = filled(tmp_path)
    assert rebuild(data, answer="n\n").exit_code == 1
    assert names(data) == {"wal", "groups", "partitions", "founders.json", "node.toml"}


def test_the_data_of_a_running_node_stays(tmp_path: Path) -> None:
    data = filled(tmp_path)
    lock = lock_directory(data / "wal")
    try:
        done = rebuild(data, "--yes")
    finally:
        os.close(lock)
    assert done.exit_code == 1
    assert "still runs" in done.output
    assert "founders.json" in names(data)


@pytest.mark.parametrize(("call", "at"), [("open", "wal/lock"), ("mkdir", "damaged-")])
def test_a_disk_that_refuses_the_move_is_named_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, at: str
) -> None:
    """As one that an error has made read-only: the reason was the last line of a traceback."""
    data = filled(tmp_path)

    def refused(path: Path, *_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with monkeypatch.context() as broken:
        broken.setattr(os, call, refused)
        done = rebuild(data, "--yes")
    assert (done.exit_code, f"Error: {data}/{at}" in done.output) == (1, True), done.output
    assert ": Read-only file system. Look at the disk and the kernel's log" in done.output
    assert names(data) == {"wal", "groups", "partitions", "founders.json", "node.toml"}


def test_a_folder_that_is_no_nodes_is_refused(tmp_path: Path) -> None:
    done = rebuild(tmp_path, "--yes")
    assert done.exit_code == 1
    assert "has no data of a node" in done.output
