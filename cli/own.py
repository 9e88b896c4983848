"""`stockade own|claim|disown`: exclusive ownership of anything that has a name, for a command or for a session."""

import asyncio
import sys
from collections.abc import Sequence

import click

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.fencing import Session
from ..client.model import Owned
from ..client.owning import ASK_AGAIN_S, Ownership
from ..partition.errors import GenerationFenced
from .child import grace_option, run_while, ttl_option
from .connection import connected
from .exits import WRITER, explain
from .hold import RUN_EXITS, RUN_MEANS
from .manual import Manual
from .names import GROUP
from .output import output_option, show_json, told, waiting

_wait = click.option("--wait", is_flag=True, help="Until it is free, in place of being refused.")
_generation = click.option(
    "--generation",
    type=click.IntRange(0),
    help="Take it over from an owner with a generation up to this one; 0 always wins. Default: only what is free.",
)


@click.command(
    cls=Manual,
    short_help="Run a command only while it owns what you name.",
    exits=RUN_EXITS,
    means=RUN_MEANS,
    examples=[
        ("One leader of a service; the others stand by", "stockade own services scheduler --wait -- ./scheduler"),
        ("Take it over from whoever has generation 3", "stockade own shards shard-7 --generation 4 -- ./worker 7"),
    ],
)
@click.argument("group", type=GROUP)
@click.argument("resource")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@_wait
@_generation
@click.option("--name", default="own", show_default=True, help="Who this is, shown to others.")
@ttl_option
@grace_option
@connected
async def own(
    config: ClientConfig,
    group: str,
    resource: str,
    command: Sequence[str],
    generation: int | None,
    name: str,
    ttl_s: float,
    grace_s: float,
    *,
    wait: bool,
) -> None:
    """Own RESOURCE in GROUP while COMMAND runs, and end it with all that it started as soon as it is lost.

    RESOURCE is any text of 1 to 1024 bytes. COMMAND finds STOCKADE_GROUP, STOCKADE_RESOURCE, STOCKADE_SESSION,
    STOCKADE_GENERATION and STOCKADE_FENCE_EPOCH: the last only ever grows, so that other stores can refuse who is late.
    `stockade groups describe GROUP` lists who owns what. Write `--` before COMMAND.
    """
    async with Client(config) as client, Session(client, name, ttl_ms=int(ttl_s * 1000)) as session:
        with waiting(f"waiting for {resource}"):
            owned = await session.own(group, resource, generation=generation, wait=wait)
        code = await run_while(command, _token(owned, session), owned.lost, lambda: _why(owned), grace_s)
    sys.exit(code)


@click.command(
    cls=Manual,
    short_help="Own something for a session.",
    exits=WRITER,
    examples=[("In a script of several steps", 'stockade claim shards shard-7 --session "$SESSION"')],
)
@click.argument("group", type=GROUP)
@click.argument("resource")
@click.option("--session", required=True, help="Who shall own it: an id that `stockade sessions open` printed.")
@_wait
@_generation
@output_option
@connected
async def claim(
    config: ClientConfig, group: str, resource: str, session: str, generation: int | None, output: str, *, wait: bool
) -> None:
    """Own RESOURCE in GROUP for a session, as long as that lives; prints generation and fence epoch.

    Claiming again what the session owns changes nothing.
    """
    async with Client(config) as client:
        await client.connect()
        owned = await _claim(client, group, session, resource, generation, wait=wait)
    if output == "json":
        show_json(owned)
    else:
        click.echo(f"{owned.resource}: owned, generation {owned.generation}, fence epoch {owned.fence_epoch}")


@click.command(
    cls=Manual,
    short_help="Give up what a session owns.",
    exits=WRITER,
    examples=[("At the end", 'stockade disown shards shard-7 --session "$SESSION"')],
)
@click.argument("group", type=GROUP)
@click.argument("resource")
@click.option("--session", required=True, help="Whose it is.")
@output_option
@connected
async def disown(config: ClientConfig, group: str, resource: str, session: str, output: str) -> None:
    """Give up RESOURCE in GROUP. Its generation and fence epoch stay."""
    async with Client(config) as client:
        await client.connect()
        await client.disown(group, session, resource)
    told({"group": group, "resource": resource, "owned": False}, f"{resource}: given up", output)


async def _claim(
    client: Client, group: str, session: str, resource: str, generation: int | None, *, wait: bool
) -> Owned:
    with waiting(f"waiting for {resource}"):
        while True:
            try:
                [owned] = await client.own(group, session, [resource], generation=generation)
            except GenerationFenced:
                if not wait:
                    raise
            else:
                return owned
            await client.renew_session(session, client.config.request_timeout_ms)
            await asyncio.sleep(ASK_AGAIN_S)


def _token(owned: Ownership, session: Session) -> dict[str, str]:
    return {
        "GROUP": owned.group,
        "RESOURCE": owned.resource,
        "SESSION": session.id,
        "GENERATION": str(owned.generation),
        "FENCE_EPOCH": str(owned.fence_epoch),
    }


def _why(owned: Ownership) -> str:
    assert owned.error is not None
    return f"lost {owned.resource}: {explain(owned.error)}"
