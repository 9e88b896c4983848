"""`stockade groups …`: list, describe with lag; resetting positions is in positions.py."""

import asyncio
from collections.abc import Sequence

import click
import msgspec

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.model import Position, Resource
from .connection import connected
from .manual import Adding, Manual
from .names import GROUP, TOPIC
from .output import output_option, show_json, show_rest, show_table
from .positions import reset

prefix_option: Adding = click.option("--prefix", default="", help="Only those that begin so.")
ROWS_MAX = 1000


class GroupPosition(msgspec.Struct, frozen=True):
    """Where a group stands in a partition; ``lag``: records stored and not done, of what is still there."""

    topic: str
    partition: int
    owner: str | None
    fence_epoch: int | None
    offset: int | None
    log_start: int
    log_end: int
    lag: int


@click.group(short_help="Consumer groups: owners, positions, lag.")
def groups() -> None:
    """Consumer groups, and other groups in which something is owned."""


groups.add_command(reset)


@groups.command(
    "list",
    cls=Manual,
    short_help="List the groups in which something was ever owned.",
    examples=[("Those of one application", "stockade groups list --prefix billing-")],
)
@prefix_option
@output_option
@connected
async def list_groups(config: ClientConfig, prefix: str, output: str) -> None:
    """List the groups in which something was ever owned, at most 1,000, ascending.

    A group whose positions were committed by hand, without owning anything, is not listed; `describe` shows it.
    """
    async with Client(config) as client:
        await client.connect()
        found = await client.groups(prefix, ROWS_MAX)
    if output == "json":
        show_json(found)
        return
    show_table(["GROUP", "RESOURCES", "OWNED"], [(each.group, each.resources, each.owned) for each in found.groups])
    show_rest(found.total - len(found.groups))


@groups.command(
    cls=Manual,
    short_help="Show who owns what in a group, and how far behind it is.",
    examples=[
        ("Who owns what, and how far behind it is", "stockade groups describe billing"),
        ("Total lag, for an alarm", "stockade groups describe billing --output json | jq '[.positions[].lag] | add'"),
        ("Of a group that committed without owning", "stockade groups describe nightly --topic orders"),
    ],
)
@click.argument("group", type=GROUP)
@click.option("--topic", "topics", multiple=True, type=TOPIC, help="Positions in this topic too. Repeatable.")
@output_option
@connected
async def describe(config: ClientConfig, group: str, topics: Sequence[str], output: str) -> None:
    """Show who owns what in GROUP, and where it stands in the partitions: position and lag, in records.

    LAG counts what is stored behind the position; without a position it counts everything.
    """
    async with Client(config) as client:
        await client.connect()
        resources = await client.resources(group)
        known = {each.name: each.partitions for each in await client.topics()}
        chosen = [*dict.fromkeys([*topics, *_topics_of(resources, known)])]
        positions = await _positions(client, group, chosen, resources)
    if output == "json":
        show_json({"group": group, "resources": resources, "positions": positions})
        return
    if resources:
        rows = [(r.resource, r.client_id or "-", r.generation, r.fence_epoch) for r in resources]
        show_table(["RESOURCE", "OWNER", "GENERATION", "FENCE EPOCH"], rows)
    if positions:
        if resources:
            click.echo()
        show_table(
            ["TOPIC", "PARTITION", "OWNER", "POSITION", "LOG END", "LAG"],
            [(p.topic, p.partition, p.owner or "-", _or_dash(p.offset), p.log_end, p.lag) for p in positions],
        )
    if not resources and not positions:
        click.echo(f"{group}: owns nothing; --topic shows its positions in a topic")


async def _positions(
    client: Client, group: str, topics: Sequence[str], resources: Sequence[Resource]
) -> list[GroupPosition]:
    owned = {each.resource: each for each in resources}
    found = []
    for topic in topics:
        numbers = [each.partition for each in (await client.topic(topic)).partitions]
        found += await asyncio.gather(*(_position(client, group, topic, number, owned) for number in numbers))
    return found


async def _position(
    client: Client, group: str, topic: str, partition: int, owned: dict[str, Resource]
) -> GroupPosition:
    position: Position = await client.position(group, topic, partition)
    offsets = await client.offsets(topic, partition)
    row = owned.get(f"{topic}/{partition}")
    lag = offsets.log_end - max(position.offset or 0, offsets.log_start)
    return GroupPosition(
        topic,
        partition,
        row.client_id if row is not None else None,
        row.fence_epoch if row is not None else None,
        position.offset,
        offsets.log_start,
        offsets.log_end,
        lag,
    )


def _topics_of(resources: Sequence[Resource], known: dict[str, int]) -> list[str]:
    """Topics of which partitions were owned under their own names."""
    parts = (each.resource.rpartition("/") for each in resources)
    return [topic for topic, _, number in parts if number.isdecimal() and int(number) < known.get(topic, 0)]


def _or_dash(value: object) -> object:
    return "-" if value is None else value
