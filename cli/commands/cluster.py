"""`stockade cluster`: runs a cluster on this machine, in the foreground.

`stockade cluster status|settings|move|transfer|add|remove|drain|balance|controllers|upgrade`: orders of an operator to
any running cluster.
"""

import signal
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...cluster.machines import PROCESSES_MAX, Member, member_faults
from ...partition.api.cluster import Cluster, LeaderInfo, Node, NodeStates, Settings
from ..local_cluster.cluster import ClusterFailed, LocalCluster
from ..node.supervisor import Stopping
from ..orders.balance import balance, controllers
from ..orders.consent import Consent, consent_options, under_consent
from ..orders.plans import removal_plan
from ..orders.progress import Absent, Leaving, Moving, until
from ..ui.completion_names import NODE, TOPIC
from ..ui.connection import with_client, with_config
from ..ui.exits import LOCAL, PLANNED, REFUSED
from ..ui.manual import Manual, ManualGroup
from ..ui.output import count, output_option, show_json, show_result, show_table, stdout_console, waiting
from ..ui.parameters import WholeNumber

_NOTHING = "-"
_wait = click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Return when the order is carried out, or at once."
)


@click.command(
    cls=Manual,
    short_help="Show machines, nodes, the controller leader, and moves.",
    examples=[
        ("Which nodes are away?", "stockade cluster status --output json | jq '.nodes[] | select(.alive | not)'")
    ],
)
@output_option
@with_config
async def status(config: ClientConfig, output: str) -> None:
    """Show the machines (zones) that have several nodes, all nodes, the leader of the controller group, and the
    partitions that are moving.
    """
    async with Client(config) as client:
        _show(await client.connect(), output)


@click.command(
    cls=Manual,
    short_help="Show the settings that nodes run with.",
    examples=[("What differs from the defaults, or between nodes?", "stockade cluster settings")],
)
@click.option("--all", "is_all", is_flag=True, help="Also those that have their default on every node.")
@output_option
@with_client
async def settings(client: Client, *, is_all: bool, output: str) -> None:
    """Show the settings of every node's configuration that were changed, or differ between nodes. A node reads them
    when it is started. Needs the right admin on the cluster.
    """
    found = await client.calls.call(Settings, "GET", "/v1/settings", params={"everywhere": "true"})
    if output == "json":
        show_json(found)
        return
    rows = [row for row, is_default in _setting_rows(found) if is_all or not is_default]
    show_table(["SETTING", "VALUE", "DEFAULT", "ON"], rows)
    if found.missing:
        click.echo(f"no answer: {', '.join(found.missing)}", err=True)


def _setting_rows(found: Settings) -> Iterator[tuple[tuple[str, str, str, str], bool]]:
    """For each value of a setting: a row (setting, value, default, nodes), and whether every node has the default."""
    values: dict[tuple[str, str, str], list[str]] = {}
    for node in found.nodes:
        for each in node.settings:
            values.setdefault((each.name, _text(each.value), _text(each.default)), []).append(node.node_id)
    for (name, value, default), nodes in sorted(values.items()):
        is_everywhere = len(nodes) == len(found.nodes)
        is_default = is_everywhere and value in (default, _NOTHING)
        yield (name, value, default, "all" if is_everywhere else ", ".join(nodes)), is_default


def _text(value: str | int | bool | list[str] | None) -> str:
    match value:
        case None:
            return _NOTHING
        case list():
            return ", ".join(value) or "none"
        case int() if not isinstance(value, bool):
            return f"{value:,}"
        case _:
            return str(value)


