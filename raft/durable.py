"""Small files that survive a power cut whole, the old content or the new one, never a part; and their folders."""

import os
from pathlib import Path

from .wal_files import sync_directory


def make_directory(directory: Path) -> None:
    """Make a directory, and those above it, where there are none; what is made is on disk when this returns."""
    if not directory.exists():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def erase_durably(path: Path) -> None:
    """Remove a file; gone from the disk when this returns. Blocks."""
    path.unlink()
    sync_directory(path.parent)


def write_durably(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``; on disk when this returns. Blocks. Makes its folder where there is none.

    A rename alone is not enough: a power cut may keep the new name and lose the bytes.
    """
    make_directory(path.parent)
    scratch = path.with_name(path.name + ".new")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.rename(path)
    sync_directory(path.parent)
