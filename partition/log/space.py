"""Room that a node holds back on its disk, so that a full disk does not stop it.

A ``Reserve`` is a file of blocks without content. When a call finds the disk full (ENOSPC, or EDQUOT), ``make_room``
gives a reserve up and the call is repeated. That is right only for calls that may be repeated: open(2), mkdir(2),
link(2), fallocate(2), rename(2), and write(2) at the same position. They fail before they have an effect on disk, or a
repetition has the same effect. A sync is never repeated: a kernel that reports a full disk only there (some network
file systems do) may have dropped the pages that it could not write, and the node stops.
"""

import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from .modes import SECRET_MODE

_T = TypeVar("_T")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_BLOCK_BYTES = 512  # of st_blocks, whatever the file system's are
_held: list["Reserve"] = []  # the reserves of this process that have room to give up

_log = logging.getLogger(__name__)


class Reserve:
    """A file of ``size`` bytes that is held open, so that giving it up takes no descriptor and no room."""

    def __init__(self, path: Path, size: int) -> None:
        """Open the file; ``hold`` takes the room. Raises OSError if the file cannot be opened."""
        self.is_spent: bool = False
        """Whether the reserve was given up, and ``hold`` has not taken the room again since."""
        self._path = path
        self._size = size
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, SECRET_MODE)

    @property
    def is_held(self) -> bool:
        """Whether there is room to give up."""
        return self in _held

    @property
    def has_blocks(self) -> bool:
        """Whether the file has all its room already, as an earlier process of the node left it. Raises OSError."""
        return 0 < self._size <= os.fstat(self._descriptor).st_blocks * _BLOCK_BYTES

    def hold(self) -> bool:
        """Take the room, unless it is held already. Returns whether it is held now: not if the disk is full. Blocks."""
        if self.is_held or not self._size:
            return self.is_held
        try:
            os.ftruncate(self._descriptor, min(self._size, os.fstat(self._descriptor).st_size))
            os.posix_fallocate(self._descriptor, 0, self._size)
        except OSError as error:
            self._empty()
            if error.errno not in _FULL:
                raise
            return False
        self.is_spent = False
        _held.append(self)
        return True

    def give_up(self) -> None:
        """Free the room, and sync that, as some file systems free blocks only then. Raises OSError."""
        _log.critical("the disk of %s is full: the %d bytes held back there are used now", self._path, self._size)
        self.is_spent = True
        self._empty()

    def close(self) -> None:
        """Keep the file as it is, and give nothing up any more."""
        with suppress(ValueError):
            _held.remove(self)
        os.close(self._descriptor)

    def _empty(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.fsync(self._descriptor)


def make_room(error: OSError) -> bool:
    """Give a reserve up if ``error`` says that the disk is full. Returns whether the failed call may be repeated: not
    after another error, or when no reserve is left. Threads may call this at the same time.
    """
    try:
        reserve = _held.pop() if error.errno in _FULL else None
    except IndexError:
        reserve = None
    if reserve is None:
        return False
    reserve.give_up()
    return True


def with_space(call: Callable[[], _T]) -> _T:
    """The result of ``call``, which is repeated with the room of a reserve if the disk is full. Raises OSError."""
    while True:
        try:
            return call()
        except OSError as error:
            if not make_room(error):
                raise
