"""Checkpoints on disk: the state of a group's machine at an index, so that a restart need not apply the log up to it.

Each group has a folder. In it, ``checkpoint`` is one file, replaced as a whole, and ``files-<generation>`` is the
folder of the machine's own files; the checkpoint names them, and how many bytes of each belong to it. The files of a
checkpoint copied from another node get a new generation; the rename of ``checkpoint`` brings it into force. Everything
here blocks.
"""

import shutil
import struct
from functools import partial
from pathlib import Path

import msgspec

from ...partition.log.fsutil import make_directory, open_to_read, sync_directory, write_durably
from ...partition.log.modes import FOLDER_MODE
from ...partition.log.space import with_space
from ...partition.records.checksum import crc32
from ..log.configuration import Configuration
from ..log.origin import Origin
from ..machine import FileExtent
from ..wal.errors import DiskRefused, NewerDisk

_MAGIC = b"STOCKDCP"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQ")
"""Magic, version, CRC-32 of the body that follows, length of the body."""


class NewerVersion(ValueError):
    """The bytes have a version that this software does not know."""

    def __init__(self, version: int) -> None:
        super().__init__(f"newer software wrote it (version {version}; this software knows {_VERSION})")
        self.version: int = version


class CheckpointDamaged(DiskRefused):
    """A checkpoint, or a file that belongs to it, is missing or damaged."""


class Checkpoint(msgspec.Struct, frozen=True):
    """One checkpoint: the log's term and configuration at ``index``, the machine's state there, and the extents of its
    files in the folder of ``generation``.
    """

    group_id: int
    index: int
    term: int
    configuration: Configuration
    generation: int
    state: bytes
    files: tuple[FileExtent, ...]

    @property
    def origin(self) -> Origin:
        """The origin of a log that continues this checkpoint."""
        return Origin(self.index, self.term, self.configuration)


def encode(checkpoint: Checkpoint) -> bytes:
    """The content of the file ``checkpoint``."""
    body = msgspec.msgpack.encode(checkpoint)
    return _HEADER.pack(_MAGIC, _VERSION, crc32(body), len(body)) + body


def decode(content: bytes | bytearray) -> Checkpoint:
    """The inverse of ``encode``. Raises ValueError, whose text says what is wrong."""
    if len(content) < _HEADER.size:
        raise ValueError(f"it ends after {len(content)} bytes")
    magic, version, crc, length = _HEADER.unpack_from(content)
    body = memoryview(content)[_HEADER.size :]
    if magic != _MAGIC:
        raise ValueError("it does not begin as a checkpoint does")
    if version != _VERSION:
        raise NewerVersion(version)
    if len(body) != length:
        raise ValueError(f"it ends after {len(content)} bytes in place of {_HEADER.size + length}")
    if crc32(body) != crc:
        raise ValueError("its checksum does not match")
    return msgspec.msgpack.decode(body, type=Checkpoint)


class CheckpointStore:
    """The folders of all groups of a node."""

    def __init__(self, root: Path) -> None:
        """``root`` is created if absent."""
        self._root = root
        make_directory(root)

    def folder(self, group_id: int) -> Path:
        return self._root / f"{group_id:016x}"

    def path(self, group_id: int) -> Path:
        return self.folder(group_id) / "checkpoint"

    def files(self, group_id: int, generation: int) -> Path:
        return self.folder(group_id) / f"files-{generation}"

    def read(self, group_id: int) -> Checkpoint | None:
        """A group's checkpoint; None if it has none. Raises CheckpointDamaged, NewerDisk."""
        path = self.path(group_id)
        try:
            with open_to_read(path) as file:
                checkpoint = decode(file.read())
        except FileNotFoundError:
            return None
        except NewerVersion as newer:
            raise NewerDisk(path, newer.version, _VERSION) from newer
        except ValueError as error:
            raise CheckpointDamaged(path, str(error)) from error
        if checkpoint.group_id != group_id:
            raise CheckpointDamaged(path, f"it is that of group {checkpoint.group_id}")
        return checkpoint

    def write(self, checkpoint: Checkpoint) -> None:
        """Make this the checkpoint of its group, durably. Its files' bytes must be on disk, their names need not be."""
        folder = self.folder(checkpoint.group_id)
        for directory in (self.files(checkpoint.group_id, checkpoint.generation), folder, self._root):
            sync_directory(directory)
        write_durably(self.path(checkpoint.group_id), encode(checkpoint))

    def begin(self, group_id: int, generation: int) -> Path:
        """Make the folder for the files of a generation, and return it; old content is removed."""
        directory = self.files(group_id, generation)
        if directory.exists():
            shutil.rmtree(directory)
        with_space(partial(directory.parent.mkdir, FOLDER_MODE, exist_ok=True))
        with_space(partial(directory.mkdir, FOLDER_MODE))
        return directory

    def tidy(self, group_id: int, generation: int | None) -> None:
        """Remove all of the group's folder but the checkpoint and the files of ``generation``; None: all files."""
        kept = {self.path(group_id).name, f"files-{generation}"}
        folder = self.folder(group_id)
        for path in folder.iterdir() if folder.exists() else ():
            if path.name not in kept:
                remove(path)

    def erase(self, group_id: int) -> None:
        """Remove the group's folder; its checkpoint goes first, since that must not outlive the files it names."""
        self.path(group_id).unlink(missing_ok=True)
        shutil.rmtree(self.folder(group_id), ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content; another thread may be removing the folder at the same time."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()
