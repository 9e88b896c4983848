"""Files beyond a node's own disk: what is left of a write that fails."""

import errno
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.partition.places import place as place_module
from stockade.partition.places.place import CannotReach, NotThere, Place
from stockade.partition.places.urls import place_fault, without_arguments
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


def test_paths_below_the_root_of_a_disk_are_whole(tmp_path: Path) -> None:
    """They lacked their first letter: no file of a backup at ``/`` was found again."""
    Place(str(tmp_path)).write("a/b", b"four")
    assert Place("/").sizes(str(tmp_path)[1:]) == {f"{tmp_path}/a/b"[1:]: 4}


def test_sweeps_know_the_name_that_a_file_has_while_it_is_written() -> None:
    assert tier.SCRATCH == place_module.SCRATCH


class Throttled(Exception):
    """As the libraries of object stores have them: it is no OSError."""


class Remote:
    """A file system as fsspec has them: ``isfile``, ``exists`` and ``find`` hide failures, and listings are remembered
    until ``invalidate_cache``.
    """

    protocol = "remote"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.failure: Exception | None = None
        self._listed: dict[str, bytes] | None = None

    def _now(self) -> dict[str, bytes]:
        if self.failure is not None:
            raise self.failure
        if self._listed is None:
            self._listed = dict(self.files)
        return self._listed

    def invalidate_cache(self) -> None:
        self._listed = None

    def info(self, path: str) -> dict[str, Any]:
        if path not in self._now():
            raise FileNotFoundError(path)
        return {"name": path, "type": "file", "size": len(self._now()[path])}

    def exists(self, path: str) -> bool:
        try:
            return bool(self.info(path))
        except Exception:
            return False

    isfile = exists

    def isdir(self, path: str) -> bool:
        try:
            return any(each.startswith(f"{path}/") for each in self._now())
        except OSError:
            return False

    def walk(self, path: str, *, detail: bool, on_error: Callable[[OSError], None]) -> Iterator[tuple[str, Any, Any]]:
        try:
            found = [each for each in self._now() if each.startswith(f"{path}/")]
            if not found:
                raise FileNotFoundError(path)
        except OSError as error:
            on_error(error)
            return
        yield path, {}, {each: self.info(each) for each in found}

    def mkdir(self, path: str, create_parents: bool) -> None:
        self._now()

    def open(self, path: str, mode: str) -> Any:
        if mode == "rb":
            self.info(path)
            return io.BytesIO(self._now()[path])
        self._now()
        keep = self.files.__setitem__

        class Written(io.BytesIO):
            def close(self) -> None:
                if not self.closed:
                    keep(path, self.getvalue())
                super().close()

        return Written()

    def rm(self, path: str) -> None:
        del self.files[path]


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Remote:
    files = Remote()
    core = SimpleNamespace(url_to_fs=lambda url: (files, "bucket/place"))
    monkeypatch.setattr(place_module, "import_module", lambda name: core)
    return files


ACTS: list[Callable[[Place], object]] = [
    lambda place: place.sizes("a"),
    lambda place: place.size("a/b"),
    lambda place: place.read("a/b"),
    lambda place: list(place.pieces("a/b")),
    lambda place: place.write("a/c", b"x"),
]


@pytest.mark.parametrize("failure", [Throttled("SlowDown"), OSError("Connection reset"), ValueError("no JSON")])
@pytest.mark.parametrize("act", ACTS)
def test_whatever_a_store_of_fsspec_raises_the_place_cannot_be_reached(
    remote: Remote, act: Callable[[Place], object], failure: Exception
) -> None:
    """An error that is no OSError ended `stockade backup create --every`. One that is looked like no files at all, and
    a pruning removes what no manifest names.
    """
    place = Place("remote://bucket/place")
    place.write("a/b", b"four")
    remote.failure = failure
    with pytest.raises(CannotReach, match=str(failure)):
        act(place)


