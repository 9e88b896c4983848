"""The body of an append to many partitions: a line of JSON that lists the parts, then their Arrow streams in a row.

Why this format: the line can be written in a shell and read by any JSON parser; each stream has the form that the route
of one partition takes, so one reader serves both; and the lengths in the line locate the streams without any of their
bytes being read or copied. A frame for each part would have to be parsed in turn, and one Arrow stream for all parts
would join batches that are stored apart.

The request as a whole is judged here, before anything is proposed: a request that lists a partition twice, or whose
lengths do not add up to its bytes, is refused as a whole.
"""

from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...cluster.model import Conditions
from ...partition.api.records import PARTS_MAX
from ...partition.api.topics import BATCH_BYTES_MAX
from ...partition.commands import (
    MESSAGE_ID_CHARACTERS_MAX,
    PRODUCER_EPOCH_MAX,
    SEQUENCE_MODULUS,
    TOKEN_CHARACTERS_MAX,
    Stamp,
    Token,
)
from ...partition.errors import InvalidRequest, MessageTooLarge
from ..codec.json_codec import or_none
from ..codec.parameters import INT64_MAX
from ..codec.schemas import Partition, TopicName
from ..reading.decode import body_bytes_max

LIST_BYTES_MAX = 256 * 1024
"""Most bytes of the first line, its line feed included: 1 KiB for each part."""
PARTS_BODY_BYTES_MAX = body_bytes_max(BATCH_BYTES_MAX)
"""Most bytes of a body, as of an append to one partition of any topic."""

_Natural = Annotated[int, Meta(ge=0, le=INT64_MAX)]
_Unsigned = Annotated[int, Meta(ge=0)]  # json_codec.parse lets no integer beyond 64 bits through


_TokenText = Annotated[str, Meta(max_length=TOKEN_CHARACTERS_MAX)]


class PartProducer(msgspec.Struct, forbid_unknown_fields=True):
    """The stamp of a part. The route of one partition has it in Stockade-Producer-Id, -Epoch and -Seq."""

    id: _Natural
    epoch: Annotated[int, Meta(ge=0, le=PRODUCER_EPOCH_MAX)]
    seq: Annotated[int, Meta(ge=0, le=SEQUENCE_MODULUS - 1)]


class PartFence(msgspec.Struct, forbid_unknown_fields=True):
    """The fencing token of a part. On the route of one partition its fields are headers: Stockade-Fence-Grant,
    Stockade-Fence-Epoch and Stockade-Session.
    """

    grant: _TokenText
    epoch: _Unsigned
    session: _TokenText


class PartEntry(msgspec.Struct, forbid_unknown_fields=True):
    """The entry of one part in the first line; ``bytes`` is the length of its Arrow stream."""

    topic: TopicName
    partition: Partition
    bytes: Annotated[int, Meta(ge=1, le=PARTS_BODY_BYTES_MAX)]
    topic_id: _Natural | UnsetType = UNSET
    producer: PartProducer | UnsetType = UNSET
    fence: PartFence | UnsetType = UNSET
    if_log_end: _Natural | UnsetType = UNSET
    message_id: Annotated[str, Meta(min_length=1, max_length=MESSAGE_ID_CHARACTERS_MAX)] | UnsetType = UNSET
    fence_epoch: _Unsigned | UnsetType = UNSET

    def conditions(self, principal: str) -> Conditions:
        """The conditions on the append of this part, in a request of ``principal``."""
        producer, fence = or_none(self.producer), or_none(self.fence)
        return Conditions(
            topic_id=or_none(self.topic_id),
            token=None if fence is None else Token(fence.grant, fence.epoch, fence.session),
            stamp=None if producer is None else Stamp(producer.id, producer.epoch, producer.seq),
            if_log_end=or_none(self.if_log_end),
            message_id=or_none(self.message_id),
            fence_epoch=or_none(self.fence_epoch),
            principal=principal,
        )


class PartList(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of the body."""

    version: Literal[1]
    parts: Annotated[list[PartEntry], Meta(min_length=1)]


class Part(NamedTuple):
    """A part: the batch for one partition, not read yet. ``stream`` is a view of the body, not a copy."""

    topic: str
    partition: int
    conditions: Conditions
    stream: memoryview


def list_of(body: bytes) -> bytes:
    """The first line of a body: a PartList as JSON. Raises InvalidRequest."""
    end = body.find(b"\n", 0, LIST_BYTES_MAX)
    if end < 0:
        raise InvalidRequest(f"body: no line of JSON within the first {LIST_BYTES_MAX} bytes")
    return body[:end]


def parts_of(body: bytes, listed: PartList, principal: str) -> list[Part]:
    """The parts of a body; ``listed`` is its first line, ``principal`` its sender. Raises InvalidRequest,
    MessageTooLarge.
    """
    entries = listed.parts
    if len(entries) > PARTS_MAX:
        raise MessageTooLarge(limit=PARTS_MAX, unit="parts")
    if len({(entry.topic, entry.partition) for entry in entries}) < len(entries):
        raise InvalidRequest("parts: a partition occurs twice")
    start = body.index(b"\n") + 1
    size = sum(entry.bytes for entry in entries)
    if size != len(body) - start:
        raise InvalidRequest(f"body: {len(body) - start} bytes follow the first line, and its parts have {size}")
    view, parts = memoryview(body), []
    for entry in entries:
        parts.append(Part(entry.topic, entry.partition, entry.conditions(principal), view[start : start + entry.bytes]))
        start += entry.bytes
    return parts
