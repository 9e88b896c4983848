"""`stockade produce`: stores the lines of files, or of standard input, in a topic.

Lines are gathered into batches (lines.py); Parts divides them by partition, or gives each a message id; Upload sends
them and counts their outcomes.
"""

import asyncio
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self, get_args

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from ...client.api.client import Client
from ...client.config import BOUNDS, ClientConfig, Compression
from ...client.errors import ClientClosed
from ...client.producer.delivery import Delivery
from ...client.producer.producer import Access, Producer
from ...client.producer.queue.batch import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES, Receipt
from ...client.session.session import Fence, Session
from ...partition.api.topics import Mode, Topic
from ...partition.errors import InvalidRecord, InvalidRequest, MessageTooLarge, StockadeError
from ...partition.partitioner import partition_for_key
from ..ui.completion_names import TOPIC
from ..ui.connection import with_config
from ..ui.exits import INTERRUPTED, WRITER, explain, fail
from ..ui.manual import Adding, Manual
from ..ui.output import count, output_option, show_result
from ..ui.parameters import WholeNumber, collected
from .lines import BlockReader, Gatherer, LineCutter

MEGABYTE = 1_000_000


class UploadProgress:
    """Counts the outcomes of batches. A context manager, which shows a progress bar on standard error if that is a
    terminal, unless the lines are typed there (``typed``): the bar would overwrite them.

    ``bytes_total``: the size of the input; None if unknown. ``error``: the first failure. ``known_records``: records
    that the log had before, under the same message id.
    """

    def __init__(self, bytes_total: int | None, *, typed: bool = False) -> None:
        self.records: int = 0
        self.known_records: int = 0
        self.bytes: int = 0
        self.unknown_records: int = 0
        self.absent_records: int = 0
        self.error: StockadeError | None = None
        self._offsets: dict[int, tuple[int, int]] = {}
        self._began_s = perf_counter()
        self._took_s = 0.0
        console = Console(stderr=True)
        rate = TextColumn("{task.fields[rate]}")
        columns = (BarColumn(), DownloadColumn(), rate, TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=typed or not console.is_terminal)
        self._task = self._progress.add_task("", total=bytes_total, rate="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._took_s = perf_counter() - self._began_s
        self._progress.stop()

    def stored(self, receipt: Receipt, size: int, *, named: bool) -> None:
        """Count a stored batch of ``size`` bytes; ``named``: it has a message id."""
        self.records += receipt.count
        self.known_records += receipt.count if named and receipt.duplicate else 0
        self.bytes += size
        if receipt.base_offset is not None and receipt.last_offset is not None:
            first, last = self._offsets.get(receipt.partition, (receipt.base_offset, receipt.last_offset))
            self._offsets[receipt.partition] = (min(first, receipt.base_offset), max(last, receipt.last_offset))
        rate = self._rate(perf_counter() - self._began_s)
        self._progress.update(self._task, advance=size + receipt.count, rate=rate)

    def failed(self, error: StockadeError, records: int, size: int) -> None:
        """Count a batch that failed. Its outcome certificate says whether it is stored all the same."""
        self.error = self.error or error
        state = _state(error)
        if state == "committed":
            self.records += records
            self.bytes += size
        elif state == "unknown":
            self.unknown_records += records
        else:
            self.absent_records += records

    def summary(self, topic: str) -> str:
        """The result as text: records, bytes, seconds, rates, and the offsets in each partition."""
        done = f"{topic}: {self.records:,} records, {self.bytes / MEGABYTE:,.1f} MB in {self._took_s:.2f} s"
        places = [f"  partition {number}: offsets {a}..{z}" for number, (a, z) in sorted(self._offsets.items())]
        known = [f"  {count(self.known_records, 'record')} had been stored before"] if self.known_records else []
        return "\n".join([f"{done} ({self._rate(self._took_s)})", *known, *places])

    def facts(self, topic: str) -> dict[str, object]:
        """The result for JSON: ``summary`` with the numbers of records that are absent or of unknown outcome."""
        places = [{"partition": n, "base_offset": a, "last_offset": z} for n, (a, z) in sorted(self._offsets.items())]
        counts = {
            "records": self.records,
            "known_records": self.known_records,
            "absent_records": self.absent_records,
            "unknown_records": self.unknown_records,
        }
        return {"topic": topic, **counts, "bytes": self.bytes, "seconds": self._took_s, "partitions": places}

    def shortfall(self) -> str:
        """A sentence after a failure: how many records are stored, and how many are not."""
        unknown = f"; outcome unknown: {self.unknown_records:,}" if self.unknown_records else ""
        return f"Stopped. Records stored: {self.records:,}; sent and not stored: {self.absent_records:,}{unknown}."

    def _rate(self, seconds: float) -> str:
        seconds = max(seconds, 1e-9)
        return f"{self.records / seconds:,.0f} records/s, {self.bytes / MEGABYTE / seconds:,.1f} MB/s"


OUTSTANDING_MAX = 256
"""Batches sent and not counted yet, at most. The producer itself bounds bytes and batches in flight."""


class Ownership(NamedTuple):
    """The options of ownership: the writer's name, what it holds while it writes, and whether it waits for others."""

    name: str | None
    mode: Mode | None
    writer_group: bool
    reacquire: bool

    def check(self) -> None:
        """Raises click.UsageError for options that exclude each other."""
        if self.writer_group and (self.reacquire or self.mode == "Shared"):
            raise click.UsageError("--writer-group: not with --shared or --reacquire, which are for grants")
        if self.reacquire and self.mode in (None, "Shared"):
            raise click.UsageError("--reacquire: only with --exclusive, --wait or --fencing")


class Conditions(NamedTuple):
    """The options by which the log recognises a repeated input, or takes the input only at one offset."""

    message_id: str | None
    message_id_field: str | None
    if_log_end: int | None

    @property
    def is_one_batch(self) -> bool:
        """Whether the input has to be one batch."""
        return self.message_id is not None or self.if_log_end is not None

    def check(self, partition: int | None) -> None:
        """Raises click.UsageError for options that exclude or need each other."""
        if self.is_one_batch and partition is None:
            raise click.UsageError("--message-id, --if-log-end: need --partition")
        if self.is_one_batch and self.message_id_field is not None:
            raise click.UsageError("--message-id-field: names line by line; not with --message-id or --if-log-end")


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
        "mode",
        flag_value="Exclusive",
        help="Be the only writer meanwhile. Fails if another writer holds a partition.",
    ),
    click.option("--wait", "mode", flag_value="WaitForExclusive", help="Like --exclusive, but wait for a turn."),
    click.option(
        "--fencing", "mode", flag_value="ExclusiveWithFencing", help="Like --exclusive, but evict present holders."
    ),
    click.option(
        "--shared",
        "mode",
        flag_value="Shared",
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


class Part(NamedTuple):
    """The lines of one call of send_batch."""

    partition: int | None
    keys: list[bytes] | None
    values: list[bytes]
    message_id: str | None = None
    if_log_end: int | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self.values))


