"""`stockade consume`: writes records of a topic to standard output."""

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import click
import msgspec

from ...client.config import ClientConfig
from ...client.consumer.consumer import Consumer
from ...client.consumer.reader import Start
from ...client.consumer.records import Piece
from ..ui.completion_names import GROUP, TOPIC
from ..ui.connection import with_config
from ..ui.exits import FENCED, WRITER
from ..ui.manual import Manual
from ..ui.output import json_option, record_object
from ..ui.parameters import WholeNumber, partitions_option
from ..ui.streams import write_out

WORDS: dict[str, Start] = {"earliest": "earliest", "latest": "latest"}


class StartType(click.ParamType[Start]):
    """earliest, latest, or an offset."""

    name = "earliest|latest|OFFSET"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        if value in WORDS:
            return WORDS[value]
        if not str(value).isdecimal():
            self.fail(f"{value!r} is neither earliest nor latest nor an offset", param, ctx)
        return int(value)


@click.command(
    cls=Manual,
    short_help="Write the records of a topic to standard output.",
    exits=WRITER,
    means={FENCED: "The session of this member of a group has ended."},
    examples=[
        ("The first three records of a partition", "stockade consume logs --partition 0 --max 3"),
        ("Records that come from now on", "stockade consume logs --from latest --follow"),
        ("With keys, offsets and headers", "stockade consume logs --format json | jq -r .key"),
        ("Share the work among processes", "stockade consume logs --group billing | ./bill"),
    ],
)
@click.argument("topic", type=TOPIC)
@click.option(
    "--from", "start", default="earliest", show_default=True, type=StartType(), help="First offset to read, or a word."
)
@partitions_option
@click.option("--follow", is_flag=True, help="Wait for more records until Ctrl-C.")
@click.option(
    "--skip-trimmed",
    is_flag=True,
    help="Go on at the log's start, with a warning, where records were trimmed before they were read. Without it the"
    " command ends with an error there.",
)
@click.option(
    "--format",
    "--output",
    "output",
    default="text",
    show_default=True,
    is_eager=True,
    type=click.Choice(["text", "json", "raw"]),
    help="text: the value and LF. json: one object on each line (partition, offset, timestamp_ms, key, value, headers;"
    " key_base64 or value_base64 for bytes that are not UTF-8). raw: the values with nothing between them. --output is"
    " the same option.",
)
@json_option
@click.option(
    "--group",
    type=GROUP,
    help="Read as a member of this consumer group until Ctrl-C. The members share the partitions; each continues at the"
    " position of the group and commits what it has written out.",
)
@click.option("--max", "records_max", type=WholeNumber(1), help="Stop after this many records.")
@with_config
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
    skip_trimmed: bool,
) -> None:
    """Write the records of TOPIC to standard output, in order within each partition.

    A record without a value is an empty line in the format text, and nothing in raw.
    """
    printer = RecordPrinter(FORMS[output], records_max)
    async with Consumer(config) as consumer:
        await consumer.client.connect()
        if group is not None:
            if partitions:
                raise click.UsageError("--group assigns the partitions by itself: omit --partition")
            await _as_member(consumer, group, topic, start, printer, skip_trimmed=skip_trimmed)
            return
        reading = consumer.pieces(topic, partitions or None, start, follow=follow, skip_trimmed=skip_trimmed)
        async with reading as pieces:
            async for piece in pieces:
                await printer.show(piece)
                if printer.is_full:
                    return


class RecordPrinter:
    """Writes pieces to standard output, at most ``records_max`` records in all (None: any number)."""

    def __init__(self, form: Callable[[Piece], bytes], records_max: int | None) -> None:
        self._form = form
        self._left = records_max

    @property
    def is_full(self) -> bool:
        return self._left == 0

    async def show(self, piece: Piece) -> int:
        """Write and flush the records of a piece, as many as are still wanted; returns how many."""
        part = piece if self._left is None else replace(piece, batch=piece.batch.slice(0, self._left))
        await write_out(self._form(part))
        count: int = part.batch.num_rows
        self._left = None if self._left is None else self._left - count
        return count


async def _as_member(
    consumer: Consumer, group: str, topic: str, start: Start, printer: RecordPrinter, *, skip_trimmed: bool
) -> None:
    """Read as a member of the group, and commit what was written out, so that no member reads it again."""
    client_id = f"consume-{socket.gethostname()}-{os.getpid()}"
    block = consumer.group(group, topic, start=start, client_id=client_id, skip_trimmed=skip_trimmed)
    async with block as reading:
        async for piece in reading.pieces():
            count = await printer.show(piece)
            reading.back_to(piece.partition, piece.base_offset + count)
            await reading.commit()
            if printer.is_full:
                return


def _text(piece: Piece) -> bytes:
    return b"".join(line for value in _values(piece) for line in (value, b"\n"))


def _raw(piece: Piece) -> bytes:
    return b"".join(_values(piece))


def _json(piece: Piece) -> bytes:
    rows = ({"partition": record.partition, **record_object(record)} for record in piece.records())
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


FORMS: dict[str, Callable[[Piece], bytes]] = {"text": _text, "raw": _raw, "json": _json}


def _values(piece: Piece) -> Iterable[bytes]:
    values: list[bytes | None] = piece.batch.column("value").to_pylist()
    return (value or b"" for value in values)
