"""`stockade topics …`: create, list, describe, alter, seal, trim, delete."""

from typing import Any

import click

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.model import PartitionState, Topic
from .connection import connected
from .manual import Manual
from .names import TOPIC
from .offsets import offsets, tail
from .output import confirm, count, output_option, show_json, show_table, told, yes_option
from .settings import SETTINGS_HELP, SettingType
from .trim import trim

_settings = click.option(
    "--config", "settings", multiple=True, type=SettingType(), metavar="NAME=VALUE", help=SETTINGS_HELP
)


@click.group()
def topics() -> None:
    """Create topics, look at them, change them, delete them."""


for _command in (offsets, tail, trim):
    topics.add_command(_command)


@topics.command(
    cls=Manual,
    examples=[
        ("Four partitions, three replicas each", "stockade topics create orders --partitions 4"),
        (
            "Exclusive writers only, kept for a week",
            "stockade topics create jobs --require-fence --config retention_ms=604800000",
        ),
    ],
)
@click.argument("name")
@click.option("--partitions", default=1, show_default=True, type=click.IntRange(1, 10_000), help="How many.")
@click.option(
    "--replicas", type=click.IntRange(1, 7), help="Of each partition, odd. Default: 3, or all nodes if fewer."
)
@click.option(
    "--require-fence", is_flag=True, help="Take exclusive writers only; short for --config require_fence=true."
)
@_settings
@output_option
@connected
async def create(
    config: ClientConfig,
    name: str,
    partitions: int,
    replicas: int | None,
    settings: tuple[tuple[str, Any], ...],
    output: str,
    *,
    require_fence: bool,
) -> None:
    """Create the topic NAME. Repeating it with the same definition does nothing."""
    wanted = {"require_fence": require_fence} | dict(settings)
    async with Client(config) as client:
        await client.connect()
        created = await client.create_topic(name, partitions=partitions, replication_factor=replicas, config=wanted)
    _tell(created, f"{created.name}: {_size(created)}", output)


@topics.command(
    "list", cls=Manual, examples=[("Names only", "stockade topics list --output json | jq -r '.topics[].name'")]
)
@output_option
@connected
async def list_topics(config: ClientConfig, output: str) -> None:
    """List the topics, ascending by name."""
    async with Client(config) as client:
        await client.connect()
        found = await client.topics()
    if output == "json":
        show_json({"topics": found})
        return
    show_table(["TOPIC", "PARTITIONS", "ID"], [(each.name, each.partitions, each.topic_id) for each in found])


@topics.command(
    cls=Manual,
    short_help="Show a topic: who leads and writes, where, and how much.",
    examples=[
        ("Who leads, who writes", "stockade topics describe orders"),
        ("Leader of partition 0", "stockade topics describe orders --output json | jq -r '.partitions[0].leader_node'"),
    ],
)
@click.argument("name", type=TOPIC)
@output_option
@connected
async def describe(config: ClientConfig, name: str, output: str) -> None:
    """Show the topic NAME: who leads each partition, where its replicas are, who writes, how much is in it."""
    async with Client(config) as client:
        await client.connect()
        described = await client.topic(name)
        if output == "json":
            show_json(described)
            return
        rows = [await _row(client, name, state) for state in described.partitions]
    fenced = ", exclusive writers only" if described.config.require_fence else ""
    sealed = ", sealed" if described.sealed else ""
    click.echo(f"{name}: {_size(described)}, id {described.topic_id}{fenced}{sealed}")
    show_table(["PARTITION", "LEADER", "REPLICAS", "RECORDS", "WRITER"], rows)


@topics.command(
    cls=Manual,
    short_help="Change a topic's configuration, or give it more partitions.",
    examples=[
        ("Keep records for a day", "stockade topics alter orders --config retention_ms=86400000"),
        ("Eight partitions in place of four", "stockade topics alter orders --partitions 8"),
    ],
)
@click.argument("name", type=TOPIC)
@click.option("--partitions", type=click.IntRange(1, 10_000), help="How many from now on; they only grow.")
@_settings
@output_option
@connected
async def alter(
    config: ClientConfig,
    name: str,
    partitions: int | None,
    settings: tuple[tuple[str, Any], ...],
    output: str,
) -> None:
    """Change the configuration of the topic NAME, or give it more partitions. What is not named stays."""
    if partitions is None and not settings:
        raise click.UsageError("say what shall be: --partitions or --config NAME=VALUE")
    async with Client(config) as client:
        await client.connect()
        changed = await client.change_topic(name, partitions=partitions, config=dict(settings))
    said = "".join(f", {field}={value}" for field, value in settings)
    _tell(changed, f"{name}: {_size(changed)}{said}", output)


@topics.command(
    cls=Manual, examples=[("After the last record of a migration", "stockade topics seal orders-old --yes")]
)
@click.argument("name", type=TOPIC)
@yes_option
@output_option
@connected
async def seal(config: ClientConfig, name: str, output: str, *, yes: bool) -> None:
    """Seal the topic NAME: appends are refused for ever, reads go on. There is no unsealing."""
    confirm(f"Refuse every append to {name} from now on, for ever?", yes)
    async with Client(config) as client:
        await client.connect()
        sealed = await client.change_topic(name, seal=True)
    _tell(sealed, f"{name}: sealed", output)


@topics.command(cls=Manual, examples=[("Without a question", "stockade topics delete orders --yes")])
@click.argument("name", type=TOPIC)
@yes_option
@output_option
@connected
async def delete(config: ClientConfig, name: str, *, yes: bool, output: str) -> None:
    """Delete the topic NAME with everything in it."""
    confirm(f"Delete {name} with everything in it?", yes)
    async with Client(config) as client:
        await client.connect()
        await client.delete_topic(name)
    told({"topic": name, "deleted": True}, f"{name}: deleted", output)


def _tell(topic: Topic, text: str, output: str) -> None:
    if output == "json":
        show_json(topic)
    else:
        click.echo(text)


def _size(described: Topic) -> str:
    return f"{count(len(described.partitions), 'partition')} with {count(described.replication_factor, 'replica')} each"


async def _row(client: Client, name: str, state: PartitionState) -> tuple[object, ...]:
    offsets = await client.offsets(name, state.partition)
    writer = f"{state.slot_mode}, epoch {state.topic_epoch}" if state.slot_mode else "-"
    stored = offsets.log_end - offsets.log_start
    return state.partition, state.leader_node or "none", ",".join(state.replicas), f"{stored:,}", writer
