"""`stockade groups reset`: let a group continue somewhere else, safely.

Once a group has owned a partition, only its present owner may commit. So this owns each partition for the moment, as a
member would: nobody can commit an older position over the new one.
"""

from collections.abc import Sequence

import click

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.fencing import Session
from ..client.model import Position, Resource
from .connection import connected
from .exits import REFUSED
from .manual import Manual
from .names import GROUP, TOPIC
from .offsets import MomentType
from .output import confirm, output_option, show_json, show_table, yes_option


@click.command(
    cls=Manual,
    means={REFUSED: "Refused: somebody of the group owns a partition now, or the offset is not there."},
    examples=[
        ("Read everything again", "stockade groups reset billing orders --to earliest"),
        ("Skip what is older than a moment", "stockade groups reset billing orders --to 2026-01-31T00:00:00Z"),
        ("One partition, to an offset", "stockade groups reset billing orders --partition 3 --to-offset 1200"),
    ],
)
@click.argument("group", type=GROUP)
@click.argument("topic", type=TOPIC)
@click.option("--partition", "partitions", multiple=True, type=click.IntRange(0), help="Repeatable. Default: all.")
@click.option(
    "--to", "moment", type=MomentType(), help="The first record, behind the last, or the first at or after a time."
)
@click.option("--to-offset", type=click.IntRange(0), help="This offset.")
@click.option("--force", is_flag=True, help="Also what a member owns: it loses the partition.")
@yes_option
@output_option
@connected
async def reset(
    config: ClientConfig,
    group: str,
    topic: str,
    partitions: Sequence[int],
    moment: str | int | None,
    to_offset: int | None,
    output: str,
    *,
    force: bool,
    yes: bool,
) -> None:
    """Let GROUP continue in TOPIC somewhere else. Stop its members first, or use --force.

    Each partition is owned for the moment of its reset, so that no member commits an older position over it.
    """
    if (moment is None) == (to_offset is None):
        raise click.UsageError("say where to: either --to or --to-offset")
    confirm(f"Let {group} continue in {topic} at {moment if to_offset is None else to_offset}?", yes)
    async with Client(config) as client:
        await client.connect()
        wanted = list(partitions) or [each.partition for each in (await client.topic(topic)).partitions]
        done = await _reset(client, group, topic, wanted, to_offset if moment is None else _Moment(moment), force)
    if output == "json":
        show_json({"group": group, "positions": done})
        return
    show_table(["TOPIC", "PARTITION", "POSITION"], [(each.topic, each.partition, each.offset) for each in done])


class _Moment:
    """A place in the log that each partition has to tell."""

    def __init__(self, at: str | int) -> None:
        self.at = at


async def _reset(
    client: Client, group: str, topic: str, partitions: Sequence[int], to: "int | _Moment | None", force: bool
) -> list[Position]:
    known = {each.resource: each for each in await client.resources(group)}
    rows = [known.get(f"{topic}/{number}") for number in partitions]
    _refuse_owned(rows, force)
    done = []
    async with Session(client, "groups-reset") as session:
        for number, row in zip(partitions, rows, strict=True):
            offset = await _offset(client, topic, number, to.at) if isinstance(to, _Moment) else to
            assert offset is not None
            done.append(await _commit(client, session.id, group, topic, number, offset, row))
    return done


async def _commit(
    client: Client, session: str, group: str, topic: str, number: int, offset: int, row: Resource | None
) -> Position:
    if row is None:
        return await client.commit_position(group, topic, number, offset)
    generation = row.generation if row.owned else None
    [owned] = await client.own(group, session, [row.resource], generation=generation, sever="resource")
    done = await client.commit_position(group, topic, number, offset, fence_epoch=owned.fence_epoch)
    await client.disown(group, session, row.resource)
    return done


def _refuse_owned(rows: Sequence[Resource | None], force: bool) -> None:
    owned = [row for row in rows if row is not None and row.owned]
    if owned and not force:
        who = ", ".join(f"{row.resource} by {row.client_id}" for row in owned[:5])
        raise click.ClickException(f"owned now: {who}. Stop the members, or use --force.")


async def _offset(client: Client, topic: str, partition: int, at: str | int) -> int:
    """-1, no record qualifies, is behind the last one."""
    found = await client.offsets(topic, partition, at)
    return found.offset if found.offset >= 0 else found.log_end
