"""A folder, or what a URL names (s3://, gs://, abfs:// by pyarrow itself; any other by fsspec).

File systems of fsspec raise what they like, and tell some failures as if there was no such file. Neither may be taken
for what a place has: backups are pruned by it.

On a local disk a file appears whole and durably. An object store may keep a part of an object whose writer failed: what
relies on an object says so elsewhere, after it was written. Everything here blocks.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa
from pyarrow import fs

from ..log.modes import DATA_MODE, FOLDER_MODE

PIECE_BYTES = 1024 * 1024
"""Read from a file at a time, by ``pieces``."""
SCRATCH = ".new"
"""At the end of the name of a file that is being written, on a local disk: of a process that died, it stays."""
_SECRETS = frozenset({"access_key", "secret_key", "session_token", "password", "account_key", "sas_token"})
_PASSWORD = re.compile(r"[^:/]+://[^/?#@\[]*:(?!\d+(?:[/?#]|$))[^@]*@")
"""A URL with a password. One of S3 may have a slash in it, as if it was a port that the path follows."""


class CannotReach(Exception):
    """The place cannot be used."""


class NotThere(Exception):
    """There is no such file."""


class _Fsspec(fs.FSSpecHandler):  # type: ignore[misc]
    """pyarrow's, but failures are no missing files, and no listing is remembered: others write, too."""

    def get_file_info(self, paths: list[str]) -> list[Any]:
        """Each file, or that there is none."""
        self.fs.invalidate_cache()
        found: list[Any] = super().get_file_info(paths)
        return found

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        """The files below a folder."""
        self.fs.invalidate_cache()
        walk = self.fs.walk(selector.base_dir, detail=True, on_error=_raise_unless_missing)
        found = [info for _, _, files in walk for info in files.values()]
        return [fs.FileInfo(each["name"], fs.FileType.File, size=each["size"]) for each in found]

    def open_input_stream(self, path: str) -> Any:
        """A file's content."""
        self.fs.invalidate_cache()
        return pa.PythonFile(self.fs.open(path, mode="rb"), mode="r")


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


class Place:
    """Files below one place, named by relative paths with ``/``. Raises CannotReach where the place fails."""

    def __init__(self, url: str) -> None:
        self.url: str = without_arguments(url)
        """As messages name it."""
        try:
            self._files, root = _opened(url)
        except Exception as error:  # what file systems of fsspec like
            raise CannotReach(f"{self.url}: {str(error).replace(url, self.url)}") from error
        is_fsspec = isinstance(self._files, fs.PyFileSystem)
        self._failures: tuple[type[Exception], ...] = (Exception,) if is_fsspec else (OSError, pa.ArrowException)
        self._root = PurePosixPath(root)
        self._is_local: bool = self._files.type_name == "local"

    def write(self, path: str, content: bytes | pa.Buffer) -> None:
        """Make the file, or replace it."""
        place = self._root / path
        try:
            if self._is_local:
                _write_durably(Path(place), content)
                return
            if not isinstance(self._files, fs.S3FileSystem | fs.GcsFileSystem):
                self._files.create_dir(str(place.parent), recursive=True)
            with self._files.open_output_stream(str(place), compression=None) as file:
                file.write(content)
        except self._failures as error:
            raise CannotReach(f"{self.url}: {path} cannot be written: {error}") from error

    def read(self, path: str) -> bytes:
        """The content of a file. Raises NotThere."""
        with self._reading(path), self._opened(path) as file:
            content: bytes = file.read()
            return content

    def pieces(self, path: str) -> Iterator[bytes]:
        """The content of a file, PIECE_BYTES at a time. Raises NotThere."""
        with self._reading(path), self._opened(path) as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone already is fine."""
        try:
            self._files.delete_file(str(self._root / path))
        except FileNotFoundError:
            pass
        except self._failures as error:
            raise CannotReach(f"{self.url}: {path} cannot be removed: {error}") from error

    def remove_folder(self, folder: str) -> None:
        """Remove a folder that is empty; or the mark that pyarrow leaves in an object store in its place. It is fine if
        that fails.
        """
        with suppress(*self._failures):
            if self._is_local:
                Path(self._root / folder).rmdir()
            else:
                self._files.delete_dir(str(self._root / folder))

    def check_folder(self, folder: str) -> None:
        """Raises CannotReach unless a folder that was made is there: where a share is not mounted, it is not. An object
        store has no folders, and does not answer while it is away.
        """
        with self._reading(folder):
            if self._is_local and not Path(self._root / folder).is_dir():
                raise CannotReach(f"{self.url}: {folder} is missing: is the place mounted?")

    def sizes(self, folder: str) -> dict[str, int]:
        """The files below a folder, by their paths as ``read`` takes them, with their bytes."""
        below = fs.FileSelector(str(self._root / folder), allow_not_found=True, recursive=True)
        try:
            found = self._files.get_file_info(below)
        except self._failures as error:
            raise CannotReach(f"{self.url}: {error}") from error
        start = len(str(self._root)) + 1
        return {each.path[start:]: each.size for each in found if each.type == fs.FileType.File}

    def size(self, path: str) -> int:
        """The bytes of a file, without reading it. Raises NotThere."""
        try:
            (found,) = self._files.get_file_info([str(self._root / path)])
        except self._failures as error:
            raise CannotReach(f"{self.url}: {error}") from error
        if found.type != fs.FileType.File:
            raise NotThere(f"{path} is missing")
        size: int = found.size
        return size

    def _opened(self, path: str) -> Any:
        return self._files.open_input_stream(str(self._root / path), compression=None)

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise NotThere(f"{path} is missing") from error
        except self._failures as error:
            raise CannotReach(f"{self.url}: {path} cannot be read: {error}") from error


def _opened(url: str) -> tuple[Any, str]:
    if "://" not in url:
        return fs.LocalFileSystem(), str(Path(url).absolute())
    try:
        files, root = fs.FileSystem.from_uri(url)
    except (ValueError, NotImplementedError) as unknown:
        if "nrecognized" not in str(unknown):
            raise
        try:
            core = import_module("fsspec.core")
        except ImportError as error:
            raise ImportError(f"{unknown}; with fsspec installed, it is asked") from error
        known, root = core.url_to_fs(url)
        files = fs.PyFileSystem(_Fsspec(known))
    return files, root


def without_arguments(url: str) -> str:
    """A URL without its query, and without a user's name and password: what may be shown to others."""
    scheme, is_url, rest = url.partition("://")
    if not is_url:
        return url
    host, slash, path = re.split("[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def place_fault(place: str) -> str | None:
    """What is wrong with a place as it is given; None: nothing. The words do not quote it: they may be shown."""
    if not place:
        return "a folder, or a URL such as s3://BUCKET/PATH"
    named = {name.lower() for name, _ in parse_qsl(place.partition("?")[2], keep_blank_values=True)}
    if "://" in place and (_PASSWORD.match(place) or named & _SECRETS):
        return "no credentials in the URL: they belong where other tools of the store take them from"
    return None


def _write_durably(path: Path, content: bytes | pa.Buffer) -> None:
    """Replace ``path``; on disk when this returns, and nothing is left behind when this fails. The disk is not the
    node's own: when it is full, the room that a node holds back for itself stays held.
    """
    _make_folder(path.parent)
    scratch = path.with_name(path.name + SCRATCH)
    try:
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, DATA_MODE), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
    except BaseException:
        with suppress(OSError):
            scratch.unlink()  # on a full disk, what was written keeps others from being written
        raise
    _sync(path.parent)


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
