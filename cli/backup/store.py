"""Where backups are: in a place (partition/places), where a file may be the part of one whose writer failed. No
manifest names such a file, for a manifest is written after all that it names. Everything here blocks.

Many processes may make backups in one place while others prune it (prune.py), and a place has no locks. So no file of
records is ever written twice: each backup has names of its own. And a backup that is being made announces its manifest
(``announce``) before it looks whether others have pruned meanwhile: prune.py says why that is enough.
"""

import hashlib
from collections.abc import Iterable

from ...partition.places.place import NotThere, Place
from .manifest import Damaged, Manifest, Missing, decode, encode

DATA, MANIFESTS, UNFINISHED = "data", "manifests", "unfinished"
"""Folders: the files of records; the manifests, a file with the SHA-256 beside each; and the manifests of backups that
were not complete when they were written.
"""
_PRUNED = "pruned"
_DIGEST = ".sha256"


class Store(Place):
    """The place of backups. Raises CannotReach where the place fails."""

    def read(self, path: str) -> bytes:
        """Its content. Raises Missing."""
        try:
            return super().read(path)
        except NotThere as error:
            raise Missing(str(error)) from error

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
        try:
            self.size(f"{MANIFESTS}/{name}.json")
        except NotThere:
            return False
        return True

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

    def announce(self, manifest: Manifest) -> None:
        """Say which files an almost complete backup has: from now on no ``prune`` removes them."""
        self.write(f"{UNFINISHED}/{manifest.name}.json", encode(manifest))

    def withdraw(self, name: str) -> None:
        """It comes to nothing, or it is complete."""
        self.remove(f"{UNFINISHED}/{name}.json")

    def announced(self) -> tuple[list[Manifest], dict[str, str]]:
        """What was announced, and not withdrawn, and what is wrong with what cannot be read, by name."""
        found, damaged = [], {}
        for name in _names(self.sizes(UNFINISHED)):
            path = f"{UNFINISHED}/{name}.json"
            try:
                found.append(decode(self.read(path), name))
            except Missing:  # withdrawn since
                continue
            except Damaged as error:
                damaged[name] = f"{path}: {error}"
        return found, damaged

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
