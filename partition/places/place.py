"""A place for files: a folder, or the object store that a URL names (s3://, gs://, abfs:// by pyarrow itself; any other
by fsspec).

File systems of fsspec raise exceptions of any kind, and report some failures as missing files. A failure must not pass
for a file that is not there: backups are pruned by what a place has.

On a local disk a file appears whole and durably. An object store may keep a part of an object whose writer failed: so
code that relies on an object records elsewhere, after the write, that the object is complete. Everything here blocks.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow import fs

from ..log.modes import DATA_MODE, FOLDER_MODE
from .urls import without_arguments

PIECE_BYTES = 1024 * 1024
"""Bytes that ``pieces`` reads from a file at a time."""
SCRATCH = ".new"
"""The end of a file's name on a local disk while it is being written. If the process dies, such a file stays."""


class CannotReach(Exception):
    """The place cannot be used."""


class NotThere(Exception):
    """There is no such file."""


class _Fsspec(fs.FSSpecHandler):  # type: ignore[misc]
    """pyarrow's adapter of fsspec, except that a failure never passes for a missing file, and no listing is cached,
    since others write to the place, too.
    """

    def get_file_info(self, paths: list[str]) -> list[Any]:
        """The information on each path, a missing file included."""
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
        """A stream of a file's content."""
        self.fs.invalidate_cache()
        return pa.PythonFile(self.fs.open(path, mode="rb"), mode="r")


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


class Place:
    """The files below one place, named by relative paths with ``/``. All methods raise CannotReach if it fails."""

    def __init__(self, url: str) -> None:
        self.url: str = without_arguments(url)
        """The URL as messages show it, without credentials."""
        try:
            self._files, root = _opened(url)
        except Exception as error:  # file systems of fsspec raise exceptions of any kind
            raise CannotReach(f"{self.url}: {str(error).replace(url, self.url)}") from error
        is_fsspec = isinstance(self._files, fs.PyFileSystem)
        self._failures: tuple[type[Exception], ...] = (Exception,) if is_fsspec else (OSError, pa.ArrowException)
        self._root = PurePosixPath(root)
        self._is_local: bool = self._files.type_name == "local"

    def write(self, path: str, content: bytes | pa.Buffer) -> None:
        """Create the file, or replace it."""
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
        """The content of a file. Raises NotThere if there is no such file."""
        with self._reading(path), self._opened(path) as file:
            content: bytes = file.read()
            return content

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file, PIECE_BYTES at a time. Raises NotThere if there is no such file."""
        with self._reading(path), self._opened(path) as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    def remove(self, path: str) -> None:
        """Remove a file; a file that does not exist is ignored."""
        try:
            self._files.delete_file(str(self._root / path))
        except FileNotFoundError:
            pass
        except self._failures as error:
            raise CannotReach(f"{self.url}: {path} cannot be removed: {error}") from error

    def remove_folder(self, folder: str) -> None:
        """Remove an empty folder, or in an object store the marker object that pyarrow leaves in place of a folder.
        Failures are ignored.
        """
        with suppress(*self._failures):
            if self._is_local:
                Path(self._root / folder).rmdir()
            else:
                self._files.delete_dir(str(self._root / folder))

    def remove_if_empty(self, folder: str) -> None:
        """Remove a folder without files, to which no file may be written any more: an object store takes away what has
        come there since it was listed. Failures are ignored.
        """
        if self._is_local:
            self.remove_folder(folder)
            return
        below = fs.FileSelector(str(self._root / folder), allow_not_found=True)
        with suppress(*self._failures):
            if not self._files.get_file_info(below):
                self.remove_folder(folder)

    def check_folder(self, folder: str) -> None:
        """Raise CannotReach unless this folder, which was made before, is there: it is missing while a share is not
        mounted. In an object store, which has no folders, nothing is checked: it fails by itself while it is away.
        """
        with self._reading(folder):
            if self._is_local and not Path(self._root / folder).is_dir():
                raise CannotReach(f"{self.url}: {folder} is missing: is the place mounted?")

    def sizes(self, folder: str) -> dict[str, int]:
        """The sizes in bytes of all files below a folder, by path, as ``read`` takes it."""
        below = fs.FileSelector(str(self._root / folder), allow_not_found=True, recursive=True)
        try:
            found = self._files.get_file_info(below)
        except self._failures as error:
            raise CannotReach(f"{self.url}: {error}") from error
        start = len(str(self._root / "_")) - 1  # the root of a disk ends in a slash by itself
        return {each.path[start:]: each.size for each in found if each.type == fs.FileType.File}

    def size(self, path: str) -> int:
        """The size of a file in bytes, without reading it. Raises NotThere if there is no such file."""
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
            raise ImportError(f"{unknown}; install fsspec, which may know it") from error
        known, root = core.url_to_fs(url)
        files = fs.PyFileSystem(_Fsspec(known))
    return files, root


def _write_durably(path: Path, content: bytes | pa.Buffer) -> None:
    """Replace ``path``; the content is on disk when this returns, and no scratch file is left if this fails. The disk
    is not the node's own: when it is full, the room that a node holds back (log/space.py) stays held.
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
            scratch.unlink()  # on a full disk its bytes would keep other files from being written
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