def test_an_fsspec_store_that_cannot_be_opened_raises_cannot_reach_with_the_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(url: str) -> None:
        raise Throttled("no credentials")

    monkeypatch.setattr(place_module, "import_module", lambda name: SimpleNamespace(url_to_fs=fails))
    with pytest.raises(CannotReach, match="no credentials"):
        Place("remote://bucket/place")


def test_files_of_others_are_seen_at_once_in_a_store_of_fsspec(remote: Remote) -> None:
    """It remembers listings: a pruning did not see the manifest that another machine had written since."""
    place = Place("remote://bucket/place")
    place.write("a/b", b"four")
    assert place.sizes("a") == {"a/b": 4}
    remote.files["bucket/place/a/c"] = b"of another machine"
    assert place.sizes("a") == {"a/b": 4, "a/c": 18}
    remote.files["bucket/place/a/d"] = b"and"
    assert place.read("a/d") == b"and"
    remote.files["bucket/place/a/e"] = b"more"
    assert place.size("a/e") == 4
    place.remove("a/b")
    assert place.sizes("a").keys() == {"a/c", "a/d", "a/e"}
    assert place.sizes("b") == {}
    for act in (place.size, place.read):
        with pytest.raises(NotThere):
            act("a/b")


@pytest.mark.parametrize(
    "url",
    [
        "s3://KEY:TOPSECRET@bucket/x",
        "s3://KEY:TOP/SECRET@bucket/x?region=eu",
        "s3://KEY:1+?TOPSECRET#@bucket",
        "abfs://container:TOPSECRET@account.dfs.core.windows.net",
        "abfs://:TOPSECRET@account.blob.core.windows.net/container",
        "s3://bucket/x?access_key=KEY&secret_key=TOPSECRET",
        "abfs://container@account.dfs.core.windows.net/x?Account_Key=TOPSECRET",
    ],
)
def test_a_url_with_credentials_is_refused_and_not_quoted(url: str) -> None:
    fault = place_fault(url)
    assert fault is not None
    assert fault.startswith("no credentials in the URL")
    assert "TOPSECRET" not in fault


@pytest.mark.parametrize(
    "place",
    [
        "/mnt/backups",
        "here:there@home",
        "file:///mnt/a:b@c",
        "s3://bucket/a:b@c?region=eu-1&endpoint_override=10.0.0.7:9000&scheme=http",
        "abfs://container@account.dfs.core.windows.net/x",
        "http://house:9000/x@y",
        "http://[::1]:9000/x@y",
        "sftp://user@house:22?x=@",
    ],
)
def test_a_place_without_a_secret_is_taken(place: str) -> None:
    assert place_fault(place) is None


def test_errors_of_a_place_name_its_url_without_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of an object store quoted the whole URL."""
    url = "s3://bucket/x?endpoint_override=10.0.0.7:9000&made_up=1"
    with pytest.raises(CannotReach) as refused:
        Place(url)
    assert str(refused.value).startswith("s3://bucket/x: ")
    assert "10.0.0.7" not in str(refused.value)

    def fails(url: str) -> None:
        raise Throttled(f"cannot open {url}")

    monkeypatch.setattr(place_module, "import_module", lambda name: SimpleNamespace(url_to_fs=fails))
    with pytest.raises(CannotReach, match=r"^remote://bucket/place: cannot open remote://bucket/place$"):
        Place("remote://user:secret@bucket/place?key=secret#secret")


def test_the_name_of_a_place_is_its_own_but_for_arguments() -> None:
    assert without_arguments("s3://key:secret@bucket") == "s3://bucket"
    assert without_arguments("remote://[bucket/a@b#c?d") == "remote://[bucket/a@b"


def test_a_folder_that_was_made_is_missed_on_a_local_disk_and_not_in_an_object_store(
    tmp_path: Path, remote: Remote
) -> None:
    place = Place(str(tmp_path))
    with pytest.raises(CannotReach, match="is the place mounted"):
        place.check_folder("a")
    place.write("a/b", b"")
    place.check_folder("a")
    Place("remote://bucket/place").check_folder("a")
