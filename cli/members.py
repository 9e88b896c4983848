"""`stockade cluster status|move|transfer|add|remove`: what an operator asks of a running cluster."""

import asyncio
from collections.abc import Awaitable, Callable

import click

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.model import Cluster, Controller
from ..partition.errors import StockadeError
from .connection import connected
from .manual import Manual
from .names import NODE, TOPIC
from .output import output_option, show_json, show_table, told, waiting

LOOK_S = 0.2
"""Between two looks whether an order is carried out."""
UNSEEN_MAX = 50
"""After so many looks in a row that do not see it a move is taken to be replaced: a node may be late to know."""

_wait = click.option("--wait/--no-wait", default=True, show_default=True, help="Until it is done, or only ordered.")


@click.command(
    cls=Manual,
    short_help="Show the nodes, the controller's leader, and moves.",
    examples=[("Is everybody up?", "stockade cluster status --output json | jq '.nodes[] | select(.alive | not)'")],
)
@output_option
@connected
async def status(config: ClientConfig, output: str) -> None:
    """Show the nodes, who leads the controller group, and which replicas move."""
    async with Client(config) as client:
        _show(await client.connect(), output)


@click.command(
    cls=Manual,
    short_help="Move a partition to other nodes.",
    examples=[("From n3 to n4", "stockade cluster move orders 0 n1,n2,n4")],
)
@click.argument("topic", type=TOPIC)
@click.argument("partition", type=click.IntRange(0))
@click.argument("nodes")
@_wait
@output_option
@connected
async def move(config: ClientConfig, topic: str, partition: int, nodes: str, *, wait: bool, output: str) -> None:
    """Move PARTITION of TOPIC to NODES, separated by commas: an odd number of them.

    A new node gets a copy and is a full member before another one leaves; writers go on meanwhile. Ordering another
    move takes the place of one under way; ordering the old nodes calls it off. Whoever waits for a move that another
    one took the place of is told so.
    """
    wanted = [node.strip() for node in nodes.split(",")]
    name = f"{topic}/{partition}"
    async with Client(config) as client:
        await client.connect()
        await client.reassign(topic, partition, wanted)

        if wait:
            with waiting(f"moving {name}"):
                await _until(_Move(client, topic, partition, wanted).is_done)
    facts = {"topic": topic, "partition": partition, "replicas": wanted, "done": wait}
    told(facts, f"{name}: {'on' if wait else 'moving to'} {', '.join(wanted)}", output)


@click.command(
    cls=Manual,
    short_help="Let another replica of a partition lead.",
    examples=[
        ("Before n1 is stopped", "stockade cluster transfer orders 0 --to n2"),
        ("The controller too", "stockade cluster transfer --controller"),
    ],
)
@click.argument("topic", required=False, type=TOPIC)
@click.argument("partition", type=click.IntRange(0), required=False)
@click.option("--controller", is_flag=True, help="The controller group, in place of a partition.")
@click.option("--to", "node_id", type=NODE, help="Who shall lead. Default: any other replica.")
@output_option
@connected
async def transfer(
    config: ClientConfig,
    topic: str | None,
    partition: int | None,
    *,
    controller: bool,
    node_id: str | None,
    output: str,
) -> None:
    """Let another replica of PARTITION of TOPIC lead; ends when it does. Writers notice nothing but a short wait."""
    if controller == (partition is not None) or (controller and topic is not None):
        raise click.UsageError("TOPIC and PARTITION are needed, or --controller")
    async with Client(config) as client:
        await client.connect()
        leader = await client.transfer_leader(topic, partition, node_id)
    if output == "json":
        show_json(leader)
    else:
        click.echo(_leader(leader))


@click.command(
    cls=Manual,
    short_help="Make a node known before it comes.",
    examples=[("A fourth node", "stockade cluster add n4 http://10.0.0.4:7101 10.0.0.4:7201 --zone b")],
)
@click.argument("node")
@click.argument("base_url")
@click.argument("raft_address")
@click.option("--zone", help="Replicas of a partition are spread over zones.")
@output_option
@connected
async def add(
    config: ClientConfig, node: str, base_url: str, raft_address: str, *, zone: str | None, output: str
) -> None:
    """Make NODE known before it comes, with the BASE_URL of its HTTP interface and the host:port of its Raft port.

    A node with `join` in its configuration does this by itself.
    """
    async with Client(config) as client:
        await client.connect()
        _show(await client.add_node(node, base_url, raft_address, zone), output)


@click.command(
    cls=Manual,
    examples=[("A machine that is gone for good", "stockade cluster remove n3")],
)
@click.argument("node")
@_wait
@output_option
@connected
async def remove(config: ClientConfig, node: str, *, wait: bool, output: str) -> None:
    """Move everything on NODE to other nodes, then forget it. NODE need not run; stop it when this has ended."""
    async with Client(config) as client:
        await client.connect()
        await client.remove_node(node)

        async def is_done() -> bool:
            return all(member.node_id != node for member in (await client.cluster()).nodes)

        if wait:
            with waiting(f"emptying {node}"):
                await _until(is_done)
    told({"node_id": node, "done": wait}, f"{node}: {'removed' if wait else 'being emptied'}", output)


class _Move:
    """A move that was ordered."""

    def __init__(self, client: Client, topic: str, partition: int, wanted: list[str]) -> None:
        self._client = client
        self._place = topic, partition
        self._wanted = wanted
        self._unseen = 0

    async def is_done(self) -> bool:
        """Whether the replicas are where they were wanted. Raises ClickException when nobody moves them there."""
        topic, partition = self._place
        if (await self._client.topic(topic)).partitions[partition].replicas == self._wanted:
            return True
        moves = {(each.topic, each.partition): each.replicas for each in (await self._client.cluster()).reassignments}
        self._unseen = 0 if moves.get(self._place) == self._wanted else self._unseen + 1
        if self._unseen >= UNSEEN_MAX:
            raise click.ClickException(f"{topic}/{partition}: another order took the place of this one")
        return False


async def _until(is_done: Callable[[], Awaitable[bool]]) -> None:
    """However long it takes: copying is work. A node that is away for a moment does not end the watch."""
    while True:
        try:
            if await is_done():
                return
        except StockadeError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(LOOK_S)


def _show(cluster: Cluster, output: str) -> None:
    if output == "json":
        show_json(cluster)
        return
    click.echo(f"cluster {cluster.cluster_id}, version {cluster.version}, controller: {_leader(cluster.controller)}")
    rows = [
        (node.node_id, _state(node.alive, node.draining), node.url, node.raft_address or "-", node.zone or "-")
        for node in cluster.nodes
    ]
    show_table(["NODE", "STATE", "URL", "RAFT", "ZONE"], rows)
    if cluster.reassignments:
        click.echo()
        moves = [(f"{each.topic}/{each.partition}", ",".join(each.replicas)) for each in cluster.reassignments]
        show_table(["MOVING", "TO"], moves)


def _state(alive: bool, draining: bool) -> str:
    return f"{'up' if alive else 'away'}{', leaving' if draining else ''}"


def _leader(leader: Controller) -> str:
    return f"{leader.leader_node} leads in term {leader.leader_term}" if leader.leader_node else "no leader is known"
