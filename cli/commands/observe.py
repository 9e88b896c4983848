"""`stockade refused|metrics`: the writes that nodes refused lately, and the nodes' metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

import click
import msgspec

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...partition.api.cluster import Node
from ...partition.api.producers import ProducerOnPartition
from ...partition.api.records import RefusedWrite
from ...partition.commands import SEQUENCE_MODULUS
from ...partition.errors import OutOfOrderSequence, StockadeError
from ..ui.completion_names import NODE
from ..ui.connection import with_config
from ..ui.manual import Manual
from ..ui.output import output_option, show_json, show_table
from ..ui.parameters import WholeNumber

_T = TypeVar("_T")
PRODUCERS_ASKED_MAX = 100
"""Producers that are looked up at most, those with the highest ids, to learn whether batches that came out of order
were stored since.
"""
_nodes = click.option(
    "--node", "nodes", multiple=True, type=NODE, help="Only this node; repeat it for several. Default: all."
)


@click.command(
    cls=Manual,
    short_help="Show writes that were refused lately.",
    examples=[
        ("Why does my writer make no progress?", "stockade refused --records 10"),
        ("Follow the zombies of a topic", "stockade refused --output json | jq -c 'select(.topic == \"orders\")'"),
    ],
)
@_nodes
@click.option("--records", default=20, show_default=True, type=WholeNumber(1, 1000), help="How many from each node.")
@click.option("--all", "everything", is_flag=True, help="Also those that were stored when they were sent again.")
@output_option
@with_config
async def refused(config: ClientConfig, nodes: Sequence[str], records: int, *, everything: bool, output: str) -> None:
    """Show the writes that nodes refused, latest first. Each node remembers 1,000 since its start.

    A batch that overtook another one on its way is refused, sent again and stored: such a producer is well. The table
    counts these batches in its last line, and lists them with --all. With --output json, one object on each line, where
    stored_since says so. Times come from the nodes' wall clocks. Standard error names the nodes that do not answer.
    """
    async with Client(config) as client:
        answers = await _ask(client, nodes, lambda node: client.refused_writes(node.url, records))
        found = [(answer.node_id, each) for _, answer in answers for each in answer.refused_writes]
        found.sort(key=lambda pair: -pair[1].at_ms)
        states = await _states_of(client, [each for _, each in found])
    marked = [(node_id, each, _is_stored_since(each, states)) for node_id, each in found]
    if output == "json":
        for node_id, each, is_stored in marked:
            show_json({"node_id": node_id, **msgspec.structs.asdict(each), "stored_since": is_stored})
        return
    headings = ["AT (UTC)", "NODE", "PARTITION", "CODE", "REASON", "EPOCH", "PRODUCER"]
    show_table(headings, [_row(node_id, each) for node_id, each, is_stored in marked if everything or not is_stored])
    healed = sum(is_stored for _, _, is_stored in marked)
    if healed and not everything:
        click.echo(f"and {healed:,} that came out of order and are stored since; --all lists them")


@click.command(
    cls=Manual,
    short_help="Show the metrics of nodes.",
    examples=[
        ("All metrics of one node", "stockade metrics --node n1"),
        ("Metrics about appends, of all nodes", "stockade metrics --match append"),
    ],
)
@_nodes
@click.option("--match", default="", help="Only metrics whose names contain this.")
@output_option
@with_config
async def metrics(config: ClientConfig, nodes: Sequence[str], match: str, output: str) -> None:
    """Show the metrics of nodes, as /metrics gives them. With --output json, one object on each line.

    For monitoring, let Prometheus scrape /metrics of every node.
    """
    async with Client(config) as client:
        answers = await _ask(client, nodes, lambda node: client.metrics(node.url))
    rows = [
        (node.node_id, *sample)
        for node, text in answers
        for sample in map(_sample, text.splitlines())
        if sample is not None and match in sample[0]
    ]
    if output == "json":
        for node_id, metric, labels, value in rows:
            show_json({"node_id": node_id, "metric": metric, "labels": labels, "value": value})
        return
    show_table(["NODE", "METRIC", "LABELS", "VALUE"], rows)


async def _ask(client: Client, wanted: Sequence[str], ask: Callable[[Node], Awaitable[_T]]) -> list[tuple[Node, _T]]:
    """What the nodes answer; says why others do not. Raises StockadeError if none answers."""
    members = (await client.connect()).nodes
    unknown = set(wanted) - {node.node_id for node in members}
    if unknown:
        raise click.ClickException(f"no such node: {', '.join(sorted(unknown))}; `stockade cluster status` lists them")
    chosen = [node for node in members if not wanted or node.node_id in wanted]
    answers = await asyncio.gather(*(ask(node) for node in chosen), return_exceptions=True)
    found, errors = [], list[tuple[Node, StockadeError]]()
    for node, answer in zip(chosen, answers, strict=True):
        if isinstance(answer, StockadeError):
            errors.append((node, answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found.append((node, answer))
    if errors and not found:
        raise errors[0][1]
    for node, error in errors:
        click.echo(f"without {node.node_id}: {error.detail}", err=True)
    return found


async def _states_of(client: Client, found: Sequence[RefusedWrite]) -> dict[int, list[ProducerOnPartition]]:
    """The present state, on each partition, of the producers whose batches came out of order, by producer id."""
    ids = {each.producer_id for each in found if each.code == OutOfOrderSequence.code and each.producer_id is not None}
    states = {}
    for producer_id in sorted(ids)[-PRODUCERS_ASKED_MAX:]:
        with suppress(StockadeError):
            states[producer_id] = (await client.producer(producer_id)).partitions
    return states


def _is_stored_since(each: RefusedWrite, states: Mapping[int, Sequence[ProducerOnPartition]]) -> bool:
    """Whether the partition has stored this batch since: a producer's sequence numbers are stored without a gap."""
    if each.code != OutOfOrderSequence.code or each.producer_id is None or each.sequence is None:
        return False
    return any(
        (state.topic, state.partition, state.producer_epoch) == (each.topic, each.partition, each.producer_epoch)
        and state.last_seq >= 0
        and (state.last_seq - each.sequence) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2
        for state in states.get(each.producer_id, ())
    )


def _row(node_id: str, each: RefusedWrite) -> tuple[object, ...]:
    at = datetime.fromtimestamp(each.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    producer = "-" if each.producer_id is None else f"{each.producer_id}, epoch {each.producer_epoch}"
    epoch = "-" if each.fence_epoch is None else each.fence_epoch
    return at, node_id, f"{each.topic}/{each.partition}", each.code, each.reason or "-", epoch, producer


def _sample(line: str) -> tuple[str, str, str] | None:
    """(name, labels, value) of a line of Prometheus' text format; None for a comment."""
    if not line or line.startswith("#"):
        return None
    series, _, value = line.rpartition(" ")
    name, _, labels = series.partition("{")
    return name, labels.removesuffix("}"), value
