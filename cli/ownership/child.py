"""Runs COMMAND only while a grant or a resource is held; ends COMMAND, with all that it started, at the loss."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import NamedTuple

import click

from ...client.session.held import ASK_AGAIN_S
from ...client.session.reacquire import can_pass
from ...partition.errors import StockadeError
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
    type=Number(0, 300),
    callback=lambda context, _, given: context.params["ttl_s"] / 6 if given is None else given,
    help="Seconds between SIGTERM and SIGKILL when COMMAND, or what it left behind, must end. Below a fifth of --ttl,"
    " COMMAND has ended before another session may own in its place, unless that one evicts it; otherwise the two may"
    " overlap for so long. Default: a sixth of --ttl.",
)

reacquire_option: Adding = click.option(
    "--reacquire",
    is_flag=True,
    help="After a loss, wait until it is free, acquire it again with a new epoch, and start COMMAND again.",
)


class Held(NamedTuple):
    """A grant or a resource while COMMAND runs. ``token``: COMMAND's variables STOCKADE_*, without the prefix; ``lost``
    is set at the loss, and ``why`` then gives the reason.
    """

    token: Mapping[str, str]
    lost: asyncio.Event
    why: Callable[[], str]


async def run_held(
    hold: Callable[[bool], AbstractAsyncContextManager[Held]],
    command: Sequence[str],
    grace_s: float,
    *,
    reacquire: bool,
) -> int:
    """Run the command inside ``hold(False)``, which acquires; return its exit code, or FENCED after a loss.

    With ``reacquire`` the command ends at a loss, and starts again once ``hold(True)`` has acquired again, which is
    repeated after refusals that can pass. Nothing is held between two attempts, so that two commands that each wait
    cannot block each other.
    """
    again = False
    while True:
        try:
            async with hold(again) as held:
                code = await run_while(command, held, grace_s)
        except StockadeError as error:
            if not again or not can_pass(error):
                raise
            await asyncio.sleep(ASK_AGAIN_S)
            continue
        if not (reacquire and code == FENCED and held.lost.is_set()):
            return code
        again = True


async def run_while(command: Sequence[str], held: Held, grace_s: float) -> int:
    """Run the command under a subreaper; return its exit code, or FENCED after a loss.

    If ``held`` is lost first, print why and end the command. When this returns, also by an exception, every process
    that the command started has ended.
    """
    environment = os.environ | {f"STOCKADE_{name}": value for name, value in held.token.items()}
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", subreaper.__file__, str(theirs.fileno()), str(grace_s), *command),
            env=environment,
            start_new_session=True,
            pass_fds=[theirs.fileno()],
        )
        before = {number: signal.getsignal(number) for number in _PASSED_ON}
        for number in _PASSED_ON:
            loop.add_signal_handler(number, _order, ours, number)
        ended = asyncio.ensure_future(process.wait())
        losing = asyncio.ensure_future(held.lost.wait())
        try:
            await asyncio.wait({ended, losing}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return _code(ended.result())
            click.echo(f"Error: {held.why()}", err=True)
            _order(ours, subreaper.END)
            await ended
            return FENCED
        finally:
            losing.cancel()
            ours.close()  # end of file tells the subreaper to end every process of the command
            await ended
            for number, handler in before.items():  # without a command the signals are for this process again
                loop.remove_signal_handler(number)
                signal.signal(number, handler)


_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _order(ours: socket.socket, order: int) -> None:
    with suppress(OSError):
        ours.send(bytes([order]))


def _code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode
