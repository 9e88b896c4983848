"""The manifest of a backup: all that the backup has, with digests and offsets. JSON, for programs of any language.

Each manifest is complete by itself: that of an incremental backup also names the files of earlier backups that it uses.
The manifest is written last, so a backup that was cut short leaves none.
"""

from typing import Any

import msgspec

from ...partition.api.principals import PrincipalQuota
from ...partition.api.topics import TopicConfig

VERSION = 1


class Damaged(Exception):
    """A backup differs from its manifest; or its manifest is missing or cannot be read."""


class Missing(Damaged):
    """A file that a backup needs is not there."""


class DataFile(msgspec.Struct, frozen=True):
    """An Arrow stream with the records of ``first_offset <= offset < end_offset``, one row each, in the order of the
    offsets. ``path`` is relative to the backup's place; ``bytes`` and ``sha256`` are the file's.
    ``timestamp_ms_min`` and ``timestamp_ms_max``: the least and the greatest timestamp of its records.
    """

    path: str
    first_offset: int
    end_offset: int
    bytes: int
    sha256: str
    timestamp_ms_min: int
    timestamp_ms_max: int


class PartitionBackup(msgspec.Struct, frozen=True):
    """The records of a partition from ``first_offset`` (log_start) up to ``end_offset`` (log_end), exclusive.
    ``topic_epoch``: its fencing epoch, for the record; it is not restored.
    """

    partition: int
    first_offset: int
    end_offset: int
    topic_epoch: int | None
    files: list[DataFile]


class TopicBackup(msgspec.Struct, frozen=True):
    """A topic with its settings; ``partitions[k]`` is partition k."""

    topic: str
    topic_id: int
    replication_factor: int
    sealed: bool
    config: TopicConfig
    partitions: list[PartitionBackup]


class PositionBackup(msgspec.Struct, frozen=True):
    """The next offset that a group reads from a partition."""

    group: str
    topic: str
    partition: int
    offset: int
    metadata: str | None


class PrincipalBackup(msgspec.Struct, frozen=True):
    """A principal of the cluster, not of a node's configuration; without its tokens: nodes never tell their hashes."""

    principal: str
    rights: list[str]
    certificates: list[str]
    subjects: list[str]
    quota: PrincipalQuota
    tokens: int
    """How many tokens the principal had."""


class Manifest(msgspec.Struct, frozen=True):
    """The manifest of one backup. The log ends of the partitions were read between ``started_ms`` and ``cut_ms``; the
    backup has what was committed by then, and was complete at ``ended_ms``. Times are those of the machine that made
    it, in ms since 1970.
    """

    name: str
    cluster_id: str
    software: str
    started_ms: int
    cut_ms: int
    ended_ms: int
    topics: list[TopicBackup]
    positions: list[PositionBackup]
    left_out: list[str]
    """Topics that were deleted while the backup was made."""
    version: int = VERSION
    has_digest: bool = False
    """Whether the file NAME.json.sha256 beside the manifest has its SHA-256."""
    principals: list[PrincipalBackup] = []
    copied_again: list[str] = []
    """Paths of files of earlier backups that were missing or damaged: their records were copied once more."""
    deleted: list[str] = []
    """Topics of the previous backup that were deleted since; other topics may have their names now."""
    positions_left_out: int = 0
    """Positions of groups that the partitions have and this backup lacks: the caller may not see those groups, or a
    partition has more positions than it lists.
    """

    @property
    def files(self) -> list[tuple[str, DataFile]]:
        """Every file, with the topic and partition that it belongs to."""
        return [
            (f"{topic.topic}/{partition.partition}", file)
            for topic in self.topics
            for partition in topic.partitions
            for file in partition.files
        ]

    @property
    def records(self) -> int:
        """How many records the backup has."""
        return sum(each.end_offset - each.first_offset for topic in self.topics for each in topic.partitions)

    @property
    def size(self) -> int:
        """Bytes of all files that the manifest names."""
        return sum(file.bytes for _, file in self.files)


class _Versioned(msgspec.Struct):
    version: Any = None


def encode(manifest: Manifest) -> bytes:
    """The manifest as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode(content: bytes, name: str) -> Manifest:
    """The manifest in the content of a file. Raises Damaged. ``name`` is for messages."""
    try:
        version = msgspec.json.decode(content, type=_Versioned).version
        if version != VERSION:
            raise Damaged(f"manifest {name} has version {version}; this software reads version {VERSION}")
        found = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise Damaged(f"manifest {name} cannot be read: {error}") from error
    if "/" in found.name or any(not _is_inside(file.path) for _, file in found.files):
        raise Damaged(f"manifest {name} names a file outside of its place")
    return found


def _is_inside(path: str) -> bool:
    """Whether a path leads to a file below the place, wherever that is: who may write there has only that to give."""
    return not path.startswith("/") and ".." not in path.split("/")
