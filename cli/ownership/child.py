"""A command that runs only while something is owned, and is ended with all that it started when that is lost."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import click

from . import subreaper
from .exits import FENCED
from .manual import Adding

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
    help="Seconds from SIGTERM to SIGKILL for COMMAND when it is lost, and for what COMMAND left behind.",
)


async def run_while(
    command: Sequence[str],
    token: Mapping[str, str],
    lost: asyncio.Event,
    why: Callable[[], str],
    grace_s: float,
) -> int:
    """Run it under a subreaper, with ``token`` in its environment as STOCKADE_*; answers the exit code.

    When ``lost`` is set first, it says ``why`` and ends the command. Whichever way this ends: so has all that the
    command started.
    """
    environment = os.environ | {f"STOCKADE_{name}": value for name, value in token.items()}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", subreaper.__file__, str(theirs.fileno()), str(grace_s), *command),
            env=environment,
            start_new_session=True,
            pass_fds=[theirs.fileno()],
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, _order, ours, number)
        ended = asyncio.ensure_future(process.wait())
        losing = asyncio.ensure_future(lost.wait())
        try:
            await asyncio.wait({ended, losing}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return _code(ended.result())
            click.echo(f"Error: {why()}", err=True)
            _order(ours, subreaper.END)
            await ended
            return FENCED
        finally:
            losing.cancel()
            ours.close()  # whatever made us leave: what is left of the command ends
            await ended


def _order(ours: socket.socket, order: int) -> None:
    with suppress(OSError):
        ours.send(bytes([order]))


def _code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode
