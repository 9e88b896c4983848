"""`stockade groups …`: list, describe with lag, reset, forget.

A group commits a position for each partition. Once a session of the group has owned a partition, only the partition's
present owner may commit there. So `reset` and `forget` own each such partition while they commit, as a member would: no
member can then commit an older position over the new one.
"""

import asyncio
from collections.abc import Sequence

import click
import msgspec

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...client.session.session import Session
from ...partition.api.ownership import Position, Resource
from ..ui.completion_names import GROUP, TOPIC
from ..ui.connection import with_client, with_config
from ..ui.exits import REFUSED
from ..ui.manual import Manual
from ..ui.output import confirm, output_option, show_json, show_rest, show_table, yes_option
from ..ui.parameters import ROWS_MAX, MomentType, WholeNumber, partitions_option, prefix_option
from .grants import end_without


@click.command(
    cls=Manual,
    means={REFUSED: "Refused: a member of the group owns a partition now, or the log has no such offset."},
    examples=[
        ("Read everything again", "stockade groups reset billing orders --to earliest"),
        ("Skip what is older than a moment", "stockade groups reset billing orders --to 2026-01-31T00:00:00Z"),
        ("One partition, to an offset", "stockade groups reset billing orders --partition 3 --to-offset 1200"),
    ],
)
@click.argument("group", type=GROUP)
@click.argument("topic", type=TOPIC)
@partitions_option
@click.option(
    "--to",
    "moment",
    type=MomentType("; --to-offset takes an offset"),
    help="The first record, the log's end, or the first record at or after a time.",
)
@click.option("--to-offset", type=WholeNumber(0), help="This offset, in every partition chosen.")
@click.option("--force", is_flag=True, help="Take partitions from members that own them.")
@yes_option
@output_option
@with_config
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
    """Move the positions of GROUP in TOPIC. Stop its members first, or use --force.

    The command owns each partition during its reset, so that no member commits an older position over the new one.
    """
    if (moment is None) == (to_offset is None):
        raise click.UsageError("say where to: either --to or --to-offset")
    confirm(f"Move {group} in {topic} to {moment if to_offset is None else to_offset}?", yes)
    to = to_offset if moment is None else _Moment(moment)
    await _change(config, group, topic, partitions, to, force=force, output=output)


@click.command(
    cls=Manual,
    short_help="Forget the positions of a group.",
    means={REFUSED: "Refused: a member of the group owns a partition now, or the feature level is too low."},
    examples=[("A group that reads a topic no more", "stockade groups forget nightly-2024 orders")],
)
@click.argument("group", type=GROUP)
@click.argument("topic", type=TOPIC)
@partitions_option
@click.option("--force", is_flag=True, help="Take partitions from members that own them.")
@yes_option
@output_option
@with_config
async def forget(
    config: ClientConfig, group: str, topic: str, partitions: Sequence[int], output: str, *, force: bool, yes: bool
) -> None:
    """Forget the positions of GROUP in TOPIC. A member that comes later begins where a new group would.

    A partition keeps the positions of at most 10,000 groups, and refuses the first one of a further group.
    """
    confirm(f"Forget the positions of {group} in {topic}?", yes)
    await _change(config, group, topic, partitions, None, force=force, output=output)


class _Moment:
    """The target of a reset as a word or a time, which each partition resolves to an offset of its own."""

    def __init__(self, at: str | int) -> None:
        self.at = at


async def _change(
    config: ClientConfig,
    group: str,
    topic: str,
    partitions: Sequence[int],
    to: int | _Moment | None,
    *,
    force: bool,
    output: str,
) -> None:
    """Move the group's positions in these partitions (none: in all) to ``to``, or forget them if ``to`` is None."""
    async with Client(config) as client:
        await client.connect()
        wanted = list(partitions) or [each.partition for each in (await client.topic(topic)).partitions]
        done = await _changed(client, group, topic, wanted, to, force)
    if output == "json":
        show_json({"group": group, "positions": done})
        return
    rows = [(each.topic, each.partition, _or_dash(each.offset)) for each in done]
    show_table(["TOPIC", "PARTITION", "POSITION"], rows)


async def _changed(
    client: Client, group: str, topic: str, partitions: Sequence[int], to: int | _Moment | None, force: bool
) -> list[Position]:
    known = {each.resource: each for each in await client.resources(group)}
    rows = [known.get(f"{topic}/{number}") for number in partitions]
    _refuse_owned(rows, force)
    done = []
    async with Session(client, "groups-reset") as session:
        for number, row in zip(partitions, rows, strict=True):
            offset = await _offset(client, topic, number, to.at) if isinstance(to, _Moment) else to
            done.append(await _commit(client, session.id, group, topic, number, offset, row))
    return done


