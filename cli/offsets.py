"""`stockade topics offsets|tail`: where partitions begin and end, and who wrote last."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import click

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.model import TailRecord
from .connection import connected
from .manual import Manual
from .names import TOPIC
from .output import output_option, show_json, show_table

VALUE_CHARACTERS_MAX = 40
"""Of a value in a table; JSON has all of it."""


class MomentType(click.ParamType[str | int]):
    """A word, or a time: milliseconds since 1970, or ISO 8601 (without a zone it is UTC)."""

    name = "earliest|latest|max_timestamp|TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        """The word, or milliseconds."""
        if value in ("earliest", "latest", "max_timestamp"):
            return str(value)
        if str(value).isdecimal():
            return int(value)
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither a word of {self.name} nor a time such as 2026-01-31T12:00:00Z", param, ctx)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


@click.command(
    cls=Manual,
    short_help="Show where partitions begin and end, or the offset of a time.",
    examples=[
        ("How much is in each partition", "stockade topics offsets orders"),
        ("Where to begin reading for yesterday", "stockade topics offsets orders --at 2026-01-31T00:00:00Z"),
    ],
)
@click.argument("topic", type=TOPIC)
@click.option(
    "--at",
    default="latest",
    show_default=True,
    type=MomentType(),
    help="Which offset: the first, the one behind the last, that of the greatest timestamp, or the first at or after a"
    " time (milliseconds since 1970, or ISO 8601).",
)
@output_option
@connected
async def offsets(config: ClientConfig, topic: str, at: str | int, output: str) -> None:
    """Show where each partition of TOPIC begins and ends, and one offset of your choice (-1: there is none)."""
    async with Client(config) as client:
        await client.connect()
        described = await client.topic(topic)
        asked = (client.offsets(topic, each.partition, at) for each in described.partitions)
        found = await asyncio.gather(*asked)
    if output == "json":
        show_json({"topic": topic, "partitions": found})
        return
    rows = [(each.partition, each.log_start, each.log_end, each.offset) for each in found]
    show_table(["PARTITION", "LOG START", "LOG END", str(at).upper()], rows)


@click.command(
    cls=Manual,
    short_help="Show the last records of a partition, and who wrote them.",
    examples=[
        ("After an unknown outcome: is my last record there?", "stockade topics tail orders --partition 0 --records 3")
    ],
)
@click.argument("topic", type=TOPIC)
@click.option("--partition", default=0, show_default=True, type=click.IntRange(0), help="Which one.")
@click.option("--records", default=10, show_default=True, type=click.IntRange(1, 100), help="How many.")
@output_option
@connected
async def tail(config: ClientConfig, topic: str, partition: int, records: int, output: str) -> None:
    """Show the last records of a partition of TOPIC with who wrote them: where a writer stands after an error."""
    async with Client(config) as client:
        await client.connect()
        found = await client.tail(topic, partition, records)
    if output == "json":
        show_json(found)
        return
    click.echo(f"{topic}/{partition}: offsets {found.log_start}..{found.log_end}, epoch {found.topic_epoch}")
    headings = ["OFFSET", "WRITER EPOCH", "PRODUCER", "PRODUCER EPOCH", "SEQUENCE", "VALUE"]
    show_table(headings, [_row(record) for record in found.records])


def _row(record: TailRecord) -> tuple[object, ...]:
    text = record.value if record.value is not None else record.value_base64
    value = "-" if text is None else repr(text)[1:-1]
    shown = value if len(value) <= VALUE_CHARACTERS_MAX else value[: VALUE_CHARACTERS_MAX - 1] + "…"
    stamp = (record.producer_id, record.producer_epoch, record.sequence)
    return record.offset, record.writer_epoch, *("-" if part is None else part for part in stamp), shown
