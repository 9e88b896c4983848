"""Runs a command only while something is owned; ends it, with all that it started, when the ownership is lost."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import click

from ..ui.exits import FENCED
from ..ui.manual import Adding
from ..ui.parameters import Number
from . import subreaper

ttl_option: Adding = click.option(
    "--ttl",
    "ttl_s",
    default=10.0,
    show_default=True,
    type=Number(1, 300),
    help="Seconds until the ownership ends when this process cannot renew it at any node.",
)
grace_option: Adding = click.option(
    "--grace",
    "grace_s",
    default=5.0,
    show_default=True,
    type=Number(0, 300),
    help="Seconds between SIGTERM and SIGKILL when COMMAND, or what it left behind, must end.",
)


async def run_while(
    command: Sequence[str],
    token: Mapping[str, str],
    lost: asyncio.Event,
    why: Callable[[], str],
    grace_s: float,
) -> int:
    """Run it under a subreaper, with ``token`` in its environment as STOCKADE_*; return its exit code.

    If ``lost`` is set first, print ``why`` and end the command. When this returns, also by an exception, every process
    that the command started has ended.
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
            ours.close()  # its end tells the subreaper to end every process of the command
            await ended


def _order(ours: socket.socket, order: int) -> None:
    with suppress(OSError):
        ours.send(bytes([order]))


def _code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode
