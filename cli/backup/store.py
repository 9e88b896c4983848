"""Where backups are: a folder, or what a URL names (s3://, gs://, abfs:// by pyarrow itself; any other by fsspec).

On a local disk a file appears whole and durably; object stores write whole objects anyhow. Everything here blocks.
"""

from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow import fs

from ...partition.log.fsutil import write_durably
from .manifest import Damaged, Manifest, decode, encode

MANIFESTS = "manifests"
"""The folder of the manifests; files of records are in ``data``."""


class CannotReach(Exception):
    """The place of a backup cannot be used."""


class Store:
    """Files below one place, named by relative paths with ``/``. Raises CannotReach where the place fails."""

    def __init__(self, url: str) -> None:
        try:
            self._files, root = _opened(url)
        except (OSError, ValueError, ImportError, pa.ArrowException) as error:
            raise CannotReach(f"{url}: {error}") from error
        self.url: str = url
        self._root = PurePosixPath(root)
        self._is_local: bool = self._files.type_name == "local"

    def write(self, path: str, content: bytes) -> None:
        """Make the file, or replace it."""
        place = self._root / path
        try:
            if self._is_local:
                write_durably(Path(place), content)
                return
            if not isinstance(self._files, fs.S3FileSystem | fs.GcsFileSystem):
                self._files.create_dir(str(place.parent), recursive=True)
            with self._files.open_output_stream(str(place)) as file:
                file.write(content)
        except (OSError, pa.ArrowException) as error:
            raise CannotReach(f"{self.url}: {path} cannot be written: {error}") from error

    def read(self, path: str) -> bytes:
        """Its content. Raises Damaged if there is no such file."""
        try:
            with self._files.open_input_stream(str(self._root / path), compression=None) as file:
                content: bytes = file.read()
                return content
        except FileNotFoundError as error:
            raise Damaged(f"{path} is missing") from error
        except (OSError, pa.ArrowException) as error:
            raise CannotReach(f"{self.url}: {path} cannot be read: {error}") from error

    def manifests(self) -> list[str]:
        """The names of all manifests, ascending by the time when they were begun."""
        folder = fs.FileSelector(str(self._root / MANIFESTS), allow_not_found=True)
        try:
            found = self._files.get_file_info(folder)
        except (OSError, pa.ArrowException) as error:
            raise CannotReach(f"{self.url}: {error}") from error
        return sorted(each.base_name.removesuffix(".json") for each in found if each.base_name.endswith(".json"))

    def manifest(self, name: str | None) -> Manifest:
        """A manifest by its name; None: the newest. Raises Damaged."""
        if name is None:
            names = self.manifests()
            if not names:
                raise Damaged(f"there is no backup at {self.url}")
            name = names[-1]
        return decode(self.read(f"{MANIFESTS}/{name}.json"), name)

    def add(self, manifest: Manifest) -> None:
        """Write a manifest: from now on the backup exists."""
        self.write(f"{MANIFESTS}/{manifest.name}.json", encode(manifest))


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
        files = fs.PyFileSystem(fs.FSSpecHandler(known))
    return files, root
