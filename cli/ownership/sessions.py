"""`stockade sessions …`: list, describe, open, renew, end, fence."""

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any

import click

from ...client.api.client import Client
from ...partition.api.ownership import HeldGrant, ListedSession, SessionFenced
from ..orders.consent import Consent, consent_options, under_consent
from ..orders.plans import session_plan
from ..ui.connection import with_client
from ..ui.exits import PLANNED, WRITER
from ..ui.manual import Manual
from ..ui.output import count, output_option, show_json, show_rest, show_result, show_table
from ..ui.parameters import ROWS_MAX, Number, prefix_option
from ..ui.times import seconds

RENEW_TIMEOUT_MS = 10_000


@click.group(short_help="Programs that hold something, and what they hold.")
def sessions() -> None:
    """Sessions: each stands for a running program; its grants and resources end with it.

    `hold`, `own` and `produce --exclusive` open and renew their own. A script of several steps must `open` a session,
    `renew` it before its ttl ends, and `end` it. The id is a secret in a cluster without principals: with it anyone can
    write in the session's name.
    """


@sessions.command(
    "list",
    cls=Manual,
    short_help="List the live sessions.",
    examples=[
        ("Programs that are there now", "stockade sessions list"),
        (
            "Those about to expire",
            "stockade sessions list --output json | jq '.sessions[] | select(.remaining_ms < 2000)'",
        ),
    ],
)
@prefix_option
@output_option
@with_client
async def list_sessions(client: Client, prefix: str, output: str) -> None:
    """List the live sessions, at most 1,000, ascending by the program's name. Session ids are not shown: a session is
    named by its handle, as in the ledger.
    """
    found = await client.sessions(prefix, ROWS_MAX)
    if output == "json":
        show_json(found)
        return
    show_table(["CLIENT", "HANDLE", "TTL", "REMAINING", "GRANTS", "RESOURCES"], [_row(each) for each in found.sessions])
    show_rest(found.total - len(found.sessions))


@sessions.command(
    cls=Manual,
    short_help="Show what the sessions of a program hold.",
    examples=[("What the mirrors hold", "stockade sessions describe mirror")],
)
@click.argument("client_id")
@output_option
@with_client
async def describe(client: Client, client_id: str, output: str) -> None:
    """Show every session of the program CLIENT_ID, the grants that it holds, and for how long."""
    listed = await client.sessions(client_id, ROWS_MAX)
    found = [each for each in listed.sessions if each.client_id == client_id]
    if not found:
        raise click.ClickException(f"{client_id} has no live session; `stockade sessions list` shows who has.")
    if output == "json":
        show_json(found)
        return
    for session in found:
        click.echo(
            f"{client_id} ({session.handle}): ttl {seconds(session.ttl_ms)}, {seconds(session.remaining_ms)} left,"
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
    "--ttl",
    "ttl_s",
    default=30.0,
    show_default=True,
    type=Number(1, 300),
    help="Seconds that the session lives without a renewal.",
)
@output_option
@with_client
async def open_session(client: Client, client_id: str, ttl_s: float, output: str) -> None:
    """Open a session for the program CLIENT_ID and print its id. It ends by itself when it is not renewed in time."""
    opened = await client.open_session(client_id, int(ttl_s * 1000))
    show_result(opened, opened.session, output)


@sessions.command(cls=Manual, exits=WRITER, examples=[("Between two steps", 'stockade sessions renew "$SESSION"')])
@click.argument("session")
@output_option
@with_client
async def renew(client: Client, session: str, output: str) -> None:
    """Give SESSION its full ttl again, from now. Exit code 5 if it has ended: then all that it held is lost."""
    renewed = await client.renew_session(session, min(RENEW_TIMEOUT_MS, client.config.request_timeout_ms))
    show_result(renewed, f"{renewed.client_id}: {seconds(renewed.remaining_ms)} left", output)


@sessions.command(cls=Manual, examples=[("At the end", 'stockade sessions end "$SESSION"')])
@click.argument("session")
@output_option
@with_client
async def end(client: Client, session: str, output: str) -> None:
    """End SESSION. When this returns, everything that it held is free. Safe if it has ended already.

    To end one whose id you do not have, use `stockade sessions fence HANDLE`.
    """
    await client.close_session(session)
    show_result({"session": session, "ended": True}, "ended", output)


@sessions.command(
    cls=Manual,
    short_help="End the session of another program.",
    exits=PLANNED,
    examples=[
        ("What would end with it?", "stockade sessions fence 5d41402abc4b2a76 --plan"),
        ("A program that hangs", 'stockade sessions fence 5d41402abc4b2a76 --reason "mirror-1 hangs" --yes'),
    ],
)
@click.argument("handle")
@click.option("--reason", help="Shown in the history of its partitions and in the ledger, at most 200 characters.")
@consent_options
@output_option
@with_client
async def fence(client: Client, handle: str, reason: str | None, output: str, *, consent: Consent) -> None:
    """End the session that `stockade sessions list` shows with HANDLE. When this returns, everything that it held is
    free, and the log refuses its writes.

    Its program may open another one: take its rights away first (`stockade principals`) if it must not come back.
    """

    def act(conditions: Mapping[str, Any]) -> Awaitable[SessionFenced]:
        return client.fence_session(handle, reason=reason, **conditions)

    fenced = await under_consent(consent, output, partial(session_plan, client, handle), act)
    ended = f"{count(len(fenced.grants), 'grant')}, {count(fenced.resources, 'resource')}"
    show_result(fenced, f"ended the session of {fenced.client_id}: {ended}", output)


def _row(session: ListedSession) -> tuple[object, ...]:
    left = seconds(session.remaining_ms)
    return (
        session.client_id,
        session.handle or "-",
        seconds(session.ttl_ms),
        left,
        len(session.grants),
        session.resources,
    )


def _held(grant: HeldGrant) -> tuple[object, ...]:
    epoch = "-" if grant.epoch is None else grant.epoch
    held = seconds(grant.held_ms)
    return grant.grant, grant.topic, grant.partitions, grant.mode, epoch, grant.producer_name, held
