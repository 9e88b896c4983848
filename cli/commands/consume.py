"""`stockade consume`: records of a topic to standard output."""

import base64
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import click
import msgspec

from ..client.config import ClientConfig
from ..client.consumer import Consumer
from ..client.pieces import ConsumedRecord, Piece
from ..client.reading import Start
from .connection import connected
from .manual import Manual
from .names import GROUP, TOPIC

WORDS: dict[str, Start] = {"earliest": "earliest", "latest": "latest"}


class StartType(click.ParamType[Start]):
    """earliest, latest, or an offset."""

    name = "earliest|latest|OFFSET"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        """The word, or the number."""
        if value in WORDS:
            return WORDS[value]
        if not str(value).isdecimal():
            self.fail(f"{value!r} is neither earliest nor latest nor an offset", param, ctx)
        return int(value)


@click.command(
    cls=Manual,
    short_help="Write the records of a topic to standard output.",
    examples=[
        ("The first three records of a partition", "stockade consume logs --partition 0 --max 3"),
        ("What comes from now on", "stockade consume logs --from latest --follow"),
        ("With keys, offsets and headers", "stockade consume logs --format json | jq -r .key"),
        ("Share the work among processes", "stockade consume logs --group billing | ./bill"),
    ],
)
@click.argument("topic", type=TOPIC)
@click.option("--from", "start", default="earliest", show_default=True, type=StartType(), help="Where to begin.")
@click.option(
    "--partition", "partitions", multiple=True, type=click.IntRange(0), help="Repeat it for several. Default: all."
)
@click.option("--follow", is_flag=True, help="Go on waiting for more until Ctrl-C.")
@click.option(
    "--format",
    "--output",
    "output",
    default="text",
    show_default=True,
    type=click.Choice(["text", "json", "raw"]),
    help="text: the value and LF. json: an object a line (partition, offset, timestamp_ms, key, value, headers; _base64"
    " behind the name of what is not UTF-8). raw: the values with nothing between them. --output is the same option.",
)
@click.option(
    "--group",
    type=GROUP,
    help="Read as a member of this group: partitions are shared out among its members, each goes on where the group got"
    " to, and what was written out is committed. Goes on until Ctrl-C.",
)
@click.option("--max", "records_max", type=click.IntRange(1), help="Stop after so many records.")
@connected
async def consume(
    config: ClientConfig,
    topic: str,
    start: Start,
    partitions: Sequence[int],
    output: str,
    group: str | None,
    records_max: int | None,
    *,
    follow: bool,
) -> None:
    """Write the records of TOPIC to standard output, in order within each partition.

    A record without a value is an empty line in text, and nothing in raw.
    """
    shown = Shown(FORMS[output], records_max)
    async with Consumer(config) as consumer:
        await consumer.client.connect()
        if group is not None:
            if partitions:
                raise click.UsageError("--group shares the partitions out by itself: leave --partition away")
            await _as_member(consumer, group, topic, start, shown)
            return
        async with consumer.pieces(topic, partitions or None, start, follow=follow) as pieces:
            async for piece in pieces:
                shown.show(piece)
                if shown.is_full:
                    return


class Shown:
    """Writes pieces to standard output, up to so many records in all."""

    def __init__(self, form: Callable[[Piece], bytes], records_max: int | None) -> None:
        self._form = form
        self._left = records_max

    @property
    def is_full(self) -> bool:
        """Whether nothing more is wanted."""
        return self._left == 0

    def show(self, piece: Piece) -> int:
        """Write and flush as much of it as is wanted; answers how many records that was."""
        part = piece if self._left is None else replace(piece, batch=piece.batch.slice(0, self._left))
        sys.stdout.buffer.write(self._form(part))
        sys.stdout.buffer.flush()
        count: int = part.batch.num_rows
        self._left = None if self._left is None else self._left - count
        return count


async def _as_member(consumer: Consumer, group: str, topic: str, start: Start, shown: Shown) -> None:
    """What was written out is committed, so that nobody of the group reads it again."""
    client_id = f"consume-{socket.gethostname()}-{os.getpid()}"
    async with consumer.group(group, topic, start=start, client_id=client_id) as reading:
        async for piece in reading.pieces():
            count = shown.show(piece)
            reading.back_to(piece.partition, piece.base_offset + count)
            await reading.commit()
            if shown.is_full:
                return


def _text(piece: Piece) -> bytes:
    return b"".join(line for value in _values(piece) for line in (value, b"\n"))


def _raw(piece: Piece) -> bytes:
    return b"".join(_values(piece))


def _json(piece: Piece) -> bytes:
    return b"".join(msgspec.json.encode(_object(record)) + b"\n" for record in piece.records())


FORMS: dict[str, Callable[[Piece], bytes]] = {"text": _text, "raw": _raw, "json": _json}


def _values(piece: Piece) -> Iterable[bytes]:
    values: list[bytes | None] = piece.batch.column("value").to_pylist()
    return (value or b"" for value in values)


def _object(record: ConsumedRecord) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_bytes("key", record.key),
        **_bytes("value", record.value),
        "headers": [{"key": name, **_bytes("value", value)} for name, value in record.headers],
    }


def _bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    """As text where it is UTF-8, as base64 under another name where it is not: nothing is lost or guessed."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
