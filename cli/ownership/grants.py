"""`stockade grants …`: who may write where: list, history, acquire, release."""

import asyncio
from collections.abc import Iterator, Sequence

import click
import msgspec

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.model import Grant, Mode, Ticket, Topic
from ..client.reports import Fences, Tenure
from .connection import connected
from .exits import WRITER
from .manual import Manual
from .modes import mode_option
from .names import TOPIC
from .output import numbers, output_option, seconds, show_json, show_table, told

ASKED_AT_ONCE = 32
"""Partitions whose holders are asked for at the same time."""
_partitions = click.option(
    "--partition", "partitions", multiple=True, type=click.IntRange(0), help="Repeatable. Default: all."
)


class Holding(msgspec.Struct, frozen=True):
    """A grant in force, with the partitions of one topic that it holds. ``epoch``: the highest of them."""

    topic: str
    grant: str
    mode: str
    epoch: int
    producer_name: str
    client_id: str | None
    operation: str
    since_ms: int
    partitions: list[int]


@click.group(short_help="Who holds which partitions, and who held them.")
def grants() -> None:
    """Who holds which partitions, and who held them: a grant is a seat to write, with an epoch that the log checks."""


@grants.command(
    "list",
    cls=Manual,
    short_help="List the grants in force: who may write where.",
    examples=[
        ("Every owner of anything", "stockade grants list"),
        ("Is somebody writing to orders?", "stockade grants list orders --output json | jq '.grants | length'"),
    ],
)
@click.argument("topics", nargs=-1, type=TOPIC)
@output_option
@connected
async def list_grants(config: ClientConfig, topics: Sequence[str], output: str) -> None:
    """List the grants in force on TOPICS (none named: on all): owner, mode, epoch, partitions."""
    async with Client(config) as client:
        await client.connect()
        names = topics or [each.name for each in await client.topics()]
        described = [await client.topic(name) for name in names]
        found = [holding for topic in described for holding in _holdings(topic, await _fences(client, topic))]
    if output == "json":
        show_json({"grants": found})
        return
    headings = ["TOPIC", "PARTITIONS", "OWNER", "PRODUCER", "MODE", "EPOCH", "GRANT"]
    rows = [
        (h.topic, numbers(h.partitions), h.client_id or "-", h.producer_name, h.mode, h.epoch, h.grant) for h in found
    ]
    show_table(headings, rows)


@grants.command(
    cls=Manual,
    short_help="Show who holds and who held the partitions of a topic.",
    examples=[
        ("Who took over, and when", "stockade grants describe orders --partition 0"),
        (
            "Zombies that were refused",
            "stockade grants describe orders --output json | jq '.[].fences[] | select(.refused > 0)'",
        ),
    ],
)
@click.argument("topic", type=TOPIC)
@_partitions
@output_option
@connected
async def describe(config: ClientConfig, topic: str, partitions: Sequence[int], output: str) -> None:
    """Show who holds the partitions of TOPIC and who held them, the latest first, and how each tenure ended.

    HELD FOR is on the lease clock, which stands still while there is no leader. REFUSED counts writes that came under
    the grant after its end: what a zombie tried.
    """
    async with Client(config) as client:
        await client.connect()
        described = await client.topic(topic)
        wanted = partitions or [each.partition for each in described.partitions]
        found = [await client.fences(topic, number) for number in wanted]
    if output == "json":
        show_json(found)
        return
    headings = ["PARTITION", "EPOCH", "OWNER", "PRODUCER", "MODE", "BEGAN BY", "HELD FOR", "END", "REFUSED"]
    show_table(headings, [_tenure(fences.partition, tenure) for fences in found for tenure in fences.fences])


@grants.command(
    cls=Manual,
    exits=WRITER,
    examples=[
        (
            "In a script that writes with curl",
            'stockade grants acquire orders --session "$SESSION" --output json | jq -r .grant',
        )
    ],
)
@click.argument("topic", type=TOPIC)
@click.option("--session", required=True, help="Who shall hold it: an id that `stockade sessions open` printed.")
@_partitions
@mode_option
@click.option("--name", default="stockade", show_default=True, help="Name of the writer, shown to others.")
@output_option
@connected
async def acquire(
    config: ClientConfig, topic: str, session: str, partitions: Sequence[int], mode: Mode, name: str, output: str
) -> None:
    """Acquire partitions of TOPIC for a session: all of them or none. Prints the grant and its epoch.

    The grant lives as long as the session: renew it. `stockade hold` and `produce --exclusive` do all that by
    themselves.
    """
    async with Client(config) as client:
        await client.connect()
        answer = await client.acquire(topic, session, list(partitions) or None, mode, name)
        grant = answer if isinstance(answer, Grant) else await _granted(client, answer, session)
    if output == "json":
        show_json(grant)
    else:
        epoch = grant.epoch if grant.epoch is not None else max(grant.epochs.values())
        click.echo(f"{grant.grant} epoch {epoch} on {topic} {numbers(grant.partitions)}")


@grants.command(
    cls=Manual, exits=WRITER, examples=[("Give it back", 'stockade grants release "$GRANT" --session "$SESSION"')]
)
@click.argument("grant")
@click.option("--session", required=True, help="Whose it is.")
@output_option
@connected
async def release(config: ClientConfig, grant: str, session: str, output: str) -> None:
    """Free what GRANT holds; when this returns, its token is refused. Safe for a grant that is gone."""
    async with Client(config) as client:
        await client.connect()
        await client.release(grant, session)
    told({"grant": grant, "released": True}, "released", output)


async def _granted(client: Client, ticket: Ticket, session: str) -> Grant:
    while ticket.grant is None:
        ticket = await client.ticket(ticket.ticket, session, client.config.fetch_wait_ms)
        if ticket.state == "cancelled":
            raise click.ClickException("the place in the line is gone")
    return ticket.grant


async def _fences(client: Client, topic: Topic) -> list[Fences]:
    """Of the partitions that somebody holds."""
    held = [each.partition for each in topic.partitions if each.slot_mode is not None or each.topic_epoch is None]
    found: list[Fences] = []
    for start in range(0, len(held), ASKED_AT_ONCE):
        some = held[start : start + ASKED_AT_ONCE]
        found += await asyncio.gather(*(client.fences(topic.name, number) for number in some))
    return found


def _holdings(topic: Topic, fences: Sequence[Fences]) -> Iterator[Holding]:
    held: dict[str, tuple[Tenure, list[int]]] = {}
    for each in fences:
        for tenure in each.fences:
            if tenure.until_ms is None:
                held.setdefault(tenure.grant, (tenure, []))[1].append(each.partition)
    for tenure, partitions in held.values():
        yield Holding(
            topic.name,
            tenure.grant,
            tenure.mode,
            tenure.epoch,
            tenure.producer_name,
            tenure.client_id,
            tenure.operation,
            tenure.since_ms,
            partitions,
        )


def _tenure(partition: int, tenure: Tenure) -> tuple[object, ...]:
    if tenure.until_ms is None:
        held, end = "holds it", "-"
    else:
        held, end = seconds(tenure.until_ms - tenure.since_ms), tenure.end or "-"
    who = (tenure.client_id or "-", tenure.producer_name, tenure.mode, tenure.operation)
    return partition, tenure.epoch, *who, held, end, tenure.refused
