"""A command that runs only while something is owned, and is ended with its children when that is lost."""

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import click

from .exits import FENCED, NOT_RUN
from .manual import Adding

_PR_SET_PDEATHSIG = 1

ttl_option: Adding = click.option(
    "--ttl",
    "ttl_s",
    default=10.0,
    show_default=True,
    type=click.FloatRange(1, 300),
    help="Seconds after which the ownership ends when this process can reach no node.",
)
grace_option: Adding = click.option(
    "--grace",
    "grace_s",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0, 300),
    help="Seconds from SIGTERM to SIGKILL when it is lost.",
)


async def run_while(
    command: Sequence[str],
    token: Mapping[str, str],
    lost: asyncio.Event,
    why: Callable[[], str],
    grace_s: float,
) -> int:
    """Run it in a process group of its own, with ``token`` in its environment as STOCKADE_*; answers the exit code.

    When ``lost`` is set first, it says ``why`` and ends the command.
    """
    environment = os.environ | {f"STOCKADE_{name}": value for name, value in token.items()}
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
    losing = asyncio.ensure_future(lost.wait())
    try:
        await asyncio.wait({ended, losing}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return _code(ended.result())
        click.echo(f"Error: {why()}", err=True)
        await _end(process, ended, grace_s)
        return FENCED
    finally:
        losing.cancel()
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
