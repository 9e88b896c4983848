"""Files that a command writes for its user: whole, or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ...partition.log.fsutil import sync_directory


@contextmanager
def whole_file(path: Path, mode: int, *, replaces: bool) -> Iterator[BinaryIO]:
    """A new file, which gets the name ``path`` at the end of the block, durably; if the block fails, no file is left.

    ``replaces``: the new file replaces an existing one. Otherwise it raises FileExistsError. Raises other OSErrors too.
    """
    unfinished = path.with_name(f".unfinished-{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replaces:
            unfinished.replace(path)
        else:
            path.hardlink_to(unfinished)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_directory(path.parent)
