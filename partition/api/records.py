"""Records: the answers to appends, reads, trims and stages, and the writes that were refused."""

import base64
from typing import Any

import msgspec

from .topics import SlotHolder


class AppendAnswer(msgspec.Struct, frozen=True, gc=False):
    """The offsets at which a batch is stored. ``duplicate``: an earlier request stored the batch, at these offsets.

    Offsets and ``timestamp_ms`` (when the leader received it, Unix time) are None only for a duplicate that is proved
    stored and older than the remembered batches. ``leader_term`` is the term of the leader that decided.
    """

    topic: str
    partition: int
    base_offset: int | None
    last_offset: int | None
    duplicate: bool
    log_start: int
    timestamp_ms: int | None
    leader_term: int


PARTS = "application/vnd.stockade.parts"
"""Content type of batches for many partitions: a line of JSON that lists the parts, then their Arrow streams."""
PARTS_MAX = 256
"""Most parts of one request."""


class PartAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the answer to an append to many partitions: ``part`` is the place in the request's list, from 0.

    Either ``stored``, or a ``problem`` document.
    """

    part: int
    stored: AppendAnswer | None = None
    problem: dict[str, Any] | None = None


NEWS_PARTITIONS_MAX = 1_000
"""Most partitions of one request for news; their list has at most 64 KiB then, which a node's event loop reads itself.
"""


class News(msgspec.Struct, frozen=True):
    """The partitions of a topic from which a fetch may have something to tell, ascending."""

    topic: str
    partitions: list[int]


class Offsets(msgspec.Struct, frozen=True):
    """The offset that was asked for, -1 when no record qualifies; ``timestamp_ms`` of the record that was found.

    ``log_start <= offset <= log_end`` otherwise; ``log_end`` is the next offset to be written.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    log_start: int
    log_end: int


def text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """The member of a JSON object for bytes: text where they are UTF-8, else base64 under another name."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


class HeaderRow(msgspec.Struct, frozen=True):
    """A header of a record in JSON."""

    key: str
    value: str | None = None
    value_base64: str | None = None


class RecordRow(msgspec.Struct, frozen=True):
    """A record and its writer in JSON: key and value are text, or base64 where the bytes are not valid UTF-8."""

    offset: int
    timestamp_ms: int
    writer_epoch: int
    key: str | None = None
    value: str | None = None
    key_base64: str | None = None
    value_base64: str | None = None
    headers: list[HeaderRow] = []
    producer_id: int | None = None
    producer_epoch: int | None = None
    sequence: int | None = None


class TailAnswer(msgspec.Struct, frozen=True):
    """The last records of a partition, ascending, and its fencing epoch."""

    topic: str
    partition: int
    log_start: int
    log_end: int
    topic_epoch: int
    records: list[RecordRow]


class Trimmed(msgspec.Struct, frozen=True):
    """A partition's offsets after a trim."""

    topic: str
    partition: int
    log_start: int
    log_end: int


class GroupPosition(msgspec.Struct, frozen=True):
    """Where a group continues in a partition."""

    group: str
    offset: int


class PartitionContents(msgspec.Struct, frozen=True):
    """The contents of a partition, which a trim or its deletion would remove. ``stored_bytes`` are the bytes of its
    segments on one replica, whose disk has the records from ``local_start`` on; ``tiered_bytes`` of the log are in the
    tiered store. ``local_start`` and ``tiered_bytes`` are None from an older node.
    ``positions``: of the ``total`` groups that committed one, those that are furthest behind, the lowest first; only of
    groups that the caller may know.
    """

    topic: str
    partition: int
    log_start: int
    log_end: int
    stored_bytes: int
    total: int
    positions: list[GroupPosition]
    local_start: int | None = None
    tiered_bytes: int | None = None


class StageInfo(msgspec.Struct, frozen=True):
    """A stage of a partition: a batch beside the log. ``digest``: SHA-256 of the body and its media type.

    ``expires_in_ms`` None: it is kept until it is deleted. Offsets are None until it is appended.
    """

    stage: str
    records: int
    bytes: int
    digest: str
    kept: bool
    expires_in_ms: int | None
    base_offset: int | None
    last_offset: int | None


class WriteOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether an earlier request has stored a refused batch: committed, absent or unknown, then with a ``reason``."""

    state: str
    base_offset: int | None
    last_offset: int | None
    reason: str | None = None


class RefusedWrite(msgspec.Struct, frozen=True):
    """A write that a partition of the node refused. ``at_ms``: the node's wall clock.

    ``request`` is the ``instance`` of the problem document. The fields ``grant`` to ``sequence`` are from the request,
    None where it had none. The session is never shown. The fields ``current_epoch`` to ``outcome`` are from the
    refusal: the partition's fencing epoch, the holder of its slot, and whether the batch is stored. ``producer_name``
    and ``client_id`` are those of the grant, if the partition remembers it.
    """

    at_ms: int
    request: str
    topic: str
    partition: int
    code: str
    reason: str | None
    grant: str | None
    fence_epoch: int | None
    producer_id: int | None
    producer_epoch: int | None
    sequence: int | None
    current_epoch: int | None = None
    holder: SlotHolder | None = None
    outcome: WriteOutcome | None = None
    producer_name: str | None = None
    client_id: str | None = None


class RefusedWrites(msgspec.Struct, frozen=True):
    """The latest refused writes, the latest first. ``missing``: nodes that were asked and did not answer."""

    node_id: str
    refused_writes: list[RefusedWrite]
    missing: list[str] = []
