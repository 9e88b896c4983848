"""What is done with a body, here or in a process beside the node: the same function, the same refusals."""

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
"""A body of more bytes is not parsed on the event loop if its parser makes objects of it, or holds the interpreter for
long: JSON in both forms, and what is split by key.
"""
INLINE_PIECES_MAX = 8192
"""A text with more pieces (lines, commas, opening brackets) is not parsed there: each may be an object, some 1 us."""
INLINE_ARROW_BYTES_MAX = 4 * 1024 * 1024
"""An Arrow body that unpacks to more is not read there: 13 KB may become 16 MiB. By columns, 4 MiB take some 5 ms."""
INLINE_SPLIT_ROWS_MAX = 4096
"""An Arrow body of more records is not split by key there: a split handles them one by one."""
INLINE_SPLIT_BYTES_MAX = 256 * 1024
"""An Arrow body that unpacks to more is not split there, either: each 8 bytes of it may be a header."""


def is_light(form: str, body: bytes) -> bool:
    """Whether the objects that a text is parsed into, other than Arrow, take little time whatever it holds."""
    if form == TEXT:
        return body.count(b"\n") <= INLINE_PIECES_MAX
    if len(body) > INLINE_BYTES_MAX:
        return False
    return len(body) <= INLINE_PIECES_MAX or sum(map(body.count, (b"\n", b",", b"[", b"{"))) <= INLINE_PIECES_MAX


def is_light_arrow(body: bytes | memoryview, batch_bytes_max: int) -> bool:
    """Whether the batch of an Arrow body, of which more than ``batch_bytes_max`` is refused, takes little time."""
    return batch_bytes_max <= INLINE_ARROW_BYTES_MAX or unpacked(body).uncompressed <= INLINE_ARROW_BYTES_MAX


class ReadBatch(msgspec.Struct, frozen=True, tag="batch"):
    """The batch of an append to one partition; arguments as ``decode.read_batch`` has them."""

    form: str
    now_ms: int
    batch_bytes_max: int

    def is_light(self, body: bytes) -> bool:
        """Whether it may be done on the event loop, whatever the body holds."""
        if self.form != ARROW:
            return is_light(self.form, body)
        return is_light_arrow(body, self.batch_bytes_max)


class SplitBatches(msgspec.Struct, frozen=True, tag="split"):
    """The batches of an append by key to a topic with ``partitions`` partitions; records without a key go to
    ``keyless``.
    """

    form: str
    now_ms: int
    batch_bytes_max: int
    partitions: int
    keyless: int

    def is_light(self, body: bytes) -> bool:
        """As ``ReadBatch.is_light``: records are handled one by one, whatever their form."""
        if len(body) > INLINE_BYTES_MAX or self.form != ARROW:
            return len(body) <= INLINE_BYTES_MAX and is_light(self.form, body)
        found = unpacked(body)
        return found.rows <= INLINE_SPLIT_ROWS_MAX and found.uncompressed <= INLINE_SPLIT_BYTES_MAX


class ReadJson(msgspec.Struct, frozen=True, tag="json"):
    """A JSON text as a struct of this package, named ``module:class``."""

    shape: str

    def is_light(self, body: bytes) -> bool:
        """As ``ReadBatch.is_light``."""
        return is_light(JSON, body)


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The body was refused: the parts of a StockadeError."""

    code: str
    detail: str
    fields: dict[str, Any]

    def error(self) -> StockadeError:
        """The refusal, to be raised."""
        return revive(self.code, self.detail, self.fields)


class BatchRead(msgspec.Struct, frozen=True, tag="batch_read"):
    """The batch of a ReadBatch."""

    batch: Batch


class SplitPart(msgspec.Struct, frozen=True):
    """What goes to one partition: the indexes of the records in the body, and their batch or its refusal."""

    partition: int
    records: list[int]
    batch: Batch | None
    refusal: Refused | None = None


class SplitRead(msgspec.Struct, frozen=True, tag="split_read"):
    """The parts of a SplitBatches, ascending by partition, and whether a record had no key."""

    parts: list[SplitPart]
    has_keyless: bool


class JsonRead(msgspec.Struct, frozen=True, tag="json_read"):
    """The struct of a ReadJson, as MessagePack."""

    value: bytes


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A bug was met; the text is its traceback."""

    text: str


Order = ReadBatch | SplitBatches | ReadJson
Answer = BatchRead | SplitRead | JsonRead | Refused | Failed


def do(order: Order, body: bytes) -> BatchRead | SplitRead | JsonRead:
    """Read a body. Raises what the parsers raise."""
    match order:
        case ReadBatch():
            batch = read_batch(order.form, body, now_ms=order.now_ms, batch_bytes_max=order.batch_bytes_max)
            return BatchRead(batch)
        case SplitBatches():
            return _split(order, body)
        case ReadJson():
            return JsonRead(msgspec.msgpack.encode(json_codec.read(body, _shape(order.shape)), enc_hook=_number))


def refused(error: StockadeError) -> Refused:
    """A refusal as a value."""
    return Refused(error.code, error.detail, error.fields)


def name_of(shape: type[Any]) -> str:
    """How a ReadJson names a class."""
    return f"{shape.__module__}:{shape.__qualname__}"


def _shape(name: str) -> type[Any]:
    module, _, qualname = name.partition(":")
    found: type[Any] = getattr(import_module(module), qualname)
    return found


def _number(fragment: Any) -> float:
    """A number that json_codec keeps as text, in a field of any type: no field takes it."""
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
