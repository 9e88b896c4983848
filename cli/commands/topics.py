"""`stockade topics …`: create, list, describe, alter, seal, offsets, tail, trim, delete."""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import click
from msgspec import structs

from ...client.api.client import Client
from ...client.api.tail import TailRecord
from ...client.config import ClientConfig
from ...client.session.session import Session
from ...partition.api.records import Trimmed, text_or_base64
from ...partition.api.topics import PartitionState, SlotHolder, Topic, TopicConfig
from ..orders.consent import Consent, consent_options, under_consent
from ..orders.plans import deletion_plan, trim_plan
from ..ui.completion_names import TOPIC
from ..ui.connection import with_client, with_config
from ..ui.exits import CHANGED, PLANNED, WRITER
from ..ui.manual import Manual
from ..ui.output import confirm, count, output_option, record_object, show_json, show_result, show_table, yes_option
from ..ui.parameters import SETTINGS_HELP, MomentType, WholeNumber, all_option, topic_settings
from ..ui.times import moment

VALUE_CHARACTERS_MAX = 40
"""Characters of a value that a table shows; JSON has the whole value."""


@click.command(
    cls=Manual,
    short_help="Show first and last offsets, or the offset of a time.",
    examples=[
        ("How many records each partition has", "stockade topics offsets orders"),
        ("Where to begin reading for yesterday", "stockade topics offsets orders --at 2026-01-31T00:00:00Z"),
    ],
)
@click.argument("topic", type=TOPIC)
@click.option(
    "--at",
    default="latest",
    show_default=True,
    type=MomentType(),
    help="earliest: the first offset. latest: the log's end. max_timestamp: the record with the greatest timestamp."
    " TIME (ISO 8601, or milliseconds since 1970 in 13 digits): the first record at or after it.",
)
@output_option
@with_client
async def offsets(client: Client, topic: str, at: str | int, output: str) -> None:
    """Show log start and log end of each partition of TOPIC, and one offset of your choice (-1: none)."""
    described = await client.topic(topic)
    asked = (client.offsets(topic, each.partition, at) for each in described.partitions)
    found = await asyncio.gather(*asked)
    if output == "json":
        show_json({"topic": topic, "partitions": found})
        return
    rows = [(each.partition, each.log_start, each.log_end, each.offset) for each in found]
    show_table(["PARTITION", "LOG START", "LOG END", moment(at) if isinstance(at, int) else at.upper()], rows)


@click.command(
    cls=Manual,
    short_help="Show the last records of a partition and their writers.",
    examples=[
        ("After an unknown outcome: is my last record there?", "stockade topics tail orders --partition 0 --records 3")
    ],
)
@click.argument("topic", type=TOPIC)
@click.option("--partition", default=0, show_default=True, type=WholeNumber(0), help="The partition.")
@click.option("--records", default=10, show_default=True, type=WholeNumber(1, 100), help="How many records.")
@output_option
@with_client
async def tail(client: Client, topic: str, partition: int, records: int, output: str) -> None:
    """Show the last records of a partition of TOPIC and their writers: how far a writer came before an error."""
    found = await client.tail(topic, partition, records)
    if output == "json":
        show_json({**asdict(found), "records": [_json_row(record) for record in found.records]})
        return
    click.echo(f"{topic}/{partition}: log start {found.log_start}, log end {found.log_end}, epoch {found.topic_epoch}")
    headings = ["OFFSET", "WRITER EPOCH", "PRODUCER", "PRODUCER EPOCH", "SEQUENCE", "VALUE"]
    show_table(headings, [_offset_row(record) for record in found.records])


def _json_row(record: TailRecord) -> dict[str, object]:
    """A record of the tail with the fields of the HTTP interface."""
    return {
        **record_object(record),
        "writer_epoch": record.writer_epoch,
        "producer_id": record.producer_id,
        "producer_epoch": record.producer_epoch,
        "sequence": record.sequence,
    }


def _offset_row(record: TailRecord) -> tuple[object, ...]:
    text = next(iter(text_or_base64("value", record.value).values()))
    value = "-" if text is None else repr(text)[1:-1]
    shown = value if len(value) <= VALUE_CHARACTERS_MAX else value[: VALUE_CHARACTERS_MAX - 1] + "…"
    stamp = (record.producer_id, record.producer_epoch, record.sequence)
    return record.offset, record.writer_epoch, *("-" if part is None else part for part in stamp), shown


