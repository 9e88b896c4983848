"""`stockade topics trim`: drop what is old."""

import click

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.fencing import Session
from ..client.reports import Trimmed
from .connection import connected
from .exits import WRITER
from .manual import Manual
from .names import TOPIC
from .output import confirm, output_option, show_json, yes_option


class EndType(click.ParamType[int]):
    """An offset, or the word end, which is -1."""

    name = "OFFSET|end"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The offset."""
        if value == "end":
            return -1
        if not str(value).isdecimal():
            self.fail(f"{value!r} is neither an offset nor the word end", param, ctx)
        return int(str(value))


@click.command(
    cls=Manual,
    exits=WRITER,
    examples=[
        ("Drop what is below offset 1000", "stockade topics trim orders --partition 0 --before 1000"),
        (
            "Empty a partition of a topic that takes exclusive writers only",
            "stockade topics trim jobs --partition 2 --before end --exclusive --yes",
        ),
    ],
)
@click.argument("topic", type=TOPIC)
@click.option("--partition", required=True, type=click.IntRange(0), help="Which one.")
@click.option("--before", required=True, type=EndType(), help="First offset to keep; `end` drops everything.")
@click.option("--exclusive", is_flag=True, help="Own the partition meanwhile, as topics with require_fence want it.")
@yes_option
@output_option
@connected
async def trim(
    config: ClientConfig, topic: str, partition: int, before: int, output: str, *, exclusive: bool, yes: bool
) -> None:
    """Drop every record of a partition of TOPIC below an offset. What is dropped is gone from all replicas."""
    confirm(f"Drop {'everything' if before == -1 else f'what is below {before}'} in {topic}/{partition}?", yes)
    async with Client(config) as client:
        await client.connect()
        trimmed = await _trim(client, topic, partition, before, exclusive=exclusive)
    if output == "json":
        show_json(trimmed)
    else:
        click.echo(f"{topic}/{partition}: offsets {trimmed.log_start}..{trimmed.log_end}")


async def _trim(client: Client, topic: str, partition: int, before: int, *, exclusive: bool) -> Trimmed:
    if not exclusive:
        return await client.trim(topic, partition, before)
    async with Session(client, "trim") as session:
        fence = await session.acquire(topic, [partition])
        return await client.trim(topic, partition, before, token=fence.token(partition))
