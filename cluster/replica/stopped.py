"""The partitions on the disk of a stopped node, read without a change of that disk.

The commands behind a partition's checkpoint are applied as on a node, so what was refused there is refused here: an
append of a writer that was fenced stores nothing. What they bring is in a scratch folder; segments are read where they
are.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec
import pyarrow as pa

from ...partition.api.topics import TopicConfig
from ...partition.config import PartitionConfig
from ...partition.durable.stored_machine import StoredMachine
from ...partition.log.image import ImageDamaged
from ...partition.log.segments import SegmentLog
from ...partition.records.batch import decode_batch
from ...partition.records.checksum import crc32
from ...partition.state.machine import PartitionMachine
from ...raft.stopped import StoppedGroup, StoppedNode
from ...raft.wal.errors import DiskRefused
from ..features import SOFTWARE
from .replica_manager import Assignment

READ_BYTES = 1024 * 1024
"""Bytes of records that are read from the disk at a time."""


class StoppedPartition:
    """A partition as the disk has it, with all commands of its log applied, known to be committed or not."""

    topic: str
    topic_id: int
    partition: int
    machine: PartitionMachine
    log: SegmentLog
    first: int
    """The first offset of a record on this disk: the log's start, unless older records are in the tiered store only."""
    known_end: int
    """Records below this offset are known to be committed; those from it on may be."""
    end: tuple[int, int]
    """(term, index) of the last entry of the group's log: of two disks, the greater one is more up to date."""

    def __init__(self, node: StoppedNode, assignment: Assignment, group: StoppedGroup, scratch: Path) -> None:
        """Blocks. Raises DiskRefused, OSError."""
        self.topic, self.topic_id, self.partition = assignment.topic, assignment.topic_id, assignment.partition
        self.end = group.end
        self.log = SegmentLog()
        stored = StoredMachine(PartitionConfig(assignment.topic_id), self.log)
        self.machine = stored.machine
        if group.checkpoint is None:
            stored.start(scratch)
        else:
            try:
                stored.restore_beside(group.files, group.checkpoint.state, group.checkpoint.files, scratch)
            except (ImageDamaged, FileNotFoundError) as error:
                raise DiskRefused(group.files, str(error)) from error
        committed_end = self.log.log_end
        for command in node.commands(group):
            stored.apply(*command)
        self.known_end = self.log.log_end if group.is_alone else committed_end
        self.log.close()
        self.first = max(self.log.log_start, self.log.local_start)

    def records(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The records with ``start <= offset < stop``, where ``start`` is on this disk and ``stop`` is at most
        ``log.log_end``. Blocks. Raises DiskRefused, OSError.
        """
        at = start
        while at < stop:
            found = self.log.read(at, READ_BYTES)
            for stored, message in zip(found.batches, found.messages(), strict=True):
                if crc32(message) != stored.crc:
                    raise DiskRefused(Path(stored.segment), f"the batch at offset {stored.base_offset} is damaged")
                if at < stop:
                    yield decode_batch(message).slice(at - stored.base_offset, stop - at)
                at = stored.next_offset


class StoppedPartitions:
    """The partitions on the disk of a stopped node, in ``with``, by topic and partition.

    ``faults``: damage that concerns all of them, or one that is not known for that reason.
    """

    def __init__(self, data: Path) -> None:
        """Raises WalLocked, DiskRefused, OSError."""
        self.faults: list[str] = []
        notes: list[Assignment] = []
        for path in sorted((data / "partitions").glob("*/replica.json")):
            try:
                note = msgspec.json.decode(path.read_bytes(), type=Assignment)
                if note.group_id != int(path.parent.name, 16):
                    raise ValueError(f"it is of the group {note.group_id:016x}")
                notes.append(note)
            except (ValueError, OSError) as error:
                self.faults.append(f"{path}: damaged ({error}), so it is not known which partition is in this folder")
        newest = {note.topic: note.topic_id for note in sorted(notes, key=lambda note: note.topic_id)}
        # Of two topics with one name the older one was deleted.
        self._notes = {(each.topic, each.partition): each for each in notes if each.topic_id == newest[each.topic]}
        self._node = StoppedNode(data, SOFTWARE)
        if (fault := self._node.fault) is not None:
            text = f"{fault.path}: {fault.fault}" if isinstance(fault, DiskRefused) else str(fault)
            self.faults.append(f"{text}; what the log has behind that could not be read, of any partition")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._node.__exit__(None, None, None)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(sorted(self._notes))

    def definition(self, topic: str) -> tuple[TopicConfig, int]:
        """The settings of a topic, and how many partitions it has, as far as this disk shows."""
        notes = [note for (name, _), note in self._notes.items() if name == topic]
        return max(notes, key=lambda note: note.config_order).config, 1 + max(note.partition for note in notes)

    def open(self, topic: str, partition: int, scratch: Path) -> StoppedPartition:
        """Read a partition; the empty folder ``scratch`` has to stay until its records were read. Blocks. Raises
        DiskRefused, OSError.
        """
        note = self._notes[topic, partition]
        group = self._node.group(note.group_id, note.founders)
        return StoppedPartition(self._node, note, group, scratch)