class Parts:
    """Divides lines by partition, or gives each line its message id, as the options say."""

    def __init__(self, topic: Topic, partition: int | None, separator: str | None, conditions: Conditions) -> None:
        self.topic: Topic = topic
        self.conditions: Conditions = conditions
        self._partition = partition
        self._separator = None if separator is None else separator.encode()

    def of(self, lines: list[bytes]) -> Iterator[Part]:
        """The parts of these lines. Raises InvalidRecord for a line without its key or message id."""
        if self.conditions.message_id_field is not None:
            yield from (self._named(line, self.conditions.message_id_field) for line in lines)
        elif lines:
            yield from self._divided(lines)

    def _divided(self, lines: list[bytes]) -> Iterator[Part]:
        named = self.conditions.message_id, self.conditions.if_log_end
        if self._separator is None:
            yield Part(self._partition, None, lines, *named)
            return
        parts: dict[int, tuple[list[bytes], list[bytes]]] = {}
        for line in lines:
            key, value = self._split(line, self._separator)
            keys, values = parts.setdefault(self._place(key), ([], []))
            keys.append(key)
            values.append(value)
        for partition, (keys, values) in parts.items():
            yield Part(partition, keys, values, *named)

    def _named(self, line: bytes, field: str) -> Part:
        key, value = (None, line) if self._separator is None else self._split(line, self._separator)
        name = _field(value, field)
        place = self._place(name.encode() if key is None else key)
        return Part(place, None if key is None else [key], [value], name)

    def _split(self, line: bytes, separator: bytes) -> tuple[bytes, bytes]:
        key, found, value = line.partition(separator)
        if not found:
            raise InvalidRecord(f"the line {line[:60]!r} has no key separator")
        return key, value

    def _place(self, key: bytes) -> int:
        return self._partition if self._partition is not None else partition_for_key(key, len(self.topic.partitions))


def _field(line: bytes, name: str) -> str:
    """The text or whole number in field ``name`` of a JSON object. Raises InvalidRecord."""
    try:
        found = msgspec.json.decode(line)[name]
    except (msgspec.DecodeError, KeyError, TypeError, IndexError):
        found = None
    if not isinstance(found, str | int) or isinstance(found, bool):
        raise InvalidRecord(f"the line {line[:60]!r} is no JSON object with a text or whole number in {name!r}")
    return str(found)


