"""`stockade fence`: evict the holders of partitions on purpose."""

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from ...client.api.client import Client
from ...partition.api.ownership import TopicFenced
from ..orders.consent import Consent, consent_options, under_consent
from ..orders.plans import fence_plan
from ..ui.completion_names import TOPIC
from ..ui.connection import with_client
from ..ui.exits import PLANNED
from ..ui.manual import Manual
from ..ui.output import output_option, show_json, show_table
from ..ui.parameters import partitions_option


@click.command(
    cls=Manual,
    short_help="Evict the holders of partitions on purpose.",
    exits=PLANNED,
    examples=[
        ("Whom would it hit?", "stockade fence orders --partition 2 --plan"),
        ("A writer that hangs", 'stockade fence orders --partition 2 --reason "mirror-1 hangs" --yes'),
        ("A drill: does every writer of this topic notice?", "stockade fence orders --reason drill"),
    ],
)
@click.argument("topic", type=TOPIC)
@partitions_option
@click.option(
    "--reason", help="Shown in the history of the partitions (`stockade grants describe`), at most 200 characters."
)
@consent_options
@output_option
@with_client
async def fence(
    client: Client, topic: str, partitions: Sequence[int], reason: str | None, output: str, *, consent: Consent
) -> None:
    """Evict the holders of partitions of TOPIC: their epochs rise, and the first in the wait queue is next.

    A grant ends as a whole, also on partitions that were not named. When this returns, the log refuses every older
    token on every partition; a holder learns of it at its next write. `stockade producers fence NAME` fences a single
    producer.
    """

    def act(conditions: Mapping[str, Any]) -> Awaitable[TopicFenced]:
        return client.fence_topic(topic, list(partitions) or None, reason=reason, **conditions)

    fenced = await under_consent(consent, output, partial(fence_plan, client, topic, partitions), act)
    if output == "json":
        show_json(fenced)
        return
    rows = [(each.partition, each.epoch, ",".join(each.grants) or "-") for each in fenced.partitions]
    show_table(["PARTITION", "EPOCH NOW", "GRANTS ENDED"], rows)
