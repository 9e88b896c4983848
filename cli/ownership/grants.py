"""`stockade grants …`: who may write to which partitions, now and before; acquire and release."""

from collections.abc import Sequence

import click
from msgspec import structs

from ...client.api.client import Client
from ...partition.api.ownership import FenceTenure, Grant, Ticket
from ...partition.api.topics import Mode, Topic
from ...partition.errors import LeaderNotAvailable
from ..orders.holdings import Holding, holdings
from ..ui.completion_names import TOPIC
from ..ui.connection import with_client
from ..ui.exits import WRITER, refuse
from ..ui.manual import Manual
from ..ui.output import numbers, output_option, show_json, show_result, show_table, some
from ..ui.parameters import mode_option, partitions_option
from ..ui.times import moment, seconds

UNKNOWN_SHOWN = 8
"""Partitions without a leader that a list of grants names."""


@click.group(short_help="Who holds which partitions, and who held them.")
def grants() -> None:
    """Who holds which partitions, and who held them. The log checks the epoch of a grant at every append."""


@grants.command(
    "list",
    cls=Manual,
    short_help="List the grants in force: who may write where.",
    examples=[
        ("Every holder of every topic", "stockade grants list"),
        (
            "How many writers hold partitions of orders?",
            "stockade grants list orders --output json | jq '.grants | length'",
        ),
    ],
)
@click.argument("topics", nargs=-1, type=TOPIC)
@output_option
@with_client
async def list_grants(client: Client, topics: Sequence[str], output: str) -> None:
    """List the grants in force on TOPICS (default: on all topics): holder, mode, epoch (several where
    those of a Shared grant differ), partitions.

    SINCE is on the wall clock of the node that granted. EXPIRES IN says when the holder's session ends, unless it is
    renewed. Partitions without a leader cannot be asked, and are named; with --output json in `unknown`.
    """
    names = topics or [each.name for each in await client.topics(internal=True)]
    described, unknown = list[Topic](), list[str]()
    for topic in [await client.topic(name) for name in names]:
        led = [each for each in topic.partitions if each.leader_node is not None]
        described.append(structs.replace(topic, partitions=led))
        unknown += [f"{topic.name}/{each.partition}" for each in topic.partitions if each.leader_node is None]
    sessions = (await client.sessions()).sessions
    left_ms = {grant.grant: session.remaining_ms for session in sessions for grant in session.grants}
    found = [holding for topic in described for holding in await holdings(client, topic, left_ms)]
    if output == "json":
        show_json({"grants": found, "unknown": unknown})
        return
    headings = ["TOPIC", "PARTITIONS", "OWNER", "PRODUCER", "MODE", "EPOCH", "SINCE", "EXPIRES IN", "GRANT"]
    show_table(headings, [_row(holding) for holding in found])
    if unknown:
        click.echo(f"without {some(unknown, UNKNOWN_SHOWN)}: no leader is known", err=True)


def _row(h: Holding) -> tuple[object, ...]:
    since = moment(h.since_unix_ms) if h.since_unix_ms is not None else "-"
    left = seconds(h.expires_in_ms) if h.expires_in_ms is not None else "-"
    who = (h.client_id or "-", h.producer_name, h.mode, h.all_epochs)
    return h.topic, numbers(h.partitions), *who, since, left, h.grant


@grants.command(
    cls=Manual,
    short_help="Show present and former holders of a topic.",
    examples=[
        ("Who took over, and when", "stockade grants describe orders --partition 0"),
        (
            "Zombies whose writes were refused",
            "stockade grants describe orders --output json | jq '.[].fences[] | select(.refused > 0)'",
        ),
    ],
)
@click.argument("topic", type=TOPIC)
@partitions_option
@output_option
@with_client
async def describe(client: Client, topic: str, partitions: Sequence[int], output: str) -> None:
    """Show who holds the partitions of TOPIC and who held them, latest first, and how each tenure ended.

    HELD FOR is measured by the lease clock, which stands still while there is no leader. REFUSED counts a
    zombie's writes: those that came with a grant's token after its end. Partitions without a leader cannot be asked:
    they are named, and the command ends with code 1.
    """
    described = await client.topic(topic)
    wanted = partitions or [each.partition for each in described.partitions]
    leaderless = {each.partition for each in described.partitions if each.leader_node is None}
    found = [await client.fences(topic, number) for number in wanted if number not in leaderless]
    if output == "json":
        show_json(found)
    else:
        headings = ["PARTITION", "EPOCH", "OWNER", "PRODUCER", "MODE", "BEGAN BY", "HELD FOR", "END", "REFUSED"]
        show_table(headings, [_tenure(fences.partition, tenure) for fences in found for tenure in fences.fences])
    end_without([f"{topic}/{number}" for number in wanted if number in leaderless], output)


def end_without(unknown: Sequence[str], output: str) -> None:
    """If there are partitions without a leader, which could not be asked, name them and end the process, code 1."""
    if unknown:
        detail = f"without {some(unknown, UNKNOWN_SHOWN)}: no leader is known"
        refuse(LeaderNotAvailable.code, detail, as_json=output == "json", no_side_effects=True)


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
@click.option("--session", required=True, help="Id of the session that shall hold them, from `stockade sessions open`.")
@partitions_option
@mode_option
@click.option("--name", default="stockade", show_default=True, help="Name of the writer, shown to others.")
@output_option
@with_client
async def acquire(
    client: Client, topic: str, session: str, partitions: Sequence[int], mode: Mode, name: str, output: str
) -> None:
    """Acquire partitions of TOPIC for a session: all of them or none. Prints the grant and its epoch.

    The grant ends with the session: renew the session. `stockade hold` and `stockade produce --exclusive` do so by
    themselves.
    """
    answer = await client.acquire(topic, session, list(partitions) or None, mode, name)
    grant = answer if isinstance(answer, Grant) else await _granted(client, answer, session)
    if output == "json":
        show_json(grant)
    else:
        epochs = numbers(sorted(set(grant.epochs.values())))
        click.echo(f"{grant.grant} epoch {epochs} on {topic} {numbers(grant.partitions)}")


@grants.command(
    cls=Manual, exits=WRITER, examples=[("Give it back", 'stockade grants release "$GRANT" --session "$SESSION"')]
)
@click.argument("grant")
@click.option("--session", required=True, help="Id of the session that holds it.")
@output_option
@with_client
async def release(client: Client, grant: str, session: str, output: str) -> None:
    """Release what GRANT holds. When this returns, the log refuses its token. Safe if GRANT has ended."""
    await client.release(grant, session)
    show_result({"grant": grant, "released": True}, "released", output)


async def _granted(client: Client, ticket: Ticket, session: str) -> Grant:
    while ticket.grant is None:
        ticket = await client.ticket(ticket.ticket, session, client.config.fetch_wait_ms)
        if ticket.state == "cancelled":
            raise click.ClickException("the ticket is gone from the wait queue: acquire again")
    return ticket.grant


def _tenure(partition: int, tenure: FenceTenure) -> tuple[object, ...]:
    if tenure.until_ms is None:
        held, end = "holds it", "-"
    else:
        held, end = seconds(tenure.until_ms - tenure.since_ms), tenure.end or "-"
    who = (tenure.client_id or "-", tenure.producer_name, tenure.mode, tenure.operation)
    return partition, tenure.epoch, *who, held, end, tenure.refused
