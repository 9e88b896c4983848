"""`stockade sessions …`: list, open, renew, end."""

import click

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.model import SessionState
from ..client.reports import HeldGrant, ListedSession
from .connection import connected
from .exits import WRITER
from .groups import ROWS_MAX, prefix_option
from .manual import Manual
from .output import count, output_option, seconds, show_json, show_rest, show_table, told

RENEW_TIMEOUT_MS = 10_000


@click.group(short_help="Who is there, and what they hold.")
def sessions() -> None:
    """Who is there: a session stands for a program, and whatever it holds ends with it.

    `hold`, `own` and `produce --exclusive` look after sessions of their own. For scripts of several steps: `open` one,
    `renew` it before its ttl ends, `end` it. Its id is a secret: whoever has it can write in its name.
    """


@sessions.command(
    "list",
    cls=Manual,
    short_help="List the live sessions.",
    examples=[
        ("Who holds something now", "stockade sessions list"),
        (
            "Those about to expire",
            "stockade sessions list --output json | jq '.sessions[] | select(.remaining_ms < 2000)'",
        ),
    ],
)
@prefix_option
@output_option
@connected
async def list_sessions(config: ClientConfig, prefix: str, output: str) -> None:
    """List the live sessions, at most 1,000, ascending by the name of the program. Their ids are never shown."""
    async with Client(config) as client:
        await client.connect()
        found = await client.sessions(prefix, ROWS_MAX)
    if output == "json":
        show_json(found)
        return
    show_table(["CLIENT", "TTL", "REMAINING", "GRANTS", "RESOURCES"], [_row(each) for each in found.sessions])
    show_rest(found.total - len(found.sessions))


@sessions.command(
    cls=Manual,
    short_help="Show the sessions of a program, and all they hold.",
    examples=[("What the mirrors hold", "stockade sessions describe mirror")],
)
@click.argument("client_id")
@output_option
@connected
async def describe(config: ClientConfig, client_id: str, output: str) -> None:
    """Show the sessions of the program CLIENT_ID with every grant that they hold, and for how long."""
    async with Client(config) as client:
        await client.connect()
        listed = await client.sessions(client_id, ROWS_MAX)
    found = [each for each in listed.sessions if each.client_id == client_id]
    if not found:
        raise click.ClickException(f"{client_id} has no live session; `stockade sessions list` shows who has.")
    if output == "json":
        show_json(found)
        return
    for session in found:
        click.echo(
            f"{client_id}: ttl {seconds(session.ttl_ms)}, {seconds(session.remaining_ms)} left,"
            f" owns {count(session.resources, 'resource')} in groups"
        )
        if session.grants:
            headings = ["GRANT", "TOPIC", "PARTITIONS", "MODE", "EPOCH", "PRODUCER", "HELD FOR"]
            show_table(headings, [_held(grant) for grant in session.grants])


@sessions.command(
    "open",
    cls=Manual,
    examples=[("For a script", "SESSION=$(stockade sessions open nightly --ttl 60)")],
)
@click.argument("client_id")
@click.option(
    "--ttl", "ttl_s", default=30.0, show_default=True, type=click.FloatRange(1, 300), help="Seconds it lives unrenewed."
)
@output_option
@connected
async def open_session(config: ClientConfig, client_id: str, ttl_s: float, output: str) -> None:
    """Open a session under the name CLIENT_ID, and print its id. It ends by itself when nobody renews it."""
    async with Client(config) as client:
        await client.connect()
        opened = await client.open_session(client_id, int(ttl_s * 1000))
    if output == "json":
        show_json(opened)
    else:
        click.echo(opened.session)


@sessions.command(cls=Manual, exits=WRITER, examples=[("Between two steps", 'stockade sessions renew "$SESSION"')])
@click.argument("session")
@output_option
@connected
async def renew(config: ClientConfig, session: str, output: str) -> None:
    """Give SESSION its full ttl again, from now. Exit code 5 when it has ended, and with it what it held."""
    async with Client(config) as client:
        await client.connect()
        renewed = await client.renew_session(session, min(RENEW_TIMEOUT_MS, config.request_timeout_ms))
    _tell(renewed, output)


@sessions.command(cls=Manual, examples=[("At the end", 'stockade sessions end "$SESSION"')])
@click.argument("session")
@output_option
@connected
async def end(config: ClientConfig, session: str, output: str) -> None:
    """End SESSION: everything that it holds is free when this returns. Safe for one that is gone.

    To throw out somebody whose id you do not have, fence what they hold: `stockade fence TOPIC`.
    """
    async with Client(config) as client:
        await client.connect()
        await client.close_session(session)
    told({"session": session, "ended": True}, "ended", output)


def _tell(state: SessionState, output: str) -> None:
    told(state, f"{state.client_id}: {seconds(state.remaining_ms)} left", output)


def _row(session: ListedSession) -> tuple[object, ...]:
    left = seconds(session.remaining_ms)
    return session.client_id, seconds(session.ttl_ms), left, len(session.grants), session.resources


def _held(grant: HeldGrant) -> tuple[object, ...]:
    epoch = "-" if grant.epoch is None else grant.epoch
    held = seconds(grant.held_ms)
    return grant.grant, grant.topic, grant.partitions, grant.mode, epoch, grant.producer_name, held