@click.command(
    cls=Manual,
    short_help="Move a partition to other nodes.",
    examples=[("From n3 to n4", "stockade cluster move orders 0 n1,n2,n4")],
)
@click.argument("topic", type=TOPIC)
@click.argument("partition", type=WholeNumber(0))
@click.argument("nodes")
@_wait
@output_option
@with_client
async def move(client: Client, topic: str, partition: int, nodes: str, *, wait: bool, output: str) -> None:
    """Move PARTITION of TOPIC to NODES, separated by commas: an odd number of them.

    A new node copies the partition and becomes a voter before an old one leaves; writers go on meanwhile. A second
    order replaces the first; ordering the old nodes cancels the move. A command that waits for a replaced move fails.
    Once all partitions of TOPIC were moved to another number of nodes, new partitions get as many replicas.
    """
    wanted = [node.strip() for node in nodes.split(",")]
    name = f"{topic}/{partition}"
    await client.reassign(topic, partition, wanted)
    if wait:
        with waiting(f"moving {name}"):
            await until(Moving(client, topic, partition, wanted, partial(click.echo, err=True)).is_done)
    facts = {"topic": topic, "partition": partition, "replicas": wanted, "done": wait}
    show_result(facts, f"{name}: {'on' if wait else 'moving to'} {', '.join(wanted)}", output)


@click.command(
    cls=Manual,
    short_help="Transfer the leadership of a partition.",
    examples=[
        ("Off a node whose disk is slow", "stockade cluster transfer orders 0 --to n2"),
        ("The controller too", "stockade cluster transfer --controller"),
    ],
)
@click.argument("topic", required=False, type=TOPIC)
@click.argument("partition", type=WholeNumber(0), required=False)
@click.option("--controller", is_flag=True, help="Transfer the leadership of the controller group.")
@click.option("--to", "node_id", type=NODE, help="The new leader. Default: any other replica.")
@output_option
@with_config
async def transfer(
    config: ClientConfig,
    topic: str | None,
    partition: int | None,
    *,
    controller: bool,
    node_id: str | None,
    output: str,
) -> None:
    """Transfer the leadership of PARTITION of TOPIC to another replica. Writers wait for a moment, and go on.

    The new leader's node becomes the partition's home: leadership does not return by itself. A node that is stopped
    hands over what it leads without this command.
    """
    if controller == (partition is not None) or (controller and topic is not None):
        raise click.UsageError("give TOPIC and PARTITION, or --controller")
    async with Client(config) as client:
        await client.connect()
        leader = await client.transfer_leader(topic, partition, node_id)
    show_result(leader, _leader(leader), output)


@click.command(
    cls=Manual,
    short_help="Register a node before it starts.",
    examples=[
        ("A fourth node", "stockade cluster add n4 http://10.0.0.4:7101 10.0.0.4:7201 --zone b"),
        ("A machine of four nodes", "stockade cluster add d http://10.0.0.4:7101 10.0.0.4:7201 --processes 4"),
    ],
)
@click.argument("node")
@click.argument("base_url")
@click.argument("raft_address")
@click.option("--zone", help="Zone of the node; replicas of a partition are spread over zones.")
@click.option(
    "--processes",
    type=WholeNumber(1, PROCESSES_MAX),
    help="NODE is a machine that runs so many nodes: register each, on consecutive ports from these on.",
)
@output_option
@with_config
async def add(
    config: ClientConfig,
    node: str,
    base_url: str,
    raft_address: str,
    *,
    zone: str | None,
    processes: int | None,
    output: str,
) -> None:
    """Register NODE before it starts: BASE_URL of its HTTP interface, RAFT_ADDRESS (host:port) of its Raft port.

    A node with `join` in its configuration registers itself.
    """
    machine = Member(node, base_url, raft_address, zone, processes)
    if faults := list(member_faults(machine, None)):
        raise click.UsageError("; ".join(faults))
    async with Client(config) as client:
        await client.connect()
        seen = [await client.add_node(each.node_id, each.url, each.raft, each.zone) for each in machine.nodes(None)]
    _show(seen[-1], output)