class Upload:
    """Sends batches of lines and counts their outcomes in the order of sending, until one fails.

    With a ``fence`` that is acquired again after a loss, the upload waits for the new fence and goes on: batches that
    the log has refused are sent again under the new epoch, before later lines; they are absent for certain, so no line
    is stored twice. ``resting`` is set while the upload has noticed the loss, sends nothing, and has no new fence yet.
    Only then may the new fence come into force: otherwise a later batch could overtake the refused ones.
    """

    def __init__(
        self, producer: Producer, parts: Parts, progress: UploadProgress, fence: Fence | None, resting: asyncio.Event
    ) -> None:
        config = producer.client.config
        self._producer = producer
        self._parts = parts
        self._fence = fence
        self._resting = resting
        self._progress = progress
        self._waiting: deque[Part] = deque()
        self._outstanding: deque[tuple[Delivery, Part]] = deque()
        bytes_max = min(config.batch_bytes_max, parts.topic.config.max_batch_bytes - BATCH_OVERHEAD_BYTES)
        self._gatherer = Gatherer(config.batch_records_max, bytes_max, RECORD_OVERHEAD_BYTES)

    async def run(self, files: Sequence[Path]) -> bool:
        """Send every line of ``files`` and wait for all outcomes. Returns whether Ctrl-C interrupted the upload."""
        reading = asyncio.ensure_future(self._upload(files))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, reading.cancel)
        try:
            await reading
        except asyncio.CancelledError:
            return True
        except StockadeError as error:
            self._progress.failed(error, 0, 0)
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
            self._fence = None
            while self._outstanding:
                await self._count_oldest()
        return False

    async def _upload(self, files: Sequence[Path]) -> None:
        for path in files or [Path("-")]:
            try:
                with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
                    await self._read_file(file)
            except OSError as error:
                name = "standard input" if str(path) == "-" else path
                raise InvalidRequest(f"{name} cannot be read: {error.strerror}") from error
        await self._send(self._gatherer.take())
        while self._outstanding:
            await self._count_oldest()
            await self._send_waiting()

    async def _read_file(self, file: BinaryIO) -> None:
        reader, cutter = BlockReader(file), LineCutter()
        is_one_batch = self._parts.conditions.is_one_batch
        async for block in reader:
            await self._gather(cutter.feed(block))
            if reader.is_waiting and not is_one_batch:
                # The source is slow: lines that have arrived must not wait for later ones.
                await self._send(self._gatherer.take())
        await self._gather(cutter.end())

    async def _gather(self, lines: list[bytes]) -> None:
        for full in self._gatherer.add(lines):
            if self._parts.conditions.is_one_batch:
                raise MessageTooLarge(
                    "--message-id and --if-log-end are about one batch, and the input is larger; nothing is stored"
                )
            await self._send(full)

    async def _send(self, lines: list[bytes]) -> None:
        for part in self._parts.of(lines):
            self._waiting.append(part)
            await self._send_waiting()

    async def _send_waiting(self) -> None:
        while self._waiting:
            part = self._waiting[0]
            try:
                delivery = await self._producer.send_batch(
                    self._parts.topic.name,
                    part.partition,
                    part.values,
                    keys=part.keys,
                    message_id=part.message_id,
                    if_log_end=part.if_log_end,
                )
            except StockadeError:
                if not self._is_lost:
                    raise
                await self._acquired_again()
                continue
            self._waiting.popleft()
            self._outstanding.append((delivery, part))
            while len(self._outstanding) > OUTSTANDING_MAX or (self._outstanding and self._outstanding[0][0].is_done):
                await self._count_oldest()
            if self._progress.error is not None:
                raise self._progress.error

    @property
    def _is_lost(self) -> bool:
        return self._fence is not None and self._fence.error is not None

    async def _count_oldest(self) -> None:
        delivery, part = self._outstanding[0]
        try:
            receipt: Receipt = await delivery
        except StockadeError as error:
            if self._is_lost and _state(error) == "absent":
                await self._acquired_again()
                return
            self._progress.failed(error, len(part.values), part.size)
        else:
            self._progress.stored(receipt, part.size, named=part.message_id is not None)
        self._outstanding.popleft()

    async def _acquired_again(self) -> None:
        """Collect the refused batches and wait until the partitions are acquired again; then these batches are the next
        to send. Raises the first failure that is no such refusal, or that of acquiring.
        """
        assert self._fence is not None
        lost, self._fence = self._fence, None
        refused = []
        while self._outstanding:
            delivery, part = self._outstanding[0]
            with suppress(StockadeError):
                await delivery
            if delivery.failure is not None and _state(delivery.failure) == "absent":
                self._outstanding.popleft()
                refused.append(part)
            else:
                await self._count_oldest()
        if self._progress.error is not None:
            raise self._progress.error
        self._resting.set()
        try:
            self._fence = await lost.again()
        except StockadeError as error:
            for part in refused:
                self._progress.failed(error, len(part.values), part.size)
            raise
        finally:
            self._resting.clear()
        self._waiting.extendleft(reversed(refused))


def _state(error: StockadeError) -> str | None:
    """The state in a refusal's outcome certificate: committed, absent or unknown; None without a certificate."""
    state: str | None = (error.fields.get("outcome") or {}).get("state")
    return state


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
