"""`stockade fence`: throw out whoever holds partitions, on purpose."""

from collections.abc import Sequence

import click

from ..client.admin import Client
from ..client.config import ClientConfig
from .connection import connected
from .manual import Manual
from .names import TOPIC
from .output import confirm, output_option, show_json, show_table, yes_option


@click.command(
    cls=Manual,
    short_help="Throw out whoever holds partitions, on purpose.",
    examples=[
        ("A writer that hangs", 'stockade fence orders --partition 2 --reason "mirror-1 hangs" --yes'),
        ("A drill: does every writer of this topic notice?", "stockade fence orders --reason drill"),
    ],
)
@click.argument("topic", type=TOPIC)
@click.option("--partition", "partitions", multiple=True, type=click.IntRange(0), help="Repeatable. Default: all.")
@click.option(
    "--reason", help="Shown in the history of the partitions (`stockade grants describe`), at most 249 characters."
)
@yes_option
@output_option
@connected
async def fence(
    config: ClientConfig, topic: str, partitions: Sequence[int], reason: str | None, output: str, *, yes: bool
) -> None:
    """Throw out whoever holds partitions of TOPIC, and seat nobody: their epochs rise, and who waits in line is next.

    Whole grants end, also where they hold more partitions than these. When this returns, every token of before is
    refused by the log on every partition; its owner learns it at the next write. A single producer is fenced with
    `stockade producers fence NAME`.
    """
    where = f"partitions {', '.join(map(str, partitions))} of {topic}" if partitions else f"all of {topic}"
    confirm(f"Throw out whoever holds {where}?", yes)
    async with Client(config) as client:
        await client.connect()
        fenced = await client.fence_topic(topic, list(partitions) or None, reason=reason)
    if output == "json":
        show_json(fenced)
        return
    rows = [(each.partition, each.epoch, ",".join(each.grants) or "-") for each in fenced.partitions]
    show_table(["PARTITION", "EPOCH NOW", "GRANTS ENDED"], rows)