class EndType(click.ParamType[int]):
    """An offset, or the word end, which is -1."""

    name = "OFFSET|end"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "end":
            return -1
        if not str(value).isdecimal():
            self.fail(f"{value!r} is neither an offset nor the word end", param, ctx)
        return int(str(value))


@click.command(
    cls=Manual,
    short_help="Delete the oldest records of a partition.",
    exits=(*WRITER, CHANGED),
    examples=[
        ("What would go?", "stockade topics trim orders --partition 0 --before 1000 --plan"),
        ("Delete records below offset 1000", "stockade topics trim orders --partition 0 --before 1000"),
        (
            "Empty a partition of a topic with require_fence",
            "stockade topics trim jobs --partition 2 --before end --exclusive --yes",
        ),
    ],
)
@click.argument("topic", type=TOPIC)
@click.option("--partition", required=True, type=WholeNumber(0), help="The partition.")
@click.option("--before", required=True, type=EndType(), help="First offset to keep; `end` deletes all.")
@click.option("--exclusive", is_flag=True, help="Hold the partition meanwhile; topics with require_fence need this.")
@consent_options
@output_option
@with_client
async def trim(
    client: Client, topic: str, partition: int, before: int, output: str, *, exclusive: bool, consent: Consent
) -> None:
    """Delete the records of a partition of TOPIC below an offset, on all replicas.

    Refused while a writer holds the partition alone. A shorter retention drops records all the same: `stockade topics
    alter`, and back when they are gone.
    """
    look = partial(trim_plan, client, topic, partition, before, exclusive=exclusive)
    act = partial(_trim, client, topic, partition, before, exclusive=exclusive)
    trimmed = await under_consent(consent, output, look, act)
    show_result(trimmed, f"{topic}/{partition}: log start {trimmed.log_start}, log end {trimmed.log_end}", output)


async def _trim(
    client: Client, topic: str, partition: int, before: int, conditions: Mapping[str, Any], *, exclusive: bool
) -> Trimmed:
    if not exclusive:
        return await client.trim(topic, partition, before, **conditions)
    async with Session(client, "trim") as session:
        fence = await session.acquire(topic, [partition])
        return await client.trim(topic, partition, before, token=fence.token(partition), **conditions)


_settings = click.option(
    "--config", "settings", multiple=True, callback=topic_settings, metavar="NAME=VALUE", help=SETTINGS_HELP
)


@click.group()
def topics() -> None:
    """Create topics, show them, change them, delete them."""


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
@click.option("--partitions", default=1, show_default=True, type=WholeNumber(1, 10_000), help="How many partitions.")
@click.option(
    "--replicas",
    type=WholeNumber(1, 7),
    help="Replicas of each partition, an odd number. Default: 3, or 1 with fewer than three nodes.",
)
@click.option(
    "--require-fence",
    is_flag=True,
    help="Accept appends from exclusive writers only; short for --config require_fence=true.",
)
@_settings
@output_option
@with_client
async def create(
    client: Client,
    name: str,
    partitions: int,
    replicas: int | None,
    settings: dict[str, Any],
    output: str,
    *,
    require_fence: bool,
) -> None:
    """Create the topic NAME. Creating it again with the same definition changes nothing."""
    wanted = {"require_fence": require_fence} | settings
    created = await client.create_topic(name, partitions=partitions, replication_factor=replicas, config=wanted)
    show_result(created, f"{created.name}: {_size(created)}", output)


@topics.command(
    "list",
    cls=Manual,
    short_help="List the topics.",
    examples=[("Names only", "stockade topics list --output json | jq -r '.topics[].name'")],
)
@all_option
@output_option
@with_client
async def list_topics(client: Client, internal: bool, output: str) -> None:
    """List the topics, ascending by name, without those that Stockade made for itself: the ledger, and decisions of
    Spark sinks.

    A list asks no partition, however many there are: `stockade topics describe` shows the records of a topic.
    """
    found = await client.topics(internal=internal)
    if output == "json":
        show_json({"topics": found})
        return
    show_table(["TOPIC", "PARTITIONS", "ID"], [(each.name, each.partitions, each.topic_id) for each in found])


