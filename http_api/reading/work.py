"""Orders to read a body, and the function that carries them out, on the event loop or in a process beside the node."""

from importlib import import_module
from typing import Any

import msgspec

from ...partition.errors import StockadeError, revive
from ...partition.partitioner import partition_for_key
from ...partition.records.batch import Batch, batch_from_columns, unpacked
from ..codec import json_codec
from ..codec.media import ARROW, JSON, TEXT
from .decode import body_bytes_max, positions, read_batch, read_columns

INLINE_BYTES_MAX = 64 * 1024
"""A larger body is not parsed on the event loop if its parser makes an object of each record, or holds the interpreter
for long: JSON, NDJSON, and bodies that are split by key.
"""
INLINE_PIECES_MAX = 8192
"""A text with more pieces (lines, commas, opening brackets) is not parsed on the loop: each may be an object (1 us)."""
INLINE_ARROW_BYTES_MAX = 4 * 1024 * 1024
"""An Arrow body that unpacks to more is not read on the loop: 13 KB may become 16 MiB; 4 MiB, by columns, take 5 ms."""
INLINE_SPLIT_ROWS_MAX = 4096
"""An Arrow body of more records is not split by key on the loop, because a split handles records one by one."""
INLINE_SPLIT_BYTES_MAX = 256 * 1024
"""An Arrow body that unpacks to more is not split by key on the loop, because each 8 bytes may be a header."""


def is_light(form: str, body: bytes) -> bool:
    """Whether parsing a body of text or JSON takes little time, whatever it holds. ``form``: any but Arrow."""
    if form == TEXT:
        return body.count(b"\n") <= INLINE_PIECES_MAX
    if len(body) > INLINE_BYTES_MAX:
        return False
    return len(body) <= INLINE_PIECES_MAX or sum(map(body.count, (b"\n", b",", b"[", b"{"))) <= INLINE_PIECES_MAX


def is_light_arrow(body: bytes | memoryview, batch_bytes_max: int) -> bool:
    """Whether reading an Arrow body takes little time; a batch of more than ``batch_bytes_max`` bytes is refused."""
    return batch_bytes_max <= INLINE_ARROW_BYTES_MAX or unpacked(body).uncompressed <= INLINE_ARROW_BYTES_MAX


class ReadBatch(msgspec.Struct, frozen=True, tag="batch"):
    """The order to read the batch of an append to one partition; the fields are arguments of ``decode.read_batch``."""

    form: str
    now_ms: int
    batch_bytes_max: int

    def is_light(self, body: bytes) -> bool:
        """Whether the order may be carried out on the event loop, whatever the body holds."""
        if self.form != ARROW:
            return is_light(self.form, body)
        return is_light_arrow(body, self.batch_bytes_max)


class SplitBatches(msgspec.Struct, frozen=True, tag="split"):
    """The order to split the body of an append by key to a topic with ``partitions`` partitions; records without a key
    go to partition ``keyless``.
    """

    form: str
    now_ms: int
    batch_bytes_max: int
    partitions: int
    keyless: int

    def is_light(self, body: bytes) -> bool:
        """As ``ReadBatch.is_light``, but with lower bounds, because a split handles records one by one in any form."""
        if len(body) > INLINE_BYTES_MAX or self.form != ARROW:
            return len(body) <= INLINE_BYTES_MAX and is_light(self.form, body)
        found = unpacked(body)
        return found.rows <= INLINE_SPLIT_ROWS_MAX and found.uncompressed <= INLINE_SPLIT_BYTES_MAX


class ReadJson(msgspec.Struct, frozen=True, tag="json"):
    """The order to read JSON as a struct of this package, named ``module:class``."""

    shape: str

    def is_light(self, body: bytes) -> bool:
        """As ``ReadBatch.is_light``."""
        return is_light(JSON, body)


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The answer that a body was refused, with the parts of the StockadeError."""

    code: str
    detail: str
    fields: dict[str, Any]

    def error(self) -> StockadeError:
        """The refusal, to be raised."""
        return revive(self.code, self.detail, self.fields)


class BatchRead(msgspec.Struct, frozen=True, tag="batch_read"):
    """The answer to a ReadBatch."""

    batch: Batch


class SplitPart(msgspec.Struct, frozen=True):
    """The records for one partition: their indexes in the body, and their batch or its refusal."""

    partition: int
    records: list[int]
    batch: Batch | None
    refusal: Refused | None = None


class SplitRead(msgspec.Struct, frozen=True, tag="split_read"):
    """The answer to a SplitBatches: parts ascending by partition, and whether any record had no key."""

    parts: list[SplitPart]
    has_keyless: bool


class JsonRead(msgspec.Struct, frozen=True, tag="json_read"):
    """The answer to a ReadJson: the struct as MessagePack."""

    value: bytes


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The answer of a process that met a bug; ``text`` is the traceback."""

    text: str


Order = ReadBatch | SplitBatches | ReadJson
Answer = BatchRead | SplitRead | JsonRead | Refused | Failed


def do(order: Order, body: bytes) -> BatchRead | SplitRead | JsonRead:
    """Carry out an order on a body. Raises the refusals of the parsers."""
    match order:
        case ReadBatch():
            batch = read_batch(order.form, body, now_ms=order.now_ms, batch_bytes_max=order.batch_bytes_max)
            return BatchRead(batch)
        case SplitBatches():
            return _split(order, body)
        case ReadJson():
            return JsonRead(msgspec.msgpack.encode(json_codec.read(body, _shape(order.shape)), enc_hook=_number))


def refused(error: StockadeError) -> Refused:
    """A refusal as an answer that can be sent between processes."""
    return Refused(error.code, error.detail, error.fields)


def name_of(shape: type[Any]) -> str:
    """The name ``module:class`` of a struct, for ReadJson."""
    return f"{shape.__module__}:{shape.__qualname__}"


def _shape(name: str) -> type[Any]:
    module, _, qualname = name.partition(":")
    found: type[Any] = getattr(import_module(module), qualname)
    return found


def _number(fragment: Any) -> float:
    """Encode a number that json_codec keeps as text, in a field of type Any, as a float: its later check refuses it."""
    return float(json_codec.dump(fragment))


def _split(order: SplitBatches, body: bytes) -> SplitRead:
    bytes_max = body_bytes_max(order.batch_bytes_max)
    columns = read_columns(order.form, body, now_ms=order.now_ms, bytes_max=bytes_max)
    places = positions(
        order.keyless if key is None else partition_for_key(key, order.partitions) for key in columns.keys
    )
    parts = []
    for partition, records in places.items():
        picked = columns.pick(records)
        try:
            batch = batch_from_columns(*picked, now_ms=order.now_ms, batch_bytes_max=order.batch_bytes_max)
        except StockadeError as error:
            parts.append(SplitPart(partition, records, None, refused(error)))
        else:
            parts.append(SplitPart(partition, records, batch))
    return SplitRead(parts, None in columns.keys)
