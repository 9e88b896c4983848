"""`stockade own|claim|disown`: exclusive ownership of any named resource, for a command or for a session."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, get_args

import click
import msgspec

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...client.session.held import ASK_AGAIN_S, Ownership
from ...client.session.session import Session
from ...partition.api.ownership import OwnResult, Sever
from ...partition.errors import GenerationFenced
from ..ui.completion_names import GROUP
from ..ui.connection import with_client, with_config
from ..ui.exits import WRITER, explain
from ..ui.manual import Adding, Manual
from ..ui.output import output_option, show_result, waiting
from ..ui.parameters import WholeNumber, collected
from .child import Held, grace_option, reacquire_option, run_held, ttl_option
from .hold import RUN_EXITS, RUN_MEANS


class Terms(NamedTuple):
    """The options of a claim: further resources, and what happens while other sessions own one of them."""

    also: tuple[str, ...]
    wait: bool
    generation: int | None
    sever: Sever


_also_option: Adding = click.option(
    "--also",
    multiple=True,
    metavar="RESOURCE",
    help="One more resource of the group, may be repeated: all of them in one step, or none.",
)
_TERMS: tuple[Adding, ...] = (
    _also_option,
    click.option(
        "--wait", is_flag=True, help="Wait until it is free; without this option the command is refused at once."
    ),
    click.option(
        "--generation",
        type=WholeNumber(0),
        help="Take it over from an owner whose generation is not higher; 0 always wins. Default: only if it is free.",
    ),
    click.option(
        "--sever",
        type=click.Choice(get_args(Sever)),
        default="session",
        show_default=True,
        help="What --generation takes from the former owner: all that its session holds, or the resource alone.",
    ),
)


_with_terms = collected(Terms, "terms", _TERMS)


@click.command(
    cls=Manual,
    short_help="Run a command only while it owns a named resource.",
    exits=RUN_EXITS,
    means=RUN_MEANS,
    examples=[
        ("One leader of a service; the others stand by", "stockade own services scheduler --wait -- ./scheduler"),
        ("Take it over from an owner with generation 3", "stockade own shards shard-7 --generation 4 -- ./worker 7"),
        ("Two shards, both or none", "stockade own shards shard-7 --also shard-8 --wait -- ./worker 7 8"),
        ("Stand by again after a loss", "stockade own services scheduler --wait --reacquire -- ./scheduler"),
    ],
)
@click.argument("group", type=GROUP)
@click.argument("resource")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@_with_terms
@click.option("--name", default="own", show_default=True, help="Name of this owner, shown to others.")
@ttl_option
@grace_option
@reacquire_option
@with_config
async def own(
    config: ClientConfig,
    group: str,
    resource: str,
    command: Sequence[str],
    terms: Terms,
    name: str,
    ttl_s: float,
    grace_s: float,
    *,
    reacquire: bool,
) -> None:
    """Own RESOURCE in GROUP while COMMAND runs; end COMMAND and all that it started as soon as the ownership is lost.

    RESOURCE is any text of 1 to 1024 bytes. COMMAND finds STOCKADE_GROUP, STOCKADE_RESOURCE, STOCKADE_SESSION,
    STOCKADE_GENERATION and STOCKADE_FENCE_EPOCH. The last only grows: other stores can refuse a lower one. With --also
    these are RESOURCE's, and STOCKADE_OWNED has all of them as JSON; COMMAND ends when the first of them is lost.
    `stockade groups describe GROUP` lists who owns what. Write `--` before COMMAND.
    """
    resources = [resource, *terms.also]
    async with Client(config) as client:

        @asynccontextmanager
        async def held(again: bool) -> AsyncIterator[Held]:
            generation, wait = (None, True) if again else (terms.generation, terms.wait)
            async with Session(client, name, ttl_ms=int(ttl_s * 1000)) as session:
                with waiting(f"waiting for {', '.join(resources)}"):
                    owned = await session.own(group, resources, generation=generation, sever=terms.sever, wait=wait)
                if again:
                    epochs = ", ".join(f"{each.resource} with fence epoch {each.fence_epoch}" for each in owned)
                    click.echo(f"acquired again: {epochs}; COMMAND is started again", err=True)
                lost = asyncio.Event()
                for each in owned:
                    each.on_lost(lambda _: lost.set())
                if any(each.error is not None for each in owned):
                    lost.set()
                yield Held(_token(owned, session), lost, lambda: _why(owned))

        code = await run_held(held, command, grace_s, reacquire=reacquire)
    sys.exit(code)


@click.command(
    cls=Manual,
    short_help="Own a named resource for a session.",
    exits=WRITER,
    examples=[("In a script of several steps", 'stockade claim shards shard-7 --session "$SESSION"')],
)
@click.argument("group", type=GROUP)
@click.argument("resource")
@click.option("--session", required=True, help="Id of the session that shall own it, from `stockade sessions open`.")
@_with_terms
@output_option
@with_client
async def claim(client: Client, group: str, resource: str, session: str, terms: Terms, output: str) -> None:
    """Own RESOURCE in GROUP as long as a session lives; print its generation and fence epoch.

    With --also and --output json it prints a list. Claiming a resource again that the session owns changes nothing.
    """
    owned = await _claim(client, group, session, [resource, *terms.also], terms)
    lines = [f"{each.resource}: owned, generation {each.generation}, fence epoch {each.fence_epoch}" for each in owned]
    show_result(owned if terms.also else owned[0], "\n".join(lines), output)


@click.command(
    cls=Manual,
    short_help="Give up resources that a session owns.",
    exits=WRITER,
    examples=[
        ("At the end", 'stockade disown shards shard-7 --session "$SESSION"'),
        ("Two in one step", 'stockade disown shards shard-7 --also shard-8 --session "$SESSION"'),
    ],
)
@click.argument("group", type=GROUP)
@click.argument("resource")
@click.option("--session", required=True, help="Id of the session that owns it.")
@_also_option
@output_option
@with_client
async def disown(client: Client, group: str, resource: str, session: str, also: Sequence[str], output: str) -> None:
    """Give up RESOURCE in GROUP. Its generation and fence epoch stay.

    With --also and --output json it prints a list. If another session owns one of them, nothing is given up.
    """
    resources = [resource, *also]
    await client.disown(group, session, resources)
    facts = [{"group": group, "resource": each, "owned": False} for each in resources]
    show_result(facts if also else facts[0], "\n".join(f"{each}: given up" for each in resources), output)


async def _claim(
    client: Client,
    group: str,
    session: str,
    resources: Sequence[str],
    terms: Terms,
) -> list[OwnResult]:
    with waiting(f"waiting for {', '.join(resources)}"):
        while True:
            try:
                return await client.own(group, session, resources, generation=terms.generation, sever=terms.sever)
            except GenerationFenced:
                if not terms.wait:
                    raise
            await client.renew_session(session, client.config.request_timeout_ms)
            await asyncio.sleep(ASK_AGAIN_S)


def _token(owned: Sequence[Ownership], session: Session) -> dict[str, str]:
    first = owned[0]
    fields = [{"resource": o.resource, "generation": o.generation, "fence_epoch": o.fence_epoch} for o in owned]
    return {
        "GROUP": first.group,
        "RESOURCE": first.resource,
        "SESSION": session.id,
        "GENERATION": str(first.generation),
        "FENCE_EPOCH": str(first.fence_epoch),
        "OWNED": msgspec.json.encode(fields).decode(),
    }


def _why(owned: Sequence[Ownership]) -> str:
    lost = next(each for each in owned if each.error is not None)
    assert lost.error is not None
    return f"lost {lost.resource}: {explain(lost.error)}"
