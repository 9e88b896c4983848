"""Who may read what a node writes: its user, and users of its group. A strict umask narrows that, none widens it."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

DATA_MODE = 0o640
"""Files with data: the log, segments, checkpoints, what a node remembers. The group reads them, for copies."""
SECRET_MODE = 0o600
"""Files whose content opens something: keys, tokens."""
FOLDER_MODE = 0o750
_NOT_FOR_OTHERS = 0o027
"""The bits that neither DATA_MODE nor FOLDER_MODE has: write for the group, and everything for others."""


def open_to_others(root: Path) -> Iterator[tuple[Path, int]]:
    """``root`` and the files and folders in it that others may use, or that the group may write, each with its mode.

    Links are not followed, but for ``root``. What disappears meanwhile is left out. Raises OSError.
    """
    for path in (root, *_within(root)):
        try:
            found = path.stat(follow_symlinks=path == root).st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISLNK(found) and found & _NOT_FOR_OTHERS:
            yield path, stat.S_IMODE(found)


def close_to_others(roots: Iterable[Path]) -> int:
    """Take from each root that exists, and from what is in it, the rights that a node would not give it; returns of how
    many files and folders. Raises OSError, for instance where another user owns one.
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
