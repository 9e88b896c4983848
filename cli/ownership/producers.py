"""`stockade producers …`: identities for idempotent writing."""

import click

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.model import ProducerPair
from .connection import connected
from .groups import ROWS_MAX, prefix_option
from .manual import Manual
from .names import PRODUCER
from .output import confirm, output_option, show_json, show_rest, show_table, yes_option


@click.group(short_help="Producer ids and epochs.")
def producers() -> None:
    """Producer ids and epochs: what makes a batch that is sent twice be stored once."""


@producers.command("list", cls=Manual, examples=[("The mirrors", "stockade producers list --prefix mirror")])
@prefix_option
@output_option
@connected
async def list_producers(config: ClientConfig, prefix: str, output: str) -> None:
    """List the producers with names, at most 1,000, ascending."""
    async with Client(config) as client:
        await client.connect()
        found = await client.producers(prefix, ROWS_MAX)
    if output == "json":
        show_json(found)
        return
    rows = [(each.name, each.producer_id, each.producer_epoch) for each in found.producers]
    show_table(["NAME", "PRODUCER ID", "EPOCH"], rows)
    show_rest(found.total - len(found.producers))


@producers.command(
    cls=Manual,
    examples=[
        ("For a script that writes with curl", "stockade producers init mirror --output json"),
        ("Without a name", "stockade producers init"),
    ],
)
@click.argument("name", required=False, type=PRODUCER)
@output_option
@connected
async def init(config: ClientConfig, name: str | None, output: str) -> None:
    """Get a producer id and epoch to write with. With NAME every older instance of it is refused from now on."""
    async with Client(config) as client:
        await client.connect()
        _tell(await client.init_producer(name), output)


@producers.command(
    cls=Manual,
    short_help="Show what is stored of a producer.",
    examples=[
        ("Where did it write last?", "stockade producers status mirror"),
        ("By id", "stockade producers status 1001 --output json"),
    ],
)
@click.argument("producer", type=PRODUCER)
@output_option
@connected
async def status(config: ClientConfig, producer: str, output: str) -> None:
    """Show what is stored of PRODUCER (name or id): on each partition its epoch, last sequence number and offset."""
    async with Client(config) as client:
        await client.connect()
        found = await client.producer(producer)
    if output == "json":
        show_json(found)
        return
    epoch = "anonymous" if found.producer_epoch is None else f"epoch {found.producer_epoch}"
    click.echo(f"{found.name or '-'}: id {found.producer_id}, {epoch}")
    rows = [
        (f"{p.topic}/{p.partition}", p.producer_epoch, p.last_seq, "-" if p.last_offset is None else p.last_offset)
        for p in found.partitions
    ]
    if rows:
        show_table(["PARTITION", "EPOCH", "LAST SEQUENCE", "LAST OFFSET"], rows)


@producers.command(
    cls=Manual,
    short_help="Refuse the running instance of a producer everywhere.",
    examples=[("An instance that hangs somewhere", "stockade producers fence mirror --yes")],
)
@click.argument("name", type=PRODUCER)
@yes_option
@output_option
@connected
async def fence(config: ClientConfig, name: str, output: str, *, yes: bool) -> None:
    """Refuse the running instance of the producer NAME everywhere from now on. The next one that starts may write."""
    confirm(f"Refuse the running instance of {name}?", yes)
    async with Client(config) as client:
        await client.connect()
        _tell(await client.fence_producer(name), output)


def _tell(pair: ProducerPair, output: str) -> None:
    if output == "json":
        show_json(pair)
    else:
        click.echo(f"{pair.name or 'anonymous'}: id {pair.producer_id}, epoch {pair.producer_epoch}")
