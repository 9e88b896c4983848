"""`stockade serve`: runs one node, or the nodes of one machine.

A new node with `join` in its configuration registers itself at a node of the running cluster first, and takes the
members from its answer.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import pyarrow as pa
import uvloop
from msgspec import structs

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...cluster.access.issuers import Issuers, KeyFile
from ...cluster.access.principals import Access
from ...cluster.condition import aligned_s
from ...cluster.config import ConfigError, NodeConfig, parse_address
from ...cluster.discovery.cluster_view import is_member
from ...cluster.https import HttpTls
from ...cluster.machines import PROCESSES_MAX, Member
from ...cluster.node.node import Node, view_of
from ...cluster.node.node_service import why_stopped
from ...cluster.tiered.place import probe
from ...http_api.app import LINGER_S, HttpServer, start_http
from ...partition.api.cluster import Cluster
from ...partition.errors import StockadeError
from ...partition.log.fsutil import keep_descriptors, why_refused
from ...raft.net.tls import TlsFault
from ...raft.wal.errors import DiskRefused, WalLocked, WalStalled
from ..service.environment import configured, listed, load, unusable
from ..service.notify import ServiceManager
from ..ui.exits import LOCAL, REFUSED
from ..ui.manual import Manual
from ..ui.parameters import WholeNumber
from . import logs
from .descriptors import allowed, bounds, raise_limit, said
from .issuer_keys import follow
from .leaving import end_stalled, leaving
from .node_processes import PASSED_ON, NodeProcesses, cannot_write, check_data, in_use
from .reload import Principals, Reloadable, Reloader
from .supervisor import parent_of

ASK_AGAIN_S = 1.0
"""Seconds between two attempts to join, while no node has admitted this one."""

_joining_log = logging.getLogger(__name__)


async def joined(config: NodeConfig) -> NodeConfig:
    """The configuration with all members of the cluster that this node joins; unchanged if ``join`` is empty, or the
    node has joined before. Repeats the request until a node answers it. Raises ConfigError if the nodes of ``join``
    belong to a cluster with another ``cluster_id``.
    """
    if not config.join or is_member(Path(config.data_dir)):
        return config
    cluster = await _register(config)
    if cluster.cluster_id != config.cluster_id:
        raise ConfigError([f"cluster_id: {', '.join(config.join)} belongs to the cluster {cluster.cluster_id}"])
    others = [
        Member(node.node_id, node.url, node.raft_address, node.zone)
        for node in cluster.nodes
        if node.node_id != config.node_id
    ]
    return structs.replace(config, members=[config.me, *others])


async def _register(config: NodeConfig) -> Cluster:
    me = config.me
    while True:
        async with Client(_as_client(config)) as client:
            try:
                cluster = await client.connect()
                # To add a node again calls its removal off, which is for an operator to say.
                is_leaving = any(node.node_id == me.node_id and node.draining for node in cluster.nodes)
                if cluster.cluster_id == config.cluster_id and not is_leaving:
                    cluster = await client.add_node(me.node_id, me.url, me.raft, me.zone)
            except StockadeError as error:
                _joining_log.warning("waiting to join through %s: %s", ", ".join(config.join), error.detail)
            else:
                return cluster
        await asyncio.sleep(ASK_AGAIN_S)


def _as_client(config: NodeConfig) -> ClientConfig:
    """The configuration of the client with which this node asks to join: it shows the node's own certificate."""
    tls = config.http_tls
    if tls is None:
        return ClientConfig.of(config.join)
    return ClientConfig(bootstrap=config.join, ca=tls.ca, certificate=tls.certificate, key=tls.key)


GARBAGE_THRESHOLD = 50_000
"""New objects after which Python's garbage collector looks for cycles: requests make many objects, but few cycles."""

_log = logging.getLogger("stockade")


@click.command(
    cls=Manual,
    exits=LOCAL,
    means={REFUSED: "The configuration or the disk cannot be used, or a failure stopped the node."},
    examples=[
        ("Run a node", "stockade serve --config node.toml"),
        ("Every fault of a configuration at once", "stockade serve --config node.toml --check"),
        ("Lines for a program that reads logs", "stockade serve --config node.toml --log-format json"),
        ("Four nodes on this machine", "stockade serve --config node.toml --processes 4"),
        ("Every setting from the environment, as in a container", "STOCKADE_NODE_ID=n1 … stockade serve"),
    ],
)
@click.option(
    "--config",
    envvar="STOCKADE_CONFIG",
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The node's TOML file. Variables STOCKADE_… say single settings, or without a file all of them.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Check the configuration, whose the data folder is, and the tiered store's place, and do not run.",
)
@click.option(
    "--processes",
    type=WholeNumber(1, PROCESSES_MAX),
    help="Run so many nodes on this machine, each in a process of its own. Default: `processes` of the file.",
)
@click.option(
    "--log-format",
    envvar="STOCKADE_LOG_FORMAT",
    show_envvar=True,
    type=click.Choice(logs.FORMATS),
    default="text",
    show_default=True,
    help="How a line of the log looks: for people, or one JSON object.",
)
@click.option(
    "--log-level",
    envvar="STOCKADE_LOG_LEVEL",
    show_envvar=True,
    type=click.Choice(logs.LEVELS),
    default="info",
    show_default=True,
    help="The least that is logged. SIGUSR1 turns debug on, and off again.",
)
@click.option("--with-parent", is_flag=True, hidden=True, help="End when the process that started this one is gone.")
@click.option("--process", "number", type=WholeNumber(1), hidden=True, help="Run this node of the machine.")
def serve(
    config: Path | None,
    check: bool,
    processes: int | None,
    log_format: logs.Format,
    log_level: str,
    with_parent: bool,
    number: int | None,
) -> None:
    """Run one node until SIGTERM or Ctrl-C.

    A setting is taken from the command line, or else from its environment variable, or else from the file.
    STOCKADE_LIMITS__WAL_BYTES_MAX is `limits.wal_bytes_max`; with _FILE behind it, a variable names a file that holds
    the value. docs/settings.md has the names of all.

    With `processes`, run so many nodes on this machine, and start again what ends. When one of them cannot start, all
    stop.
    """
    settings, source = _usable(config, processes)
    if check:
        limit = allowed()
        tiered = settings.tiered
        faults = [] if (why := cannot_write(Path(settings.data_dir))) is None else [f"data_dir: {why}"]
        faults = faults or [why for node in settings.nodes() if (why := _refused(node)) is not None]
        if tiered is not None and (fault := probe(tiered.place, settings.cluster_id)) is not None:
            faults.append(fault)
        if faults:
            raise unusable(source, faults)
        click.echo(f"{source} is fine: {_summary(settings)}")
        click.echo(f"A node takes {said(bounds(settings.limits, limit), limit)}")
        if tiered is not None:
            click.echo(f"The tiered store at {tiered.place} takes, gives back and removes a file")
        return
    nodes = settings.nodes()
    if number is not None and number > len(nodes):
        raise click.ClickException(f"{source} has no node {number} any more: it has {len(nodes)}")
    name = settings.node_id if number is None else nodes[number - 1].node_id
    manager, again = ServiceManager.taken(), partial(load, config, processes, with_files=False)
    parent = parent_of(os.environ) if with_parent else None
    with logs.logging_to_stderr(log_level, log_format, name, is_one_of_many=number is not None):
        if number is not None:
            _run_node(nodes[number - 1], parent, manager, again)
        elif settings.processes is None:
            _run_node(settings, parent, manager, again)
        else:
            command = _command(config, processes, log_format, log_level)
            if faults := NodeProcesses(settings, command, manager).run(parent):
                raise click.ClickException(f"machine {settings.node_id} stopped:\n{listed(faults)}")


def _usable(config: Path | None, processes: int | None) -> tuple[NodeConfig, str]:
    """The configuration and the name of its source (`configured`), for nodes that are to run here. Raises
    ClickException, also with the data on the disk that contradict it, or with a limit of open files that is too low.
    """
    settings, source = configured(config, processes)
    try:
        check_data(settings)
        bounds(settings.limits, allowed())
    except ConfigError as error:
        raise unusable(source, error.faults) from error
    return settings, source


def _refused(node: NodeConfig) -> str | None:
    """Why a node would not start with the data folder that it has, as one of another node, cluster or release; None if
    it would. Blocks.
    """
    try:
        view_of(node)
    except DiskRefused as error:
        return str(error)
    except OSError as error:
        return f"data_dir: {CannotStart(error)}"
    return None


def _summary(settings: NodeConfig) -> str:
    place = f"joins through {', '.join(settings.join)}" if settings.join else f"of {len(settings.members)}"
    if settings.processes is None:
        return f"node {settings.node_id} {place}"
    nodes = ", ".join(f"{node.node_id} ({node.http}, raft {node.raft_listen})" for node in settings.nodes())
    return f"machine {settings.node_id} of {nodes}; {place}"


def _command(config: Path | None, processes: int | None, log_format: str, log_level: str) -> list[str]:
    """The command line that runs a node of this machine; the caller appends the number of the node."""
    words = ["--log-format", log_format, "--log-level", log_level]
    words += [] if config is None else ["--config", str(config)]
    words += [] if processes is None else ["--processes", str(processes)]
    return [sys.executable, "-m", "stockade", "serve", "--with-parent", *words, "--process"]


def _run_node(
    settings: NodeConfig, parent: int | None, manager: ServiceManager, again: Callable[[], NodeConfig]
) -> None:
    raise_limit()
    keep_descriptors()
    make_first_array()
    with leaving():
        try:
            sys.exit(uvloop.run(run(settings, parent, manager, again)))
        except (ConfigError, DiskRefused, TlsFault, WalLocked) as error:
            raise click.ClickException(str(error)) from error
        except CannotStart as error:
            faults = in_use([settings]) or [str(error)]
            raise click.ClickException(f"node {settings.node_id} cannot start:\n{listed(faults)}") from error


class CannotStart(Exception):
    """The operating system refused a file or socket that a node needs to start. The text names it and the reason."""

    def __init__(self, error: OSError) -> None:
        super().__init__(why_refused(error))