async def _commit(
    client: Client, session: str, group: str, topic: str, number: int, offset: int | None, row: Resource | None
) -> Position:
    fence_epoch = None
    if row is not None:
        generation = row.generation if row.owned else None
        [owned] = await client.own(group, session, [row.resource], generation=generation, sever="resource")
        fence_epoch = owned.fence_epoch
    if offset is None:
        done = await client.forget_position(group, topic, number, fence_epoch=fence_epoch)
    else:
        done = await client.commit_position(group, topic, number, offset, fence_epoch=fence_epoch)
    if row is not None:
        await client.disown(group, session, row.resource)
    return done


def _refuse_owned(rows: Sequence[Resource | None], force: bool) -> None:
    owned = [row for row in rows if row is not None and row.owned]
    if owned and not force:
        who = ", ".join(f"{row.resource} by {row.client_id}" for row in owned[:5])
        raise click.ClickException(f"owned now: {who}. Stop the members, or use --force.")


async def _offset(client: Client, topic: str, partition: int, at: str | int) -> int:
    """The offset of a word or a time in a partition; the log's end if no record qualifies."""
    found = await client.offsets(topic, partition, at)
    return found.offset if found.offset >= 0 else found.log_end


class GroupPosition(msgspec.Struct, frozen=True):
    """A group's position in a partition. ``offset``: None if it has none; ``lag``: records from it to the log's end."""

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
    """Consumer groups, and other groups in which sessions own resources."""


groups.add_command(reset)
groups.add_command(forget)


@groups.command(
    "list",
    cls=Manual,
    short_help="List the groups that have resources.",
    examples=[("Those of one application", "stockade groups list --prefix billing-")],
)
@prefix_option
@output_option
@with_client
async def list_groups(client: Client, prefix: str, output: str) -> None:
    """List the groups in which a resource was ever owned, at most 1,000, ascending.

    A group that commits positions without owning anything is not listed; `describe` shows it.
    """
    found = await client.groups(prefix, ROWS_MAX)
    if output == "json":
        show_json(found)
        return
    show_table(["GROUP", "RESOURCES", "OWNED"], [(each.group, each.resources, each.owned) for each in found.groups])
    show_rest(found.total - len(found.groups))


@groups.command(
    cls=Manual,
    short_help="Show owners, positions and lag of a group.",
    examples=[
        ("Owners, positions and lag", "stockade groups describe billing"),
        ("Total lag, for an alarm", "stockade groups describe billing --output json | jq '[.positions[].lag] | add'"),
        ("A group that commits without owning", "stockade groups describe nightly --topic orders"),
    ],
)
@click.argument("group", type=GROUP)
@click.option(
    "--topic", "topics", multiple=True, type=TOPIC, help="Show positions in this topic too. Repeat it for several."
)
@output_option
@with_client
async def describe(client: Client, group: str, topics: Sequence[str], output: str) -> None:
    """Show the resources of GROUP with their owners, and its position and lag, in records, in each partition.

    LAG counts the records from the position to the log's end; without a position, all records. Records that were
    dropped before the group had read them do not count: a line below tells their number. Partitions without a leader
    cannot be asked: they are named, and the command ends with code 1.
    """
    resources = await client.resources(group)
    known = {each.name: each.partitions for each in await client.topics(internal=True)}
    chosen = [*dict.fromkeys([*topics, *_topics_of(resources, known)])]
    positions, unknown = await _positions(client, group, chosen, resources)
    if output == "json":
        show_json({"group": group, "resources": resources, "positions": positions})
    else:
        _show(group, resources, positions, is_whole=not unknown)
    end_without(unknown, output)


def _show(group: str, resources: Sequence[Resource], positions: Sequence[GroupPosition], *, is_whole: bool) -> None:
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
    for each in positions:
        if each.offset is not None and each.offset < each.log_start:
            force = "" if each.owner is None else " --force"
            click.echo(
                f"unread and dropped: {each.log_start - each.offset:,} of {each.topic}/{each.partition}. Readers that"
                f" do not skip them go on after `stockade groups reset {group} {each.topic}"
                f" --partition {each.partition} --to earliest{force}`"
            )
    if not resources and not positions and is_whole:
        click.echo(f"{group}: owns nothing; --topic shows its positions in a topic")


async def _positions(
    client: Client, group: str, topics: Sequence[str], resources: Sequence[Resource]
) -> tuple[list[GroupPosition], list[str]]:
    """The group's positions in these topics, and the partitions that cannot be asked, as they have no leader."""
    owned = {each.resource: each for each in resources}
    found, unknown = list[GroupPosition](), list[str]()
    for topic in topics:
        partitions = (await client.topic(topic)).partitions
        led = [each.partition for each in partitions if each.leader_node is not None]
        found += await asyncio.gather(*(_position(client, group, topic, number, owned) for number in led))
        unknown += [f"{topic}/{each.partition}" for each in partitions if each.leader_node is None]
    return found, unknown


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
    """The topics of which the group has a partition as a resource, TOPIC/PARTITION. ``known``: partitions by topic."""
    parts = (each.resource.rpartition("/") for each in resources)
    return [topic for topic, _, number in parts if number.isdecimal() and int(number) < known.get(topic, 0)]


def _or_dash(value: object) -> object:
    return "-" if value is None else value