@click.command(
    cls=Manual,
    exits=PLANNED,
    examples=[
        ("What would move, and where?", "stockade cluster remove n3 --plan"),
        ("A machine that is gone for good", "stockade cluster remove n3"),
    ],
)
@click.argument("node")
@_wait
@consent_options
@output_option
@with_client
async def remove(client: Client, node: str, *, wait: bool, consent: Consent, output: str) -> None:
    """Move every replica on NODE to other nodes, then forget NODE. It need not run; stop it when this has ended."""

    def act(conditions: Mapping[str, Any]) -> Awaitable[Cluster]:
        return client.remove_node(node, **conditions)

    leaving = Leaving(await under_consent(consent, output, partial(removal_plan, client, node), act), [node])
    if wait:
        await _carried_out(client, leaving, f"emptying {node}")
    show_result({"node_id": node, "done": wait}, f"{node}: {'removed' if wait else 'being emptied'}", output)


@click.command(
    cls=Manual,
    short_help="Move everything off a machine, then forget its nodes.",
    exits=PLANNED,
    examples=[("Before machine a is switched off", "stockade cluster drain a")],
)
@click.argument("machine")
@_wait
@consent_options
@output_option
@with_client
async def drain(client: Client, machine: str, *, wait: bool, consent: Consent, output: str) -> None:
    """Move every replica off all nodes of MACHINE (a zone), its partitions and controllers, then forget these nodes.

    Nothing moves from one of them to another, and writers go on meanwhile. They need not run; stop the machine when
    this has ended. `stockade cluster add --processes` takes it back.
    """
    nodes = [node.node_id for node in (await client.cluster()).nodes if node.zone == machine]

    def act(conditions: Mapping[str, Any]) -> Awaitable[Cluster]:
        return client.remove_zone(machine, **conditions)

    look = partial(removal_plan, client, machine, zone=True)
    leaving = Leaving(await under_consent(consent, output, look, act), nodes)
    if wait:
        await _carried_out(client, leaving, f"draining {machine}")
    text = f"{machine}: {'removed' if wait else 'being emptied'}: {', '.join(nodes)}"
    show_result({"zone": machine, "node_ids": nodes, "done": wait}, text, output)


@click.command(
    cls=Manual,
    short_help="Show how far an upgrade is; finish it.",
    examples=[
        ("Do all nodes run the new release?", "stockade cluster upgrade"),
        ("Before the next node is stopped", "stockade cluster upgrade --wait"),
        ("When they do, and it works well", "stockade cluster upgrade --finalize"),
    ],
)
@click.option(
    "--finalize", is_flag=True, help="Raise the feature level to the newest that a node supports. There is no way back."
)
@click.option(
    "--wait", is_flag=True, help="First wait until every node is up and has all it should: the next may be stopped."
)
@output_option
@with_client
async def upgrade(client: Client, *, finalize: bool, wait: bool, output: str) -> None:
    """Show the feature level of the cluster, and which levels the software of each node supports.

    While a cluster is upgraded node by node its level stays, and each node can be rolled back. --finalize lets the
    cluster use what the new release brought; it is refused while a node does not support the newest level or is away.
    From then on nodes with older software are refused.
    """
    if wait:
        await _wait_until_whole(client)
    found = await client.cluster()
    if finalize:
        found = await client.raise_feature_level(_newest_level(found))
    _show_levels(found, output)


async def _wait_until_whole(client: Client) -> None:
    """Wait until nothing is ``_lacking``. Standard error says what is, each time that it changes."""
    said = ""

    async def is_whole() -> bool:
        nonlocal said
        lacks = _lacking(await client.calls.call(NodeStates, "GET", "/v1/nodes", params={"everywhere": "true"}))
        if lacks and lacks != said:
            click.echo(f"waiting for {lacks}", err=True)
        said = lacks
        return not lacks

    await until(is_whole)


def _lacking(found: NodeStates) -> str:
    """The nodes that do not answer, and the leaders and replicas that partitions lack, in words; "" if none."""
    lacks = [f"{', '.join(found.missing)} to answer"] if found.missing else []
    for node in found.nodes:
        counts = node.partitions
        for number, what, where in (
            (counts.leaderless, "leaders", "that have replicas on"),
            (counts.under_replicated, "replicas", "led by"),
        ):
            lacks += [f"{what} of {count(number, 'partition')} {where} {node.node_id}"] if number else []
    return "; ".join(lacks)


def _newest_level(found: Cluster) -> int:
    """The newest level that a node supports. Raises ClickException where the answering node tells no levels."""
    newest = [node.feature_levels.newest for node in found.nodes if node.feature_levels is not None]
    if not newest:
        who = f"{found.node_id}, which answers, runs software that is older than feature levels"
        raise click.ClickException(f"{who}: upgrade it, and every other node, before the level is raised")
    return max(newest)


def _show_levels(found: Cluster, output: str) -> None:
    if output == "json":
        nodes = [{"node_id": n.node_id, "version": n.version, "feature_levels": n.feature_levels} for n in found.nodes]
        show_json({"feature_level": found.feature_level, "nodes": nodes})
        return
    click.echo(f"feature level {found.feature_level}")
    show_table(["NODE", "STATE", "VERSION", "LEVELS"], [(n.node_id, _state(n), *_software(n)) for n in found.nodes])


def _software(node: Node) -> tuple[str, str]:
    levels = node.feature_levels
    return node.version or "-", "-" if levels is None else f"{levels.oldest} to {levels.newest}"


async def _carried_out(client: Client, leaving: Leaving, what: str) -> None:
    """Wait until the nodes have left; show meanwhile, on a terminal, how many of their groups have moved."""
    console = Console(stderr=True, highlight=False)
    absent = Absent(partial(console.print, markup=False, soft_wrap=True))
    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("groups moved"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=leaving.total)

        async def is_done() -> bool:
            found = await client.cluster()
            leaving.look(found)
            absent.look(found, leaving.heirs(found))
            progress.update(task, completed=leaving.moved)
            return leaving.is_done

        await until(is_done)


def _show(cluster: Cluster, output: str) -> None:
    if output == "json":
        show_json(cluster)
        return
    about = f"version {cluster.version}, feature level {cluster.feature_level}"
    click.echo(f"cluster {cluster.cluster_id}, {about}, controller: {_leader(cluster.controller)}")
    if rows := machine_rows(cluster):
        show_table(["MACHINE", "UP", "CONTROLLERS", "NODES"], rows)
        click.echo()
    rows = [
        (node.node_id, _state(node), node.url, node.raft_address, node.zone or "-", *_software(node))
        for node in cluster.nodes
    ]
    show_table(["NODE", "STATE", "URL", "RAFT", "ZONE", "VERSION", "LEVELS"], rows)
    if cluster.reassignments:
        click.echo()
        moves = [(f"{each.topic}/{each.partition}", ",".join(each.replicas)) for each in cluster.reassignments]
        show_table(["MOVING", "TO"], moves)
    if all(node.node_id != cluster.node_id for node in cluster.nodes):
        old = "what it says of the others is of then. Ask another node, and stop this one"
        click.echo(f"{cluster.node_id}, which answers, was removed from the cluster: {old}", err=True)


def machine_rows(cluster: Cluster) -> list[tuple[str, ...]]:
    """A row for each zone: (zone, nodes up, controllers, nodes). Empty if no zone has two nodes."""
    zones: dict[str, list[Node]] = {}
    for node in cluster.nodes:
        if node.zone is not None:
            zones.setdefault(node.zone, []).append(node)
    if all(len(nodes) < 2 for nodes in zones.values()):
        return []
    return [_machine_row(zone, zones[zone], cluster.controllers) for zone in sorted(zones)]


def _machine_row(zone: str, nodes: Sequence[Node], controllers: Sequence[str]) -> tuple[str, ...]:
    leaders = [node.node_id for node in nodes if node.node_id in controllers]
    states = [(node.node_id, _state(node)) for node in nodes]
    shown = [name if state == "up" else f"{name} ({state})" for name, state in states]
    return zone, f"{sum(node.alive for node in nodes)} of {len(nodes)}", ",".join(leaders) or "-", ", ".join(shown)


def _state(node: Node) -> str:
    words = ["up" if node.alive else "away"]
    words += ["leaving"] * node.draining + [f"disk {node.disk}"] * (node.disk != "ok")
    return ", ".join(words)


def _leader(leader: LeaderInfo) -> str:
    return f"{leader.leader_node} leads in term {leader.leader_term}" if leader.leader_node else "no leader is known"


@click.group(
    cls=ManualGroup,
    invoke_without_command=True,
    short_help="Run a cluster on this machine; manage a running one.",
    exits=LOCAL,
    means={REFUSED: "A node did not start, or did not become ready."},
    examples=[
        ("Three nodes, which Ctrl-C stops", "stockade cluster"),
        ("A second cluster beside the first", "stockade cluster --port-base 7501 --data /tmp/other"),
        ("A killed node stays down", "stockade cluster --no-restart"),
    ],
)
@click.option("--nodes", default=3, show_default=True, type=WholeNumber(1, 9), help="How many nodes.")
@click.option(
    "--port-base",
    default=7101,
    show_default=True,
    type=WholeNumber(1024, 65000),
    help="HTTP port of the first node.",
)
@click.option(
    "--data",
    default="data",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the nodes' data.",
)
@click.option("--no-restart", is_flag=True, help="Do not restart a node that ended.")
@click.option("--tls", is_flag=True, help="TLS between nodes and with clients, with certificates made in DATA/certs.")
@click.pass_context
def cluster(context: click.Context, nodes: int, port_base: int, data: Path, no_restart: bool, tls: bool) -> None:
    """Run a cluster on this machine until Ctrl-C; or, with a command, manage any running cluster.

    The next start finds the data. When a node ends, the command prints with which signal or exit code, when the node
    starts again, and when it is ready again. While the cluster runs, DATA/cluster.json lists its nodes and their
    process ids, for scripts that break something.
    """
    if context.invoked_subcommand is None:
        _run(nodes, port_base, data, no_restart, tls)


for _command in (status, settings, move, transfer, add, remove, drain, balance, controllers, upgrade):
    cluster.add_command(_command)


def _run(nodes: int, port_base: int, data: Path, no_restart: bool, tls: bool) -> None:
    console = stdout_console()
    stopping = Stopping()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.order())

    def tell(line: str) -> None:
        with suppress(SystemExit):  # which rich raises when the output is closed: the nodes need their supervisor
            console.print(f"{time.strftime('%H:%M:%S')}  {line}", markup=False, soft_wrap=True)

    local = LocalCluster(data, nodes, port_base, restart=not no_restart, tls=tls, https=tls, tell=tell)
    if names := local.not_started:
        more = nodes + len(names)
        tell(
            f"{', '.join(names)}: there are data of them in {data}, and they are not started. Partitions that need them"
            f" have no leader. To start them: --nodes {more} (make: NODES={more})"
        )
    try:
        with console.status(f"starting {nodes} nodes"):
            local.start()
            is_ready = local.wait_ready(stopping)
        if is_ready:
            print_ready(console, local)
            while not stopping.wait():
                pass
    except ClusterFailed as error:
        raise click.ClickException(str(error)) from error
    finally:
        local.stop()
    console.print("stopped")


def print_ready(console: Console, local: LocalCluster) -> None:
    """Print the nodes' addresses, and that the cluster is ready."""
    for node in local.nodes:
        console.print(f"  {node.name}  {node.url}  raft {node.raft}  data {node.data}")
    if local.https:
        given = {"STOCKADE_URL": local.nodes[0].url, "STOCKADE_CA": str(local.certs / "ca.crt")}
        console.print("  clients: " + " ".join(f"{name}={value}" for name, value in given.items()), soft_wrap=True)
        console.print(f"  a client's own certificate: {' and '.join(map(str, local.client_files))}", soft_wrap=True)
    console.print(f"[bold green]ready[/]  console at {local.nodes[0].url}/  (Ctrl-C stops the cluster)")
