"""The last records of a partition and their writers; keys, values and headers are bytes, as a consumer gets them."""

import base64
from dataclasses import dataclass

from ...partition.api.records import RecordRow, TailAnswer


@dataclass(frozen=True, slots=True)
class TailRecord:
    """A record of the tail and its writer; the other fields as those of a ConsumedRecord.

    ``writer_epoch``: the partition's fencing epoch when the record was written. ``producer_id``, ``producer_epoch`` and
    ``sequence`` are None when the append named no producer.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    writer_epoch: int
    producer_id: int | None
    producer_epoch: int | None
    sequence: int | None


@dataclass(frozen=True, slots=True)
class Tail:
    """The last records of a partition, ascending: after an error a writer sees there what is stored.

    ``topic_epoch``: the partition's fencing epoch. The log has the offsets ``log_start <= offset < log_end``.
    """

    topic: str
    partition: int
    log_start: int
    log_end: int
    topic_epoch: int
    records: list[TailRecord]


def tail_of(answer: TailAnswer) -> Tail:
    """The tail that a node answered in JSON."""
    records = [_record(answer, row) for row in answer.records]
    return Tail(answer.topic, answer.partition, answer.log_start, answer.log_end, answer.topic_epoch, records)


def _record(answer: TailAnswer, row: RecordRow) -> TailRecord:
    return TailRecord(
        answer.topic,
        answer.partition,
        row.offset,
        row.timestamp_ms,
        _bytes(row.key, row.key_base64),
        _bytes(row.value, row.value_base64),
        tuple((header.key, _bytes(header.value, header.value_base64) or b"") for header in row.headers),
        row.writer_epoch,
        row.producer_id,
        row.producer_epoch,
        row.sequence,
    )


def _bytes(text: str | None, encoded: str | None) -> bytes | None:
    if encoded is not None:
        return base64.b64decode(encoded)
    return None if text is None else text.encode()
