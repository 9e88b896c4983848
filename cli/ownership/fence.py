"""`stockade fence`: evict the holders of partitions on purpose."""

from collections.abc import Sequence

import click

from ...client.api.client import Client
from ..ui.completion_names import TOPIC
from ..ui.connection import with_client
from ..ui.manual import Manual
from ..ui.output import confirm, output_option, show_json, show_table, yes_option
from ..ui.parameters import partitions_option


@click.command(
    cls=Manual,
    short_help="Evict the holders of partitions on purpose.",
    examples=[
        ("A writer that hangs", 'stockade fence orders --partition 2 --reason "mirror-1 hangs" --yes'),
        ("A drill: does every writer of this topic notice?", "stockade fence orders --reason drill"),
    ],
)
@click.argument("topic", type=TOPIC)
@partitions_option
@click.option(
    "--reason", help="Shown in the history of the partitions (`stockade grants describe`), at most 249 characters."
)
@yes_option
@output_option
@with_client
async def fence(
    client: Client, topic: str, partitions: Sequence[int], reason: str | None, output: str, *, yes: bool
) -> None:
    """Evict the holders of partitions of TOPIC: their epochs rise, and the first in the wait queue is next.

    A grant ends as a whole, also on partitions that were not named. When this returns, the log refuses every older
    token on every partition; a holder learns of it at its next write. `stockade producers fence NAME` fences a single
    producer.
    """
    where = f"partitions {', '.join(map(str, partitions))} of {topic}" if partitions else f"all of {topic}"
    confirm(f"Evict the holders of {where}?", yes)
    fenced = await client.fence_topic(topic, list(partitions) or None, reason=reason)
    if output == "json":
        show_json(fenced)
        return
    rows = [(each.partition, each.epoch, ",".join(each.grants) or "-") for each in fenced.partitions]
    show_table(["PARTITION", "EPOCH NOW", "GRANTS ENDED"], rows)
