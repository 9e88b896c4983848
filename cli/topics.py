"""`stockade topic …`: create, list, describe, delete."""

import click

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.model import PartitionState, Topic
from .output import EXIT_CODES, connected, table


@click.group(epilog=EXIT_CODES)
def topic() -> None:
    """Create topics, look at them, delete them."""


@topic.command()
@click.argument("name")
@click.option("--partitions", default=1, show_default=True, type=click.IntRange(1, 10_000), help="How many.")
@click.option(
    "--replicas", type=click.IntRange(1, 7), help="Of each partition, odd. Default: 3, or all nodes if fewer."
)
@click.option("--require-fence", is_flag=True, help="Take exclusive writers only.")
@connected
async def create(
    config: ClientConfig, name: str, partitions: int, replicas: int | None, *, require_fence: bool
) -> None:
    """Create the topic NAME. Repeating it with the same definition does nothing."""
    async with Client(config) as client:
        await client.connect()
        wanted = {"require_fence": require_fence}
        created = await client.create_topic(name, partitions=partitions, replication_factor=replicas, config=wanted)
        click.echo(f"{created.name}: {_size(created)}")


@topic.command("list")
@connected
async def list_topics(config: ClientConfig) -> None:
    """List the topics."""
    async with Client(config) as client:
        await client.connect()
        topics = await client.topics()
        click.echo(table(["TOPIC", "PARTITIONS", "ID"], [(t.name, t.partitions, t.topic_id) for t in topics]))


@topic.command()
@click.argument("name")
@connected
async def describe(config: ClientConfig, name: str) -> None:
    """Show the topic NAME: who leads each partition, where its replicas are, who writes, how much is in it."""
    async with Client(config) as client:
        await client.connect()
        described = await client.topic(name)
        fenced = ", exclusive writers only" if described.config.require_fence else ""
        click.echo(f"{name}: {_size(described)}, id {described.topic_id}{fenced}")
        rows = [await _row(client, name, state) for state in described.partitions]
        click.echo(table(["PARTITION", "LEADER", "REPLICAS", "RECORDS", "WRITER"], rows))


@topic.command()
@click.argument("name")
@connected
async def delete(config: ClientConfig, name: str) -> None:
    """Delete the topic NAME with everything in it."""
    async with Client(config) as client:
        await client.connect()
        await client.delete_topic(name)
        click.echo(f"{name}: deleted")


def _size(described: Topic) -> str:
    replicas = _counted(described.replication_factor, "replica")
    return f"{_counted(len(described.partitions), 'partition')} with {replicas} each"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


async def _row(client: Client, name: str, state: PartitionState) -> tuple[object, ...]:
    offsets = await client.offsets(name, state.partition)
    writer = f"{state.slot_mode}, epoch {state.topic_epoch}" if state.slot_mode else "-"
    stored = offsets.log_end - offsets.log_start
    return state.partition, state.leader_node or "none", ",".join(state.replicas), f"{stored:,}", writer
