"""Bytes that reach the disk whole: writes that never stop half-way, folders and small files that survive a power cut.

Everything here blocks.
"""

import os
from collections.abc import Sequence
from pathlib import Path

PIECES_MAX = 1024
"""The kernel takes so many pieces in one write (IOV_MAX)."""


def write_all(descriptor: int, pieces: Sequence[bytes]) -> None:
    """Write all pieces, one behind the other, where the descriptor stands.

    A short write is followed by another, whose OSError says what is wrong.
    """
    for first in range(0, len(pieces), PIECES_MAX):
        some = pieces[first : first + PIECES_MAX]
        written = os.writev(descriptor, some)
        if written < sum(map(len, some)):
            rest = memoryview(b"".join(some))[written:]
            while rest:
                rest = rest[os.write(descriptor, rest) :]


def write_all_at(descriptor: int, data: bytes, position: int) -> None:
    """Write all bytes of ``data`` at ``position`` of the file, in as many calls as that takes."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, position)
        rest = rest[written:]
        position += written


def sync_directory(directory: Path) -> None:
    """Make the creation, renaming and removal of files in ``directory`` durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(directory: Path) -> None:
    """Make a directory, and its parents, where they are missing; on disk when this returns."""
    if not directory.exists():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def erase_durably(path: Path) -> None:
    """Remove a file; gone from the disk when this returns."""
    path.unlink()
    sync_directory(path.parent)


def write_durably(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``; on disk when this returns. Makes its folder where that is missing.

    A power cut leaves the old content or the new one, never a part. A rename alone is not enough for that: a power cut
    may keep the new name and lose the bytes.
    """
    make_directory(path.parent)
    scratch = path.with_name(path.name + ".new")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.rename(path)
    sync_directory(path.parent)
