"""The files of backups in a place (partition/places). Such a file may be incomplete, if its writer failed. No manifest
names an incomplete file, because a manifest is written after all files that it names. Everything here blocks.

Many processes may make backups in one place while others prune it (prune.py), and a place has no locks. So no file of
records is ever written twice: each backup has file names of its own. A backup under way announces its manifest
(``announce``) before it checks whether another process has pruned meanwhile: prune.py says why that is enough.
"""

import hashlib
from collections.abc import Iterable

from ...partition.places.place import NotThere, Place
from .manifest import Damaged, Manifest, Missing, decode, encode

DATA, MANIFESTS, UNFINISHED = "data", "manifests", "unfinished"
"""Folders: the files of records; the manifests, each with a file of its SHA-256; and the announced manifests of backups
under way.
"""
_PRUNED = "pruned"
_DIGEST = ".sha256"


class Store(Place):
    """A place of backups. Each method raises CannotReach where the place fails."""

    def read(self, path: str) -> bytes:
        """The content of the file at ``path``. Raises Missing."""
        try:
            return super().read(path)
        except NotThere as error:
            raise Missing(str(error)) from error

    def manifests(self) -> list[str]:
        """The names of all backups that have a manifest, ascending by the time at which they began."""
        return _names(self.sizes(MANIFESTS))

    def manifest(self, name: str | None) -> Manifest:
        """The manifest of this name; None: the newest. Raises Missing if there is none of this name; Damaged."""
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
        """The SHA-256 in the file beside a manifest; None if another process is just removing both. Raises Missing."""
        try:
            return self.read(f"{MANIFESTS}/{name}.json{_DIGEST}").partition(b" ")[0]
        except Missing:
            if self.has_manifest(name):
                raise
            return None

    def manifest_or_fault(self, name: str) -> tuple[Manifest | None, str]:
        """(The manifest of this name, ""); or (None, what is wrong with it), which is "" if it was removed since it was
        listed.
        """
        try:
            return self.manifest(name), ""
        except Missing as error:
            return None, str(error) if self.has_manifest(name) else ""
        except Damaged as error:
            return None, str(error)

    def announce(self, manifest: Manifest) -> None:
        """Announce the manifest of a backup whose files are all written: from now on no ``prune`` removes them."""
        self.write(f"{UNFINISHED}/{manifest.name}.json", encode(manifest))

    def withdraw(self, name: str) -> None:
        """Withdraw the announcement of a backup: it is complete, or it was given up."""
        self.remove(f"{UNFINISHED}/{name}.json")

    def announced(self) -> tuple[list[Manifest], dict[str, str]]:
        """The manifests that are announced and not withdrawn; and the faults of those that cannot be read, by name."""
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
        """Write the manifest of a backup: from now on the backup exists."""
        name, content = manifest.name, encode(manifest)
        digest = hashlib.sha256(content).hexdigest()
        self.write(f"{MANIFESTS}/{name}.json{_DIGEST}", f"{digest}  {name}.json\n".encode())  # as sha256sum -c reads it
        self.write(f"{MANIFESTS}/{name}.json", content)

    def forget(self, name: str) -> None:
        """Remove the manifest of a backup: from now on the backup does not exist."""
        self.remove(f"{MANIFESTS}/{name}.json")
        self.remove(f"{MANIFESTS}/{name}.json{_DIGEST}")

    def last_pruning(self) -> bytes:
        """The mark of the last pruning of this place; b"" if there was none."""
        try:
            return self.read(_PRUNED)
        except Missing:
            return b""

    def begin_pruning(self, mark: bytes) -> None:
        """Write the mark of this pruning, which ``last_pruning`` returns from now on."""
        self.write(_PRUNED, mark)


def _names(paths: Iterable[str]) -> list[str]:
    names = [path.rpartition("/")[2] for path in paths]
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))
