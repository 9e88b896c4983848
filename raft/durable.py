"""Small files that survive a power cut whole: the old content or the new one, never a part."""

import os
from pathlib import Path

from .wal_files import make_directory, sync_directory


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
