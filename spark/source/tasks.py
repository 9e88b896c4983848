"""What a task is given, and how it turns that into rows: the part that runs on executors."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa

from ..client.blocking import BlockingClient
from ..client.config import BOOTSTRAP_URLS_MAX
from .columns import ORIGIN_NAMES, rows
from .fetch import read_range
from .options import ReadOptions
from .ranges import Range


class Task(NamedTuple):
    """Rows to be read, and whom to ask for them, in this order."""

    wanted: Range
    nodes: tuple[str, ...]


def client_of(options: ReadOptions, nodes: Iterable[str] = ()) -> BlockingClient:
    """A client that begins with ``nodes``, and otherwise with those of the options."""
    return BlockingClient(tuple(nodes) or options.urls, options.access)


def tasks_of(
    ranges: Iterable[Range], leaders: Mapping[tuple[str, int], str | None], options: ReadOptions
) -> list[Task]:
    """A task for each range. It asks the leader that holds its records first, then everybody else we know of."""
    made = []
    for wanted in ranges:
        known = [leaders.get((wanted.topic, wanted.partition)), *leaders.values(), *options.urls]
        made.append(Task(wanted, tuple(dict.fromkeys(url for url in known if url))[:BOOTSTRAP_URLS_MAX]))
    return made


def read_task(task: Task, options: ReadOptions, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a task, with exactly the columns and types of ``target``."""
    meta = not set(ORIGIN_NAMES).isdisjoint(target.names)
    with closing(client_of(options, task.nodes)) as client:
        for offset, batch in read_range(client, task.wanted, meta=meta, fail=options.fail_on_data_loss):
            yield rows(target, task.wanted, offset, batch)