def make_first_array() -> None:
    """Make pyarrow's first array of Python objects before the event loop runs: with that array pyarrow imports pandas,
    if it is installed, which takes half a second. Otherwise the first record with headers would wait for the import.
    """
    pa.array([b""])


async def run(
    settings: NodeConfig, parent: int | None, manager: ServiceManager, again: Callable[[], NodeConfig]
) -> int:
    """Run the node until a signal or a failure, and return the exit code. ``again`` reads its configuration again, for
    its principals alone.
    """
    loop = asyncio.get_running_loop()
    stopping, hung_up = asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, hung_up.set)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    tasks = [asyncio.ensure_future(manager.stay_alive())]
    if parent is not None:
        tasks.append(asyncio.ensure_future(_watch_parent(parent, stopping)))
    stopped = asyncio.ensure_future(stopping.wait())
    joining = asyncio.ensure_future(joined(settings))
    manager.status("waiting to join" if settings.join else "starting")
    await asyncio.wait((joining, stopped), return_when=asyncio.FIRST_COMPLETED)
    if not joining.done():
        joining.cancel()
        return 0

    def failed(error: BaseException) -> None:
        stopping.set()
        if isinstance(error, WalStalled):
            end_stalled()

    node, http, reloader = await _start(settings, joining.result(), failed, again)
    tasks.append(asyncio.ensure_future(reloader.watch()))
    _serve_manager(manager, reloader, f"node {settings.node_id} serves on {settings.http}", hung_up)
    await stopped
    manager.stopping()
    http.leave()
    await node.transfer_leadership()
    await asyncio.sleep(LINGER_S)
    await http.close()
    await node.stop()
    for task in tasks:
        task.cancel()
    if node.failure is not None:
        _log.critical("the node stopped because of a failure: %s", why_stopped(node.failure))
    return 1 if node.failure is not None else 0


async def _start(
    settings: NodeConfig,
    in_cluster: NodeConfig,
    failed: Callable[[BaseException], None],
    again: Callable[[], NodeConfig],
) -> tuple[Node, HttpServer, Reloader]:
    """Start the node with ``in_cluster``, its configuration with all members, then its HTTP server and its reloader.
    Raises CannotStart, and the errors of Node.start.
    """
    try:
        node = await Node.start(in_cluster, on_failure=failed)
    except OSError as error:
        raise CannotStart(error) from error
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
    try:
        return node, *await _listen(settings, node, again)
    except OSError as error:
        await node.stop()
        raise CannotStart(error) from error


def _serve_manager(manager: ServiceManager, reloader: Reloader, status: str, hung_up: asyncio.Event) -> None:
    """Tell the service manager that the node is ready, and read the files again at each SIGHUP from now on; at once if
    one came while the node started (``hung_up``): the files may have changed after the node had read them.

    Here a node is ready when it answers requests, even before its groups have a majority: a service manager that starts
    one machine after another would otherwise wait for the first, which waits for the others. `/readyz` tells whether
    the cluster serves.
    """

    def reload() -> None:
        manager.reloading()
        reloader.reload()
        manager.ready(status)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    manager.ready(status)
    if hung_up.is_set():
        reload()


async def _listen(settings: NodeConfig, node: Node, again: Callable[[], NodeConfig]) -> tuple[HttpServer, Reloader]:
    """Start the node's HTTP server; returns it with the reloader of the node's certificates, keys and principals."""
    section = settings.http_tls
    tls = None if section is None else HttpTls(section)
    plain = None if section is None or section.plain_listen is None else parse_address(section.plain_listen)
    limit = allowed()
    found = bounds(settings.limits, limit)
    issuers = Issuers(settings.issuers)
    access = Access(settings.tokens, settings.principals, issuers=issuers)
    http = await start_http(
        node.service,
        *parse_address(settings.http),
        access,
        tls=tls,
        plain=plain,
        bounds=found,
        hosts=settings.hosts,
    )
    _log.info("node %s takes %s", settings.node_id, said(found, limit))
    _log.info("node %s listens on %s://%s", settings.node_id, "http" if tls is None else "https", settings.http)
    if settings.open_to_all:
        _log.warning("every client that reaches node %s may do everything: open_to_all", settings.node_id)
    if section is not None and plain is not None:
        _log.warning("node %s also listens on http://%s, without TLS", settings.node_id, section.plain_listen)
    sections = {"http_tls": tls, "raft.tls": node.tls}
    files: dict[str, Reloadable] = {name: found for name, found in sections.items() if found is not None}
    files["principals"] = Principals(access, again)
    files |= {f"issuers.{each.name}": KeyFile(issuers, each.name, each.keys) for each in issuers.all if each.keys}
    return http, Reloader(files, [partial(follow, issuers, each) for each in issuers.all if each.keys_url])


async def _watch_parent(parent: int, stopping: asyncio.Event) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 (no signal announces it)
        await asyncio.sleep(aligned_s(1.0))
    _log.warning("the process that started this node is gone: stopping")
    stopping.set()
