"""`stockade hold`: run a command only while this process owns the partitions."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.fencing import Fence, Session
from ..client.model import Mode
from .output import EXIT_CODES, connected, explain

LOST = 5
"""Exit code: the command was ended because the partitions were lost."""
NOT_RUN = 127
"""Exit code of shells for a command that is not there."""

_PR_SET_PDEATHSIG = 1
_MODES: dict[str, Mode] = {
    "exclusive": "Exclusive",
    "wait": "WaitForExclusive",
    "fencing": "ExclusiveWithFencing",
}


@click.command(
    epilog=f"{EXIT_CODES} {LOST}: the partitions were lost and the command was ended. {NOT_RUN}: no such command."
    " Otherwise the exit code of COMMAND, 128 + its number if a signal ended it.",
)
@click.argument("topic")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--partition", "partitions", multiple=True, type=click.IntRange(0), help="Repeatable. Default: all.")
@click.option(
    "--mode",
    type=click.Choice(list(_MODES)),
    default="exclusive",
    show_default=True,
    help="exclusive: refused while somebody else owns one of them. wait: run when its turn has come. fencing: take the"
    " place of whoever owns them.",
)
@click.option("--name", default="hold", show_default=True, help="Who this is, shown to others.")
@click.option(
    "--ttl",
    "ttl_s",
    default=10.0,
    show_default=True,
    type=click.FloatRange(1, 300),
    help="Seconds after which the ownership ends when this process can reach no node.",
)
@click.option(
    "--grace",
    "grace_s",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0, 300),
    help="Seconds from SIGTERM to SIGKILL when the partitions are lost.",
)
@connected
async def hold(
    config: ClientConfig,
    topic: str,
    command: Sequence[str],
    partitions: Sequence[int],
    mode: str,
    name: str,
    ttl_s: float,
    grace_s: float,
) -> None:
    """Own partitions of TOPIC, run COMMAND, and end it with its children as soon as they are lost.

    COMMAND finds the fencing token in STOCKADE_GRANT, STOCKADE_EPOCH and STOCKADE_SESSION, and TOPIC in STOCKADE_TOPIC:
    what it appends with the token is refused by the log once somebody else owns the partition, however late the signal
    comes. Example: stockade hold jobs -- ./run-the-nightly-job
    """
    async with (
        Client(config) as client,
        Session(client, name, ttl_ms=int(ttl_s * 1000)) as session,
    ):
        fence = await session.acquire(topic, list(partitions) or None, mode=_MODES[mode])
        code = await _run(command, _environment(fence, session), fence, grace_s)
        if fence.error is None:
            await session.release(fence)
    sys.exit(code)


def _environment(fence: Fence, session: Session) -> dict[str, str]:
    grant = fence.grant
    token = {"GRANT": grant.grant, "EPOCH": str(fence.epoch), "SESSION": session.id, "TOPIC": grant.topic}
    return os.environ | {f"STOCKADE_{key}": value for key, value in token.items()}


async def _run(command: Sequence[str], environment: dict[str, str], fence: Fence, grace_s: float) -> int:
    """Run it in a process group of its own; answers the exit code."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, start_new_session=True, preexec_fn=_die_with_parent
        )
    except OSError as error:
        click.echo(f"Error: {command[0]}: {error.strerror}", err=True)
        return NOT_RUN
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, _signal, process, number)
    ended = asyncio.ensure_future(process.wait())
    lost = asyncio.ensure_future(fence.lost.wait())
    try:
        await asyncio.wait({ended, lost}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return _code(ended.result())
        assert fence.error is not None
        click.echo(f"Error: lost {fence.grant.topic}: {explain(fence.error)}", err=True)
        await _end(process, ended, grace_s)
        return LOST
    finally:
        lost.cancel()
        _signal(process, signal.SIGKILL)


def _die_with_parent() -> None:
    """Whatever ends us, the command does not go on alone (Linux; elsewhere only the log protects)."""
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def _end(process: asyncio.subprocess.Process, ended: "asyncio.Future[int]", grace_s: float) -> None:
    _signal(process, signal.SIGTERM)
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(ended), grace_s)
    _signal(process, signal.SIGKILL)
    await ended


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    """To the command and whatever it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode
