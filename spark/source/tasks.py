"""Tasks: the range that each task reads, the nodes that it asks, and how it makes rows. Tasks run on executors."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa

from ...client.blocking.reader import BlockingClient
from .planning.options import ReadOptions
from .planning.ranges import Range
from .rows.columns import ORIGIN_NAMES, rows
from .rows.fetch import read_range
from .topics import Found


class Task(NamedTuple):
    """A range to read, and the base URLs of nodes to ask for it, in this order."""

    wanted: Range
    nodes: tuple[str, ...]


def client_of(options: ReadOptions, nodes: Iterable[str] = ()) -> BlockingClient:
    """A client with ``nodes`` as bootstrap URLs, or if there are none, the URLs of the options."""
    return BlockingClient(tuple(nodes) or options.urls, options.access)


def tasks_of(ranges: Iterable[Range], found: Found) -> list[Task]:
    """A task for each range. It asks the partition's leader first, then the other known nodes."""
    made = []
    for wanted in ranges:
        leader = found.leaders.get((wanted.topic, wanted.partition))
        # A leader is unknown if it may not be asked: it has no TLS, and the nodes of the options have.
        first = [leader] if leader in found.nodes else []
        made.append(Task(wanted, tuple(dict.fromkeys([*first, *found.nodes]))))
    return made


def read_task(task: Task, options: ReadOptions, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a task, with exactly the columns and types of ``target``."""
    meta = not set(ORIGIN_NAMES).isdisjoint(target.names)
    with closing(client_of(options, task.nodes)) as client:
        for offset, batch in read_range(client, task.wanted, meta=meta, fail=options.fail_on_data_loss):
            yield rows(target, task.wanted, offset, batch)
