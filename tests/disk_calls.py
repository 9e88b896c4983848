"""What reaches a disk, in order: which files and folders were synced, and which names changed."""

import os
from pathlib import Path
from typing import Any

import pytest

Call = tuple[str, Path]


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """From now on: ("sync", path) after each fsync and fdatasync that succeeded, ("rename", new path) and ("remove",
    path) before each rename and removal. Threads add to it, too.
    """
    calls: list[Call] = []

    def spy_on(name: str) -> None:
        sync = getattr(os, name)

        def synced(descriptor: int) -> None:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            sync(descriptor)
            calls.append(("sync", path))

        monkeypatch.setattr(os, name, synced)

    rename, unlink = os.rename, os.unlink

    def renamed(here: Any, there: Any, **more: Any) -> None:
        calls.append(("rename", Path(there)))
        rename(here, there, **more)

    def removed(path: Any, **more: Any) -> None:
        calls.append(("remove", Path(path)))
        unlink(path, **more)

    spy_on("fsync")
    spy_on("fdatasync")
    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(os, "unlink", removed)
    return calls


def beside(calls: list[Call], folder: Path) -> list[tuple[str, str]]:
    """Those calls that are about ``folder``, what lies in it, and what lies beside it, with paths relative to it."""
    return [(name, os.path.relpath(path, folder)) for name, path in calls if path.is_relative_to(folder.parent)]
