"""`stockade producers …`: identities for idempotent writing."""

import click

from ...client.api.client import Client
from ...partition.api.producers import ProducerPair
from ..ui.completion_names import PRODUCER
from ..ui.connection import with_client
from ..ui.manual import Manual
from ..ui.output import confirm, output_option, show_json, show_rest, show_result, show_table, yes_option
from ..ui.parameters import ROWS_MAX, all_option, prefix_option


@click.group(short_help="Producer ids and epochs.")
def producers() -> None:
    """Producer ids and epochs: with them the cluster stores a batch once, however often it is sent."""


@producers.command(
    "list",
    cls=Manual,
    short_help="List the named producers.",
    examples=[("The mirrors", "stockade producers list --prefix mirror")],
)
@prefix_option
@all_option
@output_option
@with_client
async def list_producers(client: Client, prefix: str, internal: bool, output: str) -> None:
    """List the named producers, at most 1,000, ascending by name, without names that producers drew for one run."""
    found = await client.producers(prefix, ROWS_MAX, internal=internal)
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
@with_client
async def init(client: Client, name: str | None, output: str) -> None:
    """Get a producer id and epoch to write with. With NAME, older instances of it are refused from now on."""
    _show_pair(await client.init_producer(name), output)


@producers.command(
    cls=Manual,
    short_help="Show where a producer wrote last.",
    examples=[
        ("Where did it write last?", "stockade producers status mirror"),
        ("By id", "stockade producers status 1001 --output json"),
    ],
)
@click.argument("producer", type=PRODUCER)
@output_option
@with_client
async def status(client: Client, producer: str, output: str) -> None:
    """Show the epoch, the last sequence number and the last offset of PRODUCER (name or id) on each partition."""
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
    short_help="Fence the running instance of a producer.",
    examples=[("An instance that hangs somewhere", "stockade producers fence mirror --yes")],
)
@click.argument("name", type=PRODUCER)
@yes_option
@output_option
@with_client
async def fence(client: Client, name: str, output: str, *, yes: bool) -> None:
    """Raise the epoch of the producer NAME: its running instance is refused everywhere; the next one may write."""
    confirm(f"Fence the running instance of {name}?", yes)
    _show_pair(await client.fence_producer(name), output)


def _show_pair(pair: ProducerPair, output: str) -> None:
    show_result(pair, f"{pair.name or 'anonymous'}: id {pair.producer_id}, epoch {pair.producer_epoch}", output)
