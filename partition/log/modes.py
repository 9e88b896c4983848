"""The modes of a node's files: its user writes, its group may read. A strict umask narrows that; no umask widens it."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

DATA_MODE = 0o640
"""The mode of files with data: the log, segments, checkpoints, a node's notes. The group may read them, for copies."""
SECRET_MODE = 0o600
"""The mode of files with secrets, such as keys and tokens, and of the room that space.py holds back."""
FOLDER_MODE = 0o750
_NOT_FOR_OTHERS = 0o027
"""The bits that neither DATA_MODE nor FOLDER_MODE has: write for the group, and everything for others."""


def open_to_others(root: Path) -> Iterator[tuple[Path, int]]:
    """``root`` and the files and folders in it that others may use, or that the group may write, each with its mode.

    Links are not followed, except ``root``. A file that disappears meanwhile is left out. Raises OSError.
    """
    for path in (root, *_within(root)):
        try:
            found = path.stat(follow_symlinks=path == root).st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISLNK(found) and found & _NOT_FOR_OTHERS:
            yield path, stat.S_IMODE(found)


def close_to_others(roots: Iterable[Path]) -> int:
    """Remove the rights that a node would not give from each root that exists, and from all files and folders in it.
    Returns how many files and folders were changed. Raises OSError, for instance where another user owns one.
    """
    mended = 0
    for root in roots:
        for path, mode in open_to_others(root):
            path.chmod(mode & ~_NOT_FOR_OTHERS)
            mended += 1
    return mended


def _within(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        yield from (Path(folder, name) for name in (*folders, *files))
