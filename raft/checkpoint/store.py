"""Checkpoints on disk: what all of a group's log up to an index came to, so that a restart need not apply it again.

Each group has a folder. In it, ``checkpoint`` is one file, replaced as a whole, and ``files-<generation>`` is the
folder of the machine's own files, of which the checkpoint counts the beginnings. A checkpoint fetched from another node
comes with the next generation; the rename of ``checkpoint`` is what makes it count. Everything here blocks.
"""

import shutil
import struct
from pathlib import Path

import msgspec

from ..partition.checksum import crc32
from .configuration import Configuration
from .durable import make_directory, write_durably
from .machine import FileExtent
from .origin import Origin
from .refusal import DiskRefused
from .wal_files import sync_directory

_MAGIC = b"STOCKDCP"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQ")
"""Magic, version, CRC-32 of all that follows, its length."""


class CheckpointDamaged(DiskRefused):
    """A checkpoint, or a file that belongs to it, is missing or damaged."""


class Checkpoint(msgspec.Struct, frozen=True):
    """What ``term`` and ``configuration`` were at ``index``, the machine's state there, and where its files are."""

    group_id: int
    index: int
    term: int
    configuration: Configuration
    generation: int
    state: bytes
    files: tuple[FileExtent, ...]

    @property
    def origin(self) -> Origin:
        """What a log builds upon that goes on from here."""
        return Origin(self.index, self.term, self.configuration)


def encode(checkpoint: Checkpoint) -> bytes:
    """The content of a checkpoint's file."""
    body = msgspec.msgpack.encode(checkpoint)
    return _HEADER.pack(_MAGIC, _VERSION, crc32(body), len(body)) + body


def decode(content: bytes | bytearray) -> Checkpoint:
    """The checkpoint in a file. Raises ValueError, which says what is wrong."""
    if len(content) < _HEADER.size:
        raise ValueError(f"it ends after {len(content)} bytes")
    magic, version, crc, length = _HEADER.unpack_from(content)
    body = memoryview(content)[_HEADER.size :]
    if magic != _MAGIC:
        raise ValueError("it does not begin as a checkpoint does")
    if version != _VERSION:
        raise ValueError(f"another version of this software wrote it ({version} in place of {_VERSION})")
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

    def group_ids(self) -> set[int]:
        """The groups that have a folder."""
        return {int(path.name, 16) for path in self._root.glob("?" * 16)}

    @property
    def is_empty(self) -> bool:
        """Whether no group has a checkpoint: a folder alone promises nothing."""
        return not any(self.path(group_id).exists() for group_id in self.group_ids())

    def folder(self, group_id: int) -> Path:
        """A group's folder."""
        return self._root / f"{group_id:016x}"

    def path(self, group_id: int) -> Path:
        """The file of a group's checkpoint."""
        return self.folder(group_id) / "checkpoint"

    def files(self, group_id: int, generation: int) -> Path:
        """The folder of a machine's files."""
        return self.folder(group_id) / f"files-{generation}"

    def read(self, group_id: int) -> Checkpoint | None:
        """A group's checkpoint, None if it has none. Raises CheckpointDamaged."""
        path = self.path(group_id)
        try:
            checkpoint = decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise CheckpointDamaged(path, str(error)) from error
        if checkpoint.group_id != group_id:
            raise CheckpointDamaged(path, f"it is that of group {checkpoint.group_id}")
        return checkpoint

    def write(self, checkpoint: Checkpoint) -> None:
        """Make it the group's checkpoint. The bytes of its files must be on disk; here their names are made so."""
        folder = self.folder(checkpoint.group_id)
        for directory in (self.files(checkpoint.group_id, checkpoint.generation), folder, self._root):
            sync_directory(directory)
        write_durably(self.path(checkpoint.group_id), encode(checkpoint))

    def begin(self, group_id: int, generation: int) -> Path:
        """An empty folder for the files of a generation; what it held, if anything, goes."""
        directory = self.files(group_id, generation)
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
        return directory

    def tidy(self, group_id: int, generation: int | None) -> None:
        """Remove everything but the checkpoint and the files of this generation."""
        kept = {self.path(group_id).name, f"files-{generation}"}
        folder = self.folder(group_id)
        for path in folder.iterdir() if folder.exists() else ():
            if path.name not in kept:
                remove(path)

    def erase(self, group_id: int) -> None:
        """Remove all there is of a group; the checkpoint first."""
        self.path(group_id).unlink(missing_ok=True)
        shutil.rmtree(self.folder(group_id), ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; perhaps somebody removes it already."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()