@topics.command(
    cls=Manual,
    short_help="Show settings, leaders, replicas, writers and sizes of a topic.",
    examples=[
        ("Who leads, who writes", "stockade topics describe orders"),
        ("Leader of partition 0", "stockade topics describe orders --output json | jq -r '.partitions[0].leader_node'"),
    ],
)
@click.argument("name", type=TOPIC)
@output_option
@with_client
async def describe(client: Client, name: str, output: str) -> None:
    """Show settings of the topic NAME, and leader, replicas, number of records, bytes and writer of each partition.

    SETTINGS are retention_ms (-1: records are kept for ever), and those that differ from their defaults.
    BYTES are those of the partition's files on each replica; what is in the tiered store alone is not counted.
    """
    described = await client.topic(name)
    if output == "json":
        show_json(described)
        return
    rows = [await _row(client, name, state) for state in described.partitions]
    fenced = ", exclusive writers only" if described.config.require_fence else ""
    sealed = ", sealed" if described.sealed else ""
    click.echo(f"{name}: {_size(described)}, id {described.topic_id}{fenced}{sealed}")
    default, config = structs.asdict(TopicConfig()), structs.asdict(described.config)
    told = [name for name, value in config.items() if name == "retention_ms" or value != default[name]]
    click.echo(f"settings: {', '.join(f'{name}={config[name]}' for name in told)}")
    show_table(["PARTITION", "LEADER", "REPLICAS", "RECORDS", "BYTES", "WRITER"], rows)


@topics.command(
    cls=Manual,
    short_help="Change a topic's settings, or add partitions.",
    examples=[
        ("Keep records for a day", "stockade topics alter orders --config retention_ms=86400000"),
        ("Eight partitions in place of four", "stockade topics alter orders --partitions 8"),
    ],
)
@click.argument("name", type=TOPIC)
@click.option("--partitions", type=WholeNumber(1, 10_000), help="New number of partitions; it can only grow.")
@_settings
@output_option
@with_config
async def alter(
    config: ClientConfig,
    name: str,
    partitions: int | None,
    settings: dict[str, Any],
    output: str,
) -> None:
    """Change settings of the topic NAME, or add partitions. Other settings stay as they are."""
    if partitions is None and not settings:
        raise click.UsageError("give --partitions or --config NAME=VALUE")
    async with Client(config) as client:
        await client.connect()
        changed = await client.change_topic(name, partitions=partitions, config=settings)
    said = "".join(f", {field}={value}" for field, value in settings.items())
    show_result(changed, f"{name}: {_size(changed)}{said}", output)


@topics.command(
    cls=Manual,
    short_help="Refuse all further appends to a topic.",
    examples=[("After the last record of a migration", "stockade topics seal orders-old --yes")],
)
@click.argument("name", type=TOPIC)
@yes_option
@output_option
@with_client
async def seal(client: Client, name: str, output: str, *, yes: bool) -> None:
    """Seal the topic NAME: it refuses appends for ever, and can still be read. A seal cannot be undone."""
    confirm(f"Refuse every append to {name} from now on, for ever?", yes)
    sealed = await client.change_topic(name, seal=True)
    show_result(sealed, f"{name}: sealed", output)


@topics.command(
    cls=Manual,
    exits=PLANNED,
    examples=[
        ("What would go, and whom would it hit?", "stockade topics delete orders --plan"),
        ("Exactly that", "stockade topics delete orders --confirm 5f1a0c44d1be9a02"),
        ("Without being asked", "stockade topics delete orders --yes"),
    ],
)
@click.argument("name", type=TOPIC)
@consent_options
@output_option
@with_client
async def delete(client: Client, name: str, *, consent: Consent, output: str) -> None:
    """Delete the topic NAME with all its records."""

    def act(conditions: Mapping[str, Any]) -> Awaitable[None]:
        return client.delete_topic(name, **conditions)

    await under_consent(consent, output, partial(deletion_plan, client, name), act)
    show_result({"topic": name, "deleted": True}, f"{name}: deleted", output)


def _size(described: Topic) -> str:
    return f"{count(len(described.partitions), 'partition')} with {count(described.replication_factor, 'replica')} each"


async def _row(client: Client, name: str, state: PartitionState) -> tuple[object, ...]:
    sizes = ("-", "-")
    if state.leader is not None:  # a partition without a leader does not answer
        found = await client.contents(name, state.partition, 1)
        sizes = f"{found.log_end - found.log_start:,}", f"{found.stored_bytes:,}"
    who = f"{_names(state.holder)}, " if state.holder is not None else ""
    writer = f"{who}{state.slot_mode}, epoch {state.topic_epoch}" if state.slot_mode else "-"
    return state.partition, state.leader_node or "none", ",".join(state.replicas), *sizes, writer


def _names(holder: SlotHolder) -> str:
    """The names of the holder's producer and client; one name if they are the same."""
    producer, client = holder.producer_name, holder.client_id
    return producer if client in (producer, None) else f"{producer} of {client}"
