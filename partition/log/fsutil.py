"""Writes that reach the disk whole: no short writes, and folders and small files that survive a power cut.

Everything here blocks.

The log's files are opened by ``open_file``. A lack of descriptors (EMFILE, ENFILE) is no error of the disk: open(2)
takes the descriptor first (Linux, do_sys_openat2), so it has created, truncated and written nothing, and may be
repeated. The repetition gets one of the descriptors that ``keep_descriptors`` holds back. A write or a sync that
failed, and may have reached the disk in part, is never repeated. On a full disk, a write and the calls that make files
and folders continue with the room that space.py holds back.
"""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from .modes import DATA_MODE, FOLDER_MODE
from .space import make_room, with_space

PIECES_MAX = 1024
"""Most pieces that the kernel takes in one write (IOV_MAX)."""

DESCRIPTORS_KEPT = 64
"""Descriptors that ``keep_descriptors`` holds back by default, for files that the log, segments and checkpoints open
while the process has no others.
"""
Stamp = tuple[int, ...]
"""What ``stamp`` returns."""
_T = TypeVar("_T")
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_BROKEN = frozenset({errno.EROFS, errno.EIO, errno.ENXIO, errno.ENODEV, errno.EUCLEAN, errno.ESTALE})
_kept: list[int] = []
_kept_max = [0]


def keep_descriptors(count: int = DESCRIPTORS_KEPT) -> None:
    """Hold back ``count`` descriptors (0: none) of this process for ``open_file`` from now on, and replace those that
    are used. There is one such reserve for the whole process, since the limit of descriptors is the process's.
    """
    _kept_max[0] = count
    while len(_kept) > count:
        os.close(_kept.pop())
    _keep()


def open_file(path: Path | str, flags: int, mode: int = DATA_MODE) -> int:
    """Open a file as ``os.open`` does, with a descriptor that was held back if the process or the system has no other.
    Raises OSError, with EMFILE or ENFILE when those are used up, too.
    """
    return with_space(partial(_with_a_descriptor, partial(os.open, path, flags | os.O_CLOEXEC, mode)))


def open_to_read(path: Path | str) -> BinaryIO:
    """A file object to read a file from its start, opened by ``open_file``. Raises OSError."""
    return open(path, "rb", opener=open_file)


def stamp(path: Path | str) -> Stamp:
    """A value that changes when a file is written or replaced, or gets another mode; empty if it cannot be examined."""
    try:
        found = Path(path).stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def names_in(directory: Path) -> list[str]:
    """The names of the files in ``directory``, listed with a descriptor as ``open_file`` takes it. Raises OSError."""
    return _with_a_descriptor(partial(os.listdir, directory))


def _with_a_descriptor(opening: Callable[[], _T]) -> _T:
    """The result of ``opening``; if no descriptor is free, it is called again with one of the reserve. ``opening`` must
    change nothing before it has a descriptor.
    """
    while True:
        try:
            found = opening()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR or not _give_up():
                raise
        else:
            if len(_kept) < _kept_max[0]:
                _keep()
            return found


def _give_up() -> bool:
    """Close a descriptor that is held back; False if there is none. Threads may call it at the same time."""
    try:
        os.close(_kept.pop())
    except IndexError:
        return False
    return True


def _keep() -> None:
    """Hold back as many descriptors as are wanted, as far as the process has any."""
    try:
        while len(_kept) < _kept_max[0]:
            _kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno not in _NO_DESCRIPTOR:
            raise


def write_all(descriptor: int, pieces: Sequence[bytes]) -> None:
    """Write all pieces, one after the other, at the descriptor's position.

    A short write is followed by another one, which raises the OSError if the disk failed.
    """
    try:
        for first in range(0, len(pieces), PIECES_MAX):
            some = pieces[first : first + PIECES_MAX]
            try:
                written = os.writev(descriptor, some)
            except OSError as error:
                if not make_room(error):
                    raise
                written = 0
            if written < sum(map(len, some)):
                rest = memoryview(b"".join(some))[written:]
                while rest:
                    rest = rest[with_space(partial(os.write, descriptor, rest)) :]
    except OSError as error:
        name_file(error, descriptor)
        raise


def write_all_at(descriptor: int, data: bytes | memoryview, position: int) -> None:
    """Write all bytes of ``data`` at ``position`` of the file, in as many calls as that takes."""
    rest = memoryview(data)
    while rest:
        try:
            written = os.pwrite(descriptor, rest, position)
        except OSError as error:
            if not make_room(error):
                name_file(error, descriptor)
                raise
            continue
        rest = rest[written:]
        position += written


def sync(descriptor: int, *, data_only: bool = False) -> None:
    """Make a file durable; ``data_only``: its bytes and length, not its times. Raises OSError, which names the file."""
    try:
        if data_only:
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)
    except OSError as error:
        name_file(error, descriptor)
        raise


def name_file(error: OSError, descriptor: int) -> None:
    """Note the file in the error of a call that was given a descriptor. Only calls with a path note it themselves, and
    the node's last line should say which disk has failed.
    """
    with suppress(OSError):
        error.filename = error.filename or str(Path(f"/proc/self/fd/{descriptor}").readlink())


def why_refused(error: OSError) -> str:
    """The file that the disk refused, the reason, and what an operator looks at first. Blocks."""
    why = error.strerror or str(error) or repr(error)
    if error.errno in _NO_ROOM and has_no_inode(error.filename):
        why += ", as its file system has no inode left for another file (`df -i`), though it has free bytes"
    elif error.errno in _BROKEN:
        why += ". Look at the disk and the kernel's log before you start the node again"
    return why if error.filename is None else f"{error.filename}: {why}"


def has_no_inode(path: Path | str | None) -> bool:
    """Whether the file system of a path, which need not exist, has free bytes and no inode for another file. Blocks."""
    with suppress(OSError, StopIteration):
        whole = Path(path or ".").absolute()
        found = os.statvfs(next(each for each in (whole, *whole.parents) if each.exists()))
        is_used_up = found.f_files > 0 and not found.f_favail
        return is_used_up and found.f_bavail > 0  # some have as many inodes as there is room
    return False


def sync_directory(directory: Path) -> None:
    """Make the creation, renaming and removal of files in ``directory`` durable."""
    fd = open_file(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(fd)
    finally:
        os.close(fd)


def make_directory(directory: Path) -> None:
    """Make a directory and its parents if they are missing; they are on disk when this returns."""
    if not directory.exists():
        make_directory(directory.parent)
        with_space(partial(directory.mkdir, FOLDER_MODE, exist_ok=True))
        sync_directory(directory.parent)


def erase_durably(path: Path) -> None:
    """Remove a file; its name is gone from the disk when this returns."""
    path.unlink()
    sync_directory(path.parent)


def write_durably(path: Path, content: bytes, mode: int = DATA_MODE) -> None:
    """Replace the content of ``path``; the new one is on disk when this returns. Makes the folder if it is missing.
    The file has no more rights than ``mode``, whatever the umask.

    A power cut leaves the old content or the new one, never a part. A rename alone is not enough for that: a power cut
    may keep the new name and lose the bytes.
    """
    make_directory(path.parent)
    scratch = path.with_name(path.name + ".new")
    fd = open_file(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.fchmod(fd, os.fstat(fd).st_mode & mode)  # a process that died may have left the file, with other rights
        write_all(fd, [content])
        sync(fd)
    finally:
        os.close(fd)
    with_space(partial(scratch.rename, path))
    sync_directory(path.parent)
