"""Decodes bodies of appends, in four forms, to one batch.

INVALID_REQUEST is about the body as a whole, or an unknown field; INVALID_RECORD is about one record, which it names by
index. ``partition.records``, the only place that makes batches, refuses a batch that is too large or not Arrow.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...partition.errors import InvalidRecord, InvalidRequest, MessageTooLarge
from ...partition.records.batch import (
    HEADERS_MAX,
    RECORDS_MAX,
    Batch,
    Header,
    batch_from_columns,
    batch_from_stream,
    batch_of_value,
    decode_batch,
)
from ..codec import json_codec
from ..codec.media import ARROW, JSON, NDJSON, TEXT
from ..codec.parameters import INT64_MAX

FORMS = (JSON, NDJSON, TEXT, ARROW)
"""Content types of an append."""

_BODY_BYTES_EXTRA = 64 * 1024
_INDEX = re.compile(r"^\[(\d+)\]\.?")
_BLANK = b" \t\r\n"


class Columns(NamedTuple):
    """Records by column: each list has an item for each record; None is a null."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps_ms: list[int | None]
    headers: list[Sequence[Header] | None]

    def pick(self, indices: Sequence[int]) -> "Columns":
        """The records with these indices."""
        return Columns(
            [self.keys[i] for i in indices],
            [self.values[i] for i in indices],
            [self.timestamps_ms[i] for i in indices],
            [self.headers[i] for i in indices],
        )


