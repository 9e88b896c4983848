"""Where backups are: a folder, or what a URL names (s3://, gs://, abfs:// by pyarrow itself; any other by fsspec).

On a local disk a file appears whole and durably. An object store may keep a part of an object whose writer failed: no
manifest names it, for a manifest is written after all that it names. Everything here blocks.

Many processes may make backups in one place while others prune it (prune.py), and a place has no locks. So no file of
records is ever written twice: each backup has names of its own. And a backup that is being made announces its manifest
(``announce``) before it looks whether others have pruned meanwhile: prune.py says why that is enough.
"""

import hashlib
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow import fs

from ...partition.log.fsutil import write_durably
from .manifest import Damaged, Manifest, Missing, decode, encode

DATA, MANIFESTS, UNFINISHED = "data", "manifests", "unfinished"
"""Folders: the files of records; the manifests, a file with the SHA-256 beside each; and the manifests of backups that
were not complete when they were written.
"""
_PRUNED = "pruned"
_DIGEST = ".sha256"


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

    def write(self, path: str, content: bytes | pa.Buffer) -> None:
        """Make the file, or replace it."""
        place = self._root / path
        try:
            if self._is_local:
                write_durably(Path(place), bytes(content))
                return
            if not isinstance(self._files, fs.S3FileSystem | fs.GcsFileSystem):
                self._files.create_dir(str(place.parent), recursive=True)
            with self._files.open_output_stream(str(place)) as file:
                file.write(content)
        except (OSError, pa.ArrowException) as error:
            raise CannotReach(f"{self.url}: {path} cannot be written: {error}") from error

    def read(self, path: str) -> bytes:
        """Its content. Raises Missing."""
        try:
            with self._files.open_input_stream(str(self._root / path), compression=None) as file:
                content: bytes = file.read()
                return content
        except FileNotFoundError as error:
            raise Missing(f"{path} is missing") from error
        except (OSError, pa.ArrowException) as error:
            raise CannotReach(f"{self.url}: {path} cannot be read: {error}") from error

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone already is fine."""
        try:
            self._files.delete_file(str(self._root / path))
        except FileNotFoundError:
            pass
        except (OSError, pa.ArrowException) as error:
            raise CannotReach(f"{self.url}: {path} cannot be removed: {error}") from error

    def sizes(self, folder: str) -> dict[str, int]:
        """The files below a folder, by their paths as ``read`` takes them, with their bytes."""
        below = fs.FileSelector(str(self._root / folder), allow_not_found=True, recursive=True)
        try:
            found = self._files.get_file_info(below)
        except (OSError, pa.ArrowException) as error:
            raise CannotReach(f"{self.url}: {error}") from error
        start = len(str(self._root)) + 1
        return {each.path[start:]: each.size for each in found if each.type == fs.FileType.File}

    def manifests(self) -> list[str]:
        """The names of all manifests, ascending by the time when they were begun."""
        return _names(self.sizes(MANIFESTS))

    def manifest(self, name: str | None) -> Manifest:
        """A manifest by its name; None: the newest. Raises Damaged; Missing if there is none of this name."""
        if name is None:
            names = self.manifests()
            if not names:
                raise Damaged(f"there is no backup at {self.url}")
            name = names[-1]
        content = self.read(f"{MANIFESTS}/{name}.json")
        manifest = decode(content, name)
        if manifest.has_digest:
            digest = hashlib.sha256(content).hexdigest()
            if self._digest(name) not in (None, digest.encode()):
                raise Damaged(f"manifest {name} has another SHA-256 than the file beside it says")
        return manifest

    def has_manifest(self, name: str) -> bool:
        """Whether there is a manifest of this name."""
        return name in self.manifests()

    def _digest(self, name: str) -> bytes | None:
        """What the file beside a manifest says; None: another process removes both just now. Raises Damaged."""
        try:
            return self.read(f"{MANIFESTS}/{name}.json{_DIGEST}").partition(b" ")[0]
        except Missing:
            if self.has_manifest(name):
                raise
            return None

    def manifest_or_fault(self, name: str) -> tuple[Manifest | None, str]:
        """A manifest that was listed; or what is wrong with it: "" if others have removed it since."""
        try:
            return self.manifest(name), ""
        except Missing as error:
            return None, str(error) if self.has_manifest(name) else ""
        except Damaged as error:
            return None, str(error)

    def all_manifests(self) -> tuple[list[Manifest], dict[str, str]]:
        """Every manifest that can be read, the oldest first, and what is wrong with the others, by name."""
        found = {name: self.manifest_or_fault(name) for name in self.manifests()}
        read = [manifest for manifest, _ in found.values() if manifest is not None]
        return read, {name: fault for name, (_, fault) in found.items() if fault}

    def announce(self, manifest: Manifest) -> None:
        """Say which files a backup has that is almost complete: nobody prunes them from now on."""
        self.write(f"{UNFINISHED}/{manifest.name}.json", encode(manifest))

    def withdraw(self, name: str) -> None:
        """It comes to nothing, or it is complete."""
        self.remove(f"{UNFINISHED}/{name}.json")

    def announced(self) -> list[Manifest]:
        """What was announced, and not withdrawn. Raises Damaged."""
        found = []
        for name in _names(self.sizes(UNFINISHED)):
            try:
                content = self.read(f"{UNFINISHED}/{name}.json")
            except Missing:  # withdrawn since
                continue
            found.append(decode(content, name))
        return found

    def add(self, manifest: Manifest) -> None:
        """Write a manifest: from now on the backup exists."""
        name, content = manifest.name, encode(manifest)
        digest = hashlib.sha256(content).hexdigest()
        self.write(f"{MANIFESTS}/{name}.json{_DIGEST}", f"{digest}  {name}.json\n".encode())  # as sha256sum -c reads it
        self.write(f"{MANIFESTS}/{name}.json", content)

    def forget(self, name: str) -> None:
        """Remove a manifest: from now on the backup does not exist."""
        self.remove(f"{MANIFESTS}/{name}.json")
        self.remove(f"{MANIFESTS}/{name}.json{_DIGEST}")

    def last_pruning(self) -> bytes:
        """Which pruning of this place was the last one; b"": there was none."""
        try:
            return self.read(_PRUNED)
        except Missing:
            return b""

    def begin_pruning(self, mark: bytes) -> None:
        """From now on ``last_pruning`` is this one."""
        self.write(_PRUNED, mark)


def _names(paths: Iterable[str]) -> list[str]:
    names = [path.rpartition("/")[2] for path in paths]
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


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
