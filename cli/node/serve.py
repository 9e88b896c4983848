"""`stockade serve`: one node, for real deployments."""

import asyncio
import gc
import logging
import os
import signal
import sys
from pathlib import Path

import click
import uvloop

from ..cluster.book import BookDamaged
from ..cluster.config import ConfigError, NodeConfig, load, parse_address
from ..cluster.node import Node
from ..http_api.app import LINGER_S, start_http
from ..http_api.tokens import Tokens
from ..partition.switches import warning
from ..raft.refusal import DiskRefused
from ..raft.wal import WalLocked
from .exits import LOCAL, REFUSED
from .joining import joined
from .manual import Manual

GARBAGE_THRESHOLD = 50_000
"""Objects made, less those freed, between two looks for cycles. Requests make many objects and few cycles."""

_log = logging.getLogger("stockade")


@click.command(
    cls=Manual,
    exits=LOCAL,
    means={REFUSED: "A configuration or a disk that cannot be used, or a failure that made it stop."},
    examples=[
        ("Run a node", "stockade serve --config node.toml"),
        ("Every fault of a configuration at once", "stockade serve --config node.toml --check"),
    ],
)
@click.option("--config", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The node's TOML file.")
@click.option("--check", is_flag=True, help="Only check the configuration.")
@click.option("--with-parent", is_flag=True, hidden=True, help="End when the process that started this one is gone.")
def serve(config: Path, check: bool, with_parent: bool) -> None:
    """Run one node until SIGTERM or Ctrl-C. Exit code 1 after a failure that made it stop."""
    try:
        settings = load(config)
    except ConfigError as error:
        faults = "\n".join(f"  - {fault}" for fault in error.faults)
        raise click.ClickException(f"{config} cannot be used:\n{faults}") from error
    if check:
        place = f"joins through {', '.join(settings.join)}" if settings.join else f"of {len(settings.members)}"
        click.echo(f"{config} is fine: node {settings.node_id} {place}")
        return
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if (switched := warning()) is not None:
        _log.critical(switched)
    try:
        sys.exit(uvloop.run(run(settings, with_parent)))
    except (ConfigError, BookDamaged, DiskRefused, WalLocked) as error:
        raise click.ClickException(str(error)) from error


async def run(settings: NodeConfig, with_parent: bool) -> int:
    """Run the node until a signal or a failure; the exit code."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    watching = asyncio.ensure_future(_watch_parent(stopping)) if with_parent else None
    stopped = asyncio.ensure_future(stopping.wait())
    joining = asyncio.ensure_future(joined(settings))
    await asyncio.wait((joining, stopped), return_when=asyncio.FIRST_COMPLETED)
    if not joining.done():
        joining.cancel()
        return 0
    node = Node(joining.result(), on_failure=lambda _: stopping.set())
    await node.start()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
    tokens = Tokens({token.sha256: token.may for token in settings.tokens})
    http = await start_http(node.service, *parse_address(settings.http), tokens)
    _log.info("node %s listens on http://%s", settings.node_id, settings.http)
    await stopped
    if watching is not None:
        watching.cancel()
    http.leave()
    await node.hand_over()
    await asyncio.sleep(LINGER_S)
    await http.close()
    await node.stop()
    if node.failure is not None:
        _log.critical("the node stopped because of a failure: %r", node.failure)
    return 1 if node.failure is not None else 0


async def _watch_parent(stopping: asyncio.Event) -> None:
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 (no signal tells)
        await asyncio.sleep(1.0)
    _log.warning("the process that started this node is gone: stopping")
    stopping.set()