class _HeaderBody(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: str | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET


class _RecordBody(msgspec.Struct, forbid_unknown_fields=True):
    key: str | UnsetType | None = UNSET
    key_base64: str | UnsetType = UNSET
    value: str | UnsetType | None = UNSET
    value_base64: str | UnsetType = UNSET
    value_json: Any = UNSET
    timestamp_ms: Annotated[int, Meta(ge=0, le=INT64_MAX)] | UnsetType = UNSET
    headers: Annotated[list[_HeaderBody], Meta(max_length=HEADERS_MAX)] | UnsetType = UNSET


class _AppendBody(msgspec.Struct, forbid_unknown_fields=True):
    records: list[Any]


def body_bytes_max(batch_bytes_max: int) -> int:
    """Most bytes of an append's body for batches of ``batch_bytes_max``: text forms may be larger than their batch."""
    return 2 * batch_bytes_max + _BODY_BYTES_EXTRA


def read_batch(form: str, body: bytes, *, now_ms: int, batch_bytes_max: int) -> Batch:
    """The batch of a body in one of FORMS. Raises InvalidRequest, InvalidRecord, CorruptMessage,
    MessageTooLarge.
    """
    if form == ARROW:
        return batch_from_stream(body, now_ms=now_ms, batch_bytes_max=batch_bytes_max)
    if form == TEXT and body and b"\n" not in body:
        return batch_of_value(body, now_ms=now_ms, batch_bytes_max=batch_bytes_max)
    columns = read_columns(form, body, now_ms=now_ms, bytes_max=0)
    return batch_from_columns(*columns, now_ms=now_ms, batch_bytes_max=batch_bytes_max)


def read_columns(form: str, body: bytes, *, now_ms: int, bytes_max: int) -> Columns:
    """The records of a body in one of FORMS, at least one. ``bytes_max`` bounds what an Arrow body may unpack
    to. Raises as ``read_batch`` does.
    """
    if form == ARROW:
        return _arrow_columns(batch_from_stream(body, now_ms=now_ms, batch_bytes_max=bytes_max))
    if form == TEXT:
        columns = _text_columns(body)
    else:
        columns = _json_columns(json_codec.read(body, _AppendBody).records if form == JSON else _json_lines(body))
    if not columns.values:
        raise InvalidRecord("the batch is empty")
    return columns


def _arrow_columns(batch: Batch) -> Columns:
    rows = decode_batch(batch.message)
    headers: list[Sequence[Header] | None] = [
        None if row is None else [(header["key"], header["value"]) for header in row]
        for row in rows.column("headers").to_pylist()
    ]
    timestamps = rows.column("timestamp").cast("int64").to_pylist()
    return Columns(rows.column("key").to_pylist(), rows.column("value").to_pylist(), timestamps, headers)


def _text_columns(body: bytes) -> Columns:
    _check_count(body.count(b"\n"))
    *lines, rest = body.split(b"\n")
    values: list[bytes | None] = [line.removesuffix(b"\r") for line in lines]
    if rest:  # has no line end, so a CR is a part of the value
        values.append(rest)
    count = len(values)
    _check_count(count)
    return Columns([None] * count, values, [None] * count, [None] * count)


def _json_lines(body: bytes) -> list[Any]:
    records: list[Any] = []
    for line in body.split(b"\n"):
        if line.strip(_BLANK):
            _check_count(len(records) + 1)
            try:
                records.append(json_codec.parse(line))
            except json_codec.NotJson as error:
                raise InvalidRecord(f"the line is not JSON: {error}", len(records)) from error
    return records


def _json_columns(values: list[Any]) -> Columns:
    _check_count(len(values))
    try:
        records = msgspec.convert(values, list[_RecordBody])
    except msgspec.ValidationError as error:
        raise _explained(error) from error
    columns = Columns([], [], [], [])
    for index, record in enumerate(records):
        try:
            columns.keys.append(_key(record))
            columns.values.append(_value(record))
            columns.headers.append(_headers(record))
        except ValueError as error:
            raise InvalidRecord(str(error), index) from error
        columns.timestamps_ms.append(None if record.timestamp_ms is UNSET else record.timestamp_ms)
    return columns


def _explained(error: msgspec.ValidationError) -> InvalidRecord | InvalidRequest:
    place, problem = json_codec.explain(error)
    match = _INDEX.match(place)
    index = int(match.group(1)) if match else None
    field = _INDEX.sub("", place)
    if "unknown field" in problem:
        return InvalidRequest(f"records[{index}]{field and '.' + field}: {problem}")
    return InvalidRecord(f"{field}: {problem}" if field else problem, index)


def _key(record: _RecordBody) -> bytes | None:
    if record.key_base64 is not UNSET:
        _only_one("key and key_base64", record.key)
        return _from_base64("key_base64", record.key_base64)
    return record.key.encode() if isinstance(record.key, str) else None


def _value(record: _RecordBody) -> bytes | None:
    if record.value_json is not UNSET:
        _only_one("value_json and another form of the value", record.value, record.value_base64)
        return json_codec.dump(record.value_json)
    if isinstance(record.value_base64, str):
        _only_one("value and value_base64", record.value)
        return _from_base64("value_base64", record.value_base64)
    return record.value.encode() if isinstance(record.value, str) else None


def _headers(record: _RecordBody) -> list[Header] | None:
    if record.headers is UNSET:
        return None
    return [(header.key, _header_value(header)) for header in record.headers]


def _header_value(header: _HeaderBody) -> bytes:
    if header.value_base64 is not UNSET:
        _only_one("value and value_base64 of a header", header.value)
        return _from_base64("value_base64 of a header", header.value_base64)
    if header.value is UNSET:
        raise ValueError("a header has neither value nor value_base64")
    return header.value.encode()


def _only_one(names: str, *others: object) -> None:
    if any(other is not UNSET for other in others):
        raise ValueError(f"{names} are both present")


def _from_base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{name} is not padded base64: {error}") from error


def _check_count(count: int) -> None:
    if count > RECORDS_MAX:
        raise MessageTooLarge(limit=RECORDS_MAX, unit="records")


def positions(partition_of: Iterable[int]) -> dict[int, list[int]]:
    """The indices of the records for each partition, ascending by partition. ``partition_of``: the partition of each
    record, in order.
    """
    found: dict[int, list[int]] = {}
    for index, partition in enumerate(partition_of):
        found.setdefault(partition, []).append(index)
    return dict(sorted(found.items()))
