"""The options of all commands that talk to a cluster, and how such a command runs and ends."""

import functools
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import uvloop

from ...client.api.client import Client
from ...client.config import BOUNDS, DEFAULT_BOOTSTRAP, ClientConfig, InvalidConfig
from ...partition.errors import StockadeError
from .exits import INTERRUPTED, fail
from .manual import Adding, Connection

TIMEOUT_S, TIMEOUT_S_MIN, TIMEOUT_S_MAX = 30.0, 0.1, 3600.0
ATTEMPTS_MIN = 3
"""Attempts for which --timeout has time at least: a node that hangs may use up one of them."""

OPTIONS: list[Adding] = [
    click.option(
        "--url",
        "--bootstrap",
        cls=Connection,
        envvar="STOCKADE_URL",
        show_envvar=True,
        default=",".join(DEFAULT_BOOTSTRAP),
        help="Base URL of a node, or several separated by commas; the command learns of the other nodes from it."
        " Without a scheme it is http: localhost:7101."
        " Default: the nodes of a local cluster, ports 7101 to 7103.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        cls=Connection,
        envvar="STOCKADE_TIMEOUT",
        show_envvar=True,
        default=TIMEOUT_S,
        show_default=True,
        type=float,
        metavar="SECONDS",
        help="How long to retry while the cluster gives no decision, 0.1 to 3600.",
    ),
    click.option(
        "--token-file",
        cls=Connection,
        envvar="STOCKADE_TOKEN_FILE",
        show_envvar=True,
        metavar="FILE",
        help="File with a bearer token, if the cluster needs one; a command that runs on uses the token that it has by"
        " then. Or put the token into STOCKADE_TOKEN.",
    ),
    click.option(
        "--ca",
        cls=Connection,
        envvar="STOCKADE_CA",
        show_envvar=True,
        metavar="FILE",
        help="PEM file of the authorities to trust for https. Default: those of the system.",
    ),
    click.option(
        "--certificate",
        cls=Connection,
        envvar="STOCKADE_CERTIFICATE",
        show_envvar=True,
        metavar="FILE",
        help="PEM file of a client certificate, if the cluster needs one.",
    ),
    click.option(
        "--key",
        cls=Connection,
        envvar="STOCKADE_KEY",
        show_envvar=True,
        metavar="FILE",
        help="PEM file of its private key. Default: the key is in the file of the certificate.",
    ),
]


def with_client(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Like ``with_config``, but the first parameter is a client that has reached the cluster; it is open while the body
    runs.
    """

    @functools.wraps(command)
    async def body(config: ClientConfig, *args: Any, **options: Any) -> None:
        async with Client(config) as client:
            await client.connect()
            await command(client, *args, **options)

    return with_config(body)


def with_config(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a coroutine function the body of a command with the connection options.

    Its first parameter is the client's configuration. A refusal is explained on standard error and decides the exit
    code; so does Ctrl-C.
    """

    @functools.wraps(command)
    def run(
        *args: Any,
        url: str,
        timeout_s: float,
        token_file: str | None,
        ca: str | None,
        certificate: str | None,
        key: str | None,
        **options: Any,
    ) -> None:
        config = configured(url, timeout_s, token_file, {"ca": ca, "certificate": certificate, "key": key})
        try:
            uvloop.run(command(config, *args, **options))
        except StockadeError as error:
            fail(error, as_json=options.get("output") == "json")
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            # The reader of our output, such as `head`, has closed it: what is still buffered cannot be written.
            sys.stdout = None
            sys.exit(0)

    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(OPTIONS), run)


def configured(url: str, timeout_s: float, token_file: str | None, files: dict[str, str | None]) -> ClientConfig:
    """The client's configuration. Raises click.UsageError that lists every fault."""
    faults = []
    if not TIMEOUT_S_MIN <= timeout_s <= TIMEOUT_S_MAX:
        faults.append(f"--timeout: {timeout_s} is not from {TIMEOUT_S_MIN} to {TIMEOUT_S_MAX:g} seconds")
        timeout_s = TIMEOUT_S
    given: dict[str, str] = {name: file for name, file in files.items() if file}
    try:
        given |= {} if token_file is None else _token(token_file)
    except OSError as error:
        faults.append(f"--token-file: {token_file}: {error.strerror}")
    config = None
    try:
        config = _config(url, int(timeout_s * 1000), given)
    except InvalidConfig as error:
        faults += map(_as_option, error.faults)
    if faults or config is None:
        raise click.UsageError("\n".join(_listed(faults)))
    return config


def _config(url: str, timeout_ms: int, given: dict[str, str]) -> ClientConfig:
    defaults = ClientConfig(token=None)
    settings: dict[str, Any] = {"token": os.environ.get("STOCKADE_TOKEN") or None} | given
    return replace(
        defaults,
        bootstrap=url,
        request_timeout_ms=_one_attempt_ms(timeout_ms, defaults.request_timeout_ms),
        delivery_timeout_ms=min(timeout_ms + defaults.linger_ms, BOUNDS["delivery_timeout_ms"][1]),
        **settings,
    )


def _one_attempt_ms(timeout_ms: int, most: int) -> int:
    return max(min(timeout_ms // ATTEMPTS_MIN, most), BOUNDS["request_timeout_ms"][0])


def _token(path: str) -> dict[str, str]:
    """The setting for a token's file, which is read again when it has changed, or for what comes out of a pipe."""
    if Path(path).is_file():
        return {"token_file": path}
    return {"token": Path(path).read_text(encoding="utf-8", errors="replace").strip()}


def _as_option(fault: str) -> str:
    name, colon, rest = fault.partition(":")
    return f"--{'url' if name == 'bootstrap' else name.replace('_', '-')}{colon}{rest}"


def _listed(faults: list[str]) -> Iterator[str]:
    if len(faults) == 1:
        yield faults[0]
        return
    yield "several options are wrong:"
    for fault in faults:
        yield f"  - {fault}"
