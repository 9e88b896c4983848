"""Files beyond a node's own disk: what is left of a write that fails."""

import errno
import os
from pathlib import Path

import pytest

from stockade.partition.places import place as place_module
from stockade.partition.places.place import CannotReach, NotThere, Place
from stockade.partition.state import tier


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_write_that_fails_leaves_nothing_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    place = Place(str(tmp_path))
    place.write("home/name", b"before")
    with monkeypatch.context() as patch:
        if call == "rename":
            patch.setattr(Path, "rename", fails)
        else:
            patch.setattr(os, "fsync", fails)
        with pytest.raises(CannotReach, match="No space left"):
            place.write("home/name", b"after")
    assert place.sizes("home") == {"home/name": 6}
    assert place.read("home/name") == b"before"


def test_the_size_of_a_file_is_known_without_reading_it(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    place.write("a/b", b"four")
    assert place.size("a/b") == 4
    for path in ("a", "a/c", "b/c"):
        with pytest.raises(NotThere):
            place.size(path)


def test_sweeps_know_the_name_that_a_file_has_while_it_is_written() -> None:
    assert tier.SCRATCH == place_module.SCRATCH
