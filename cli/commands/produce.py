"""`stockade produce`: stores the lines of files, or of standard input, in a topic. upload.py sends them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, get_args

import click

from ...client.api.client import Client
from ...client.config import BOUNDS, ClientConfig, Compression
from ...client.errors import ClientClosed
from ...client.producer.producer import Access, Producer
from ...client.session.session import Fence, Session
from ...partition.api.topics import Mode, Topic
from ...partition.errors import InvalidRequest, StockadeError
from ..ui.completion_names import TOPIC
from ..ui.connection import with_config
from ..ui.exits import INTERRUPTED, WRITER, explain, fail
from ..ui.manual import Adding, Manual
from ..ui.output import output_option, show_result, without_warnings_of_the_client
from ..ui.parameters import WholeNumber, collected
from .upload import Conditions, Parts, Upload, UploadProgress


class Ownership(NamedTuple):
    """The options of ownership: the writer's name, what it holds while it writes, and whether it waits for others."""

    name: str | None
    exclusive: bool
    wait: bool
    fencing: bool
    shared: bool
    writer_group: bool
    reacquire: bool

    @property
    def mode(self) -> Mode | None:
        """How the partitions are acquired; None: they are not."""
        if self.exclusive:
            return "Exclusive"
        if self.wait:
            return "WaitForExclusive"
        if self.fencing:
            return "ExclusiveWithFencing"
        return "Shared" if self.shared else None

    def check(self) -> None:
        """Raises click.UsageError for options that exclude each other."""
        if self.exclusive + self.wait + self.fencing + self.shared > 1:
            raise click.UsageError("--exclusive, --wait, --fencing and --shared exclude each other: give one of them")
        if self.writer_group and (self.reacquire or self.mode == "Shared"):
            raise click.UsageError("--writer-group: not with --shared or --reacquire, which are for grants")
        if self.reacquire and self.mode in (None, "Shared"):
            raise click.UsageError("--reacquire: only with --exclusive, --wait or --fencing")


class Batches(NamedTuple):
    """The options for batches: their size and compression."""

    batch_records: int
    compression: Compression


_BATCHES: tuple[Adding, ...] = (
    click.option(
        "--batch-records",
        default=1000,
        show_default=True,
        type=WholeNumber(*BOUNDS["batch_records_max"]),
        help="Most lines in one batch.",
    ),
    click.option(
        "--compression",
        default="none",
        show_default=True,
        type=click.Choice(get_args(Compression)),
        help="How batches are compressed on the way, on the nodes' disks, and on the way to readers.",
    ),
)
_OWNERSHIP: tuple[Adding, ...] = (
    click.option("--name", help="Name of the writer; a later writer with the same name fences this one."),
    click.option(
        "--exclusive",
        is_flag=True,
        help="Be the only writer meanwhile. Fails if another writer holds a partition.",
    ),
    click.option("--wait", is_flag=True, help="Like --exclusive, but wait for a turn."),
    click.option("--fencing", is_flag=True, help="Like --exclusive, but evict present holders."),
    click.option(
        "--shared",
        is_flag=True,
        help="Take a Shared seat: exclusive requests of others are refused, and lines fail at once where one holds it.",
    ),
    click.option(
        "--writer-group",
        is_flag=True,
        help="Own the partitions in the topic's writer_group meanwhile, in place of a grant. While another session owns"
        " one, it fails, or with --wait waits, or with --fencing takes it over.",
    ),
    click.option(
        "--reacquire",
        is_flag=True,
        help="After a loss, wait until the newer writer has left, acquire the partitions again with a new epoch, and go"
        " on behind its records with the lines that the log had refused.",
    ),
)
_CONDITIONS: tuple[Adding, ...] = (
    click.option(
        "--message-id",
        help="Name of the input, stored as one batch, all lines or none. Within the topic's dedupe_window_ms a second"
        " batch of this name in the partition is not stored again.",
    ),
    click.option(
        "--message-id-field",
        metavar="NAME",
        help="Each line is a JSON object, and this field is its message id: each is stored once, in a request of its"
        " own. Without --partition and keys the id chooses the partition.",
    ),
    click.option(
        "--if-log-end",
        type=WholeNumber(0),
        help="Store the input, as one batch, only if the partition's next offset is this one.",
    ),
)


@click.command(
    cls=Manual,
    short_help="Store the lines of files or of standard input.",
    exits=WRITER,
    examples=[
        ("A file, as the only writer of a partition", "stockade produce logs access.log --partition 0 --exclusive"),
        ("The output of a program, line by line as it comes", "tail -f app.log | stockade produce logs"),
        ("Keys and values", "printf 'k1\\tv1\\n' | stockade produce table --key-separator \"$(printf '\\t')\""),
        ("Take the place of a writer that hangs", "stockade produce logs rest.log --partition 0 --fencing"),
        (
            "A daily file that a second run of the job does not store again",
            "stockade produce orders today.csv --partition 0 --message-id orders-2026-01-31",
        ),
    ],
)
@click.argument("topic", type=TOPIC)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option(
    "--partition", type=WholeNumber(0), help="The partition. Default: by key; without keys, one after the other."
)
@click.option("--key-separator", help="Text between key and value in each line.")
@collected(Batches, "batches", _BATCHES)
@collected(Ownership, "ownership", _OWNERSHIP)
@collected(Conditions, "conditions", _CONDITIONS)
@output_option
@with_config
async def produce(
    config: ClientConfig,
    topic: str,
    files: Sequence[Path],
    partition: int | None,
    key_separator: str | None,
    *,
    batches: Batches,
    ownership: Ownership,
    conditions: Conditions,
    output: str,
) -> None:
    """Store each line of FILES as a record of TOPIC: its bytes without the LF. `-` or no file: standard input.

    A CR is part of its line, and a last line without LF counts. Each batch is stored as a whole, once, and in order
    within its partition. At the end the command prints how many records are stored, and at which offsets. On a terminal
    it shows a progress bar, unless the lines are typed there.
    """
    ownership.check()
    conditions.check(partition)
    _ = click.get_current_context().with_resource(without_warnings_of_the_client(".producer"))
    most = BOUNDS["batch_records_max"][1] if conditions.is_one_batch else batches.batch_records
    async with Client(replace(config, batch_records_max=most, compression=batches.compression)) as client:
        await client.connect()
        access: Access | None = "Shared" if ownership.mode == "Shared" else None
        async with Producer(client, name=ownership.name, access=access) as producer:
            described = await producer.client.metadata.topic(topic)
            typed = _is_typed(files)
            if typed:
                click.echo(f"Each line you type is a record of {topic}; Ctrl-D at the start of a line ends.", err=True)
            with UploadProgress(_size_of(files), typed=typed) as progress:
                resting = asyncio.Event()
                async with _holding(producer, described, partition, ownership, resting) as fence:
                    parts = Parts(described, partition, key_separator, conditions)
                    upload = Upload(producer, parts, progress, fence if ownership.reacquire else None, resting)
                    interrupted = await upload.run(files)
    as_json = output == "json"
    show_result(progress.facts(topic), progress.summary(topic), output)
    if progress.error is not None:
        click.echo("" if as_json else progress.shortfall(), err=True, nl=not as_json)
        fail(progress.error, as_json=as_json)
    if interrupted:
        sys.exit(INTERRUPTED)


@asynccontextmanager
async def _holding(
    producer: Producer, topic: Topic, partition: int | None, wanted: Ownership, resting: asyncio.Event
) -> AsyncIterator[Fence | None]:
    """Holds what the options ask for during the block. A loss does not cancel the block, because each batch in flight
    still has an outcome to report.

    Yields the fence of a grant, else None. A fence that is acquired again comes into force once ``resting`` is set.
    """
    partitions = list(range(len(topic.partitions))) if partition is None else [partition]
    if wanted.writer_group:
        group = topic.config.writer_group
        if group is None:
            raise InvalidRequest(f"--writer-group: {topic.name} has no writer_group")
        async with Session(producer.client, producer.name) as session:
            generation = 0 if wanted.mode == "ExclusiveWithFencing" else None
            names = [f"{topic.name}/{number}" for number in partitions]
            wait = wanted.mode == "WaitForExclusive"
            owned = await session.own(group, names, generation=generation, sever="resource", wait=wait)
            async with producer.owning(*owned, cancel_on_loss=False):
                yield None
    elif wanted.mode in (None, "Shared"):
        yield None
    else:

        def tell_loss(error: StockadeError) -> None:
            if not isinstance(error, ClientClosed):  # raised when the block ends and releases the fence
                click.echo(f"lost {topic.name}: {explain(error)} Waiting to acquire it again.", err=True)

        async def told(fence: Fence) -> None:
            click.echo(f"acquired {topic.name} again with epoch {fence.epoch}", err=True)
            fence.on_lost(tell_loss)
            await resting.wait()

        block = producer.exclusive(
            topic.name,
            partitions,
            wanted.mode,
            cancel_on_loss=False,
            reacquire=told if wanted.reacquire else None,
        )
        async with block as fence:
            if wanted.reacquire:
                fence.on_lost(tell_loss)
            yield fence


def _is_typed(files: Sequence[Path]) -> bool:
    """Whether lines come from a terminal."""
    return (not files or Path("-") in files) and sys.stdin.isatty()


def _size_of(files: Sequence[Path]) -> int | None:
    """The size of the input in bytes, if it is known."""
    if not files or any(str(path) == "-" or not path.is_file() for path in files):
        return None
    return sum(path.stat().st_size for path in files)
