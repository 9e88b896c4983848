"""`stockade produce`: stores the lines of files, or of standard input, in a topic.

A thread reads blocks (BlockReader), which are cut into lines (LineCutter) and gathered into batches (Gatherer); Upload
sends them and follows their outcomes. The bytes of a line without its LF are the record: a CR is part of the line, a
last line without LF counts, and nothing after the last LF is no line.
"""

import asyncio
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from io import FileIO, UnsupportedOperation
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import BinaryIO, Self

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from ...client.api.client import Client
from ...client.config import BOUNDS, ClientConfig
from ...client.producer.delivery import Delivery
from ...client.producer.producer import Producer
from ...client.producer.queue.batch import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES, Receipt
from ...partition.api.topics import Mode, Topic
from ...partition.errors import InvalidRecord, StockadeError
from ...partition.partitioner import partition_for_key
from ..ui.completion_names import TOPIC
from ..ui.connection import with_config
from ..ui.exits import INTERRUPTED, WRITER, fail
from ..ui.manual import Manual
from ..ui.output import output_option, show_result
from ..ui.parameters import WholeNumber

BLOCK_BYTES = 1 << 20
"""Bytes read at a time."""
BLOCKS_AHEAD_MAX = 4
"""Blocks that are read ahead."""


class LineCutter:
    """Cuts blocks of one file into lines."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that end in this block."""
        first, *others = block.split(b"\n")
        self._rest.append(first)
        if not others:
            return []
        lines = [b"".join(self._rest), *others]
        self._rest = [lines.pop()]
        return lines

    def end(self) -> list[bytes]:
        """The last line, if it had no LF."""
        rest, self._rest = b"".join(self._rest), []
        return [rest] if rest else []


class Gatherer:
    """Gathers lines into batches of at most ``records_max`` lines and ``bytes_max`` bytes; a longer line is one alone.

    Each line counts with its bytes and ``overhead_bytes``.
    """

    def __init__(self, records_max: int, bytes_max: int, overhead_bytes: int) -> None:
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._overhead_bytes = overhead_bytes
        self._lines: list[bytes] = []
        self._bytes = 0

    def add(self, lines: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Take lines; yield the batches that are full."""
        for line in lines:
            size = len(line) + self._overhead_bytes
            if self._lines and (len(self._lines) >= self._records_max or self._bytes + size > self._bytes_max):
                yield self.take()
            self._lines.append(line)
            self._bytes += size

    def take(self) -> list[bytes]:
        """The lines gathered so far, which may be none."""
        lines, self._lines, self._bytes = self._lines, [], 0
        return lines


class BlockReader:
    """Reads a file on a thread of its own, some blocks ahead, so that a slow pipe does not block the event loop.

    The thread is a daemon, because a read from a terminal cannot be interrupted. So it reads a duplicate of the file's
    descriptor: the lock of the file object, held during a read, would abort the end of the interpreter, and no other
    code closes the duplicate.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._given = file
        self._loop = asyncio.get_running_loop()
        self._blocks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._room = threading.Semaphore(BLOCKS_AHEAD_MAX)
        threading.Thread(target=self._read_all, args=(_duplicate(file),), daemon=True).start()

    @property
    def is_waiting(self) -> bool:
        """The next block is not there yet."""
        return self._blocks.empty()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Block after block. Raises OSError."""
        while block := await self._blocks.get():
            if isinstance(block, OSError):
                raise block
            self._room.release()
            yield block

    def _read_all(self, file: BinaryIO) -> None:
        with suppress(RuntimeError):  # the event loop is closed: the blocks are not wanted any more
            try:
                while block := self._next(file):
                    self._loop.call_soon_threadsafe(self._blocks.put_nowait, block)
            except OSError as error:
                self._loop.call_soon_threadsafe(self._blocks.put_nowait, error)
            else:
                self._loop.call_soon_threadsafe(self._blocks.put_nowait, b"")
            finally:
                if file is not self._given:
                    file.close()

    def _next(self, file: BinaryIO) -> bytes:
        self._room.acquire()
        return file.read(BLOCK_BYTES)


def _duplicate(file: BinaryIO) -> BinaryIO:
    """The same file without a buffer: a read returns the bytes that are there."""
    try:
        descriptor = os.dup(file.fileno())
    except (AttributeError, UnsupportedOperation):
        return file
    return FileIO(descriptor, "rb")


MEGABYTE = 1_000_000


class UploadProgress:
    """Counts the outcomes of batches. A context manager that shows a bar on standard error, if it is a terminal and the
    lines are not typed there: a bar would be drawn over them.

    ``bytes_total`` is the size of the input, None if it is not known. ``error`` is the first failure.
    """

    def __init__(self, bytes_total: int | None, *, typed: bool = False) -> None:
        self.records: int = 0
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

    def stored(self, receipt: Receipt, size: int) -> None:
        """Count a batch of ``size`` bytes that is stored."""
        self.records += receipt.count
        self.bytes += size
        if receipt.base_offset is not None and receipt.last_offset is not None:
            first, _ = self._offsets.get(receipt.partition, (receipt.base_offset, 0))
            self._offsets[receipt.partition] = (first, receipt.last_offset)
        rate = self._rate(perf_counter() - self._began_s)
        self._progress.update(self._task, advance=size + receipt.count, rate=rate)

    def failed(self, error: StockadeError, records: int, size: int) -> None:
        """Count a batch that failed. Its outcome certificate says whether it is stored all the same."""
        self.error = self.error or error
        state = error.fields.get("outcome", {}).get("state")
        if state == "committed":
            self.records += records
            self.bytes += size
        elif state == "unknown":
            self.unknown_records += records
        else:
            self.absent_records += records

    def summary(self, topic: str) -> str:
        """For people: records, bytes, seconds, rates, and the offsets in each partition."""
        done = f"{topic}: {self.records:,} records, {self.bytes / MEGABYTE:,.1f} MB in {self._took_s:.2f} s"
        places = [f"  partition {number}: offsets {a}..{z}" for number, (a, z) in sorted(self._offsets.items())]
        return "\n".join([f"{done} ({self._rate(self._took_s)})", *places])

    def facts(self, topic: str) -> dict[str, object]:
        """For programs: the same, with the numbers of records that are absent or of unknown outcome."""
        places = [{"partition": n, "base_offset": a, "last_offset": z} for n, (a, z) in sorted(self._offsets.items())]
        counts = {
            "records": self.records,
            "absent_records": self.absent_records,
            "unknown_records": self.unknown_records,
        }
        return {"topic": topic, **counts, "bytes": self.bytes, "seconds": self._took_s, "partitions": places}

    def shortfall(self) -> str:
        """For people, after a failure: how many records are stored, and how many are not."""
        unknown = f"; outcome unknown: {self.unknown_records:,}" if self.unknown_records else ""
        return f"Stopped. Records stored: {self.records:,}; sent and not stored: {self.absent_records:,}{unknown}."

    def _rate(self, seconds: float) -> str:
        seconds = max(seconds, 1e-9)
        return f"{self.records / seconds:,.0f} records/s, {self.bytes / MEGABYTE / seconds:,.1f} MB/s"


OUTSTANDING_MAX = 256
"""Batches sent and not counted yet. The producer itself bounds bytes and batches in flight."""


@click.command(
    cls=Manual,
    short_help="Store the lines of files or of standard input.",
    exits=WRITER,
    examples=[
        ("A file, as the only writer of a partition", "stockade produce logs access.log --partition 0 --exclusive"),
        ("The output of a program, line by line as it comes", "tail -f app.log | stockade produce logs"),
        ("Keys and values", "printf 'k1\\tv1\\n' | stockade produce table --key-separator \"$(printf '\\t')\""),
        ("Take the place of a writer that hangs", "stockade produce logs rest.log --partition 0 --fencing"),
    ],
)
@click.argument("topic", type=TOPIC)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option(
    "--partition", type=WholeNumber(0), help="The partition. Default: by key; without keys, one after the other."
)
@click.option("--key-separator", help="Text between key and value in each line.")
@click.option(
    "--batch-records",
    default=1000,
    show_default=True,
    type=WholeNumber(*BOUNDS["batch_records_max"]),
    help="Most lines in one batch.",
)
@click.option(
    "--exclusive",
    "mode",
    flag_value="Exclusive",
    help="Be the only writer meanwhile. Fails if another writer holds a partition.",
)
@click.option(
    "--fencing", "mode", flag_value="ExclusiveWithFencing", help="Like --exclusive, but evict present holders."
)
@click.option(
    "--shared",
    "mode",
    flag_value="Shared",
    help="Take a Shared seat: exclusive requests of others are refused, and lines fail at once where one holds it.",
)
@click.option("--name", help="Name of the writer; a later writer with the same name fences this one.")
@output_option
@with_config
async def produce(
    config: ClientConfig,
    topic: str,
    files: Sequence[Path],
    partition: int | None,
    key_separator: str | None,
    batch_records: int,
    *,
    mode: Mode | None,
    name: str | None,
    output: str,
) -> None:
    """Store each line of FILES as a record of TOPIC: its bytes without the LF. `-` or no file: standard input.

    A CR is part of its line, and a last line without LF counts. Each batch is stored as a whole, once, and in order
    within its partition. At the end the command prints how many records are stored, and at which offsets. On a terminal
    it shows a progress bar, unless the lines are typed there.
    """
    settings = replace(config, batch_records_max=batch_records)
    async with Client(settings) as client:
        await client.connect()
        async with Producer(client, name=name, access="Shared" if mode == "Shared" else None) as producer:
            described = await producer.client.metadata.topic(topic)
            typed = _is_typed(files)
            if typed:
                click.echo(f"Each line you type is a record of {topic}; Ctrl-D at the start of a line ends.", err=True)
            with UploadProgress(_size_of(files), typed=typed) as progress:
                upload = Upload(producer, described, partition, key_separator, progress)
                async with _exclusive(producer, topic, partition, mode):
                    interrupted = await upload.run(files)
    as_json = output == "json"
    show_result(progress.facts(topic), progress.summary(topic), output)
    if progress.error is not None:
        click.echo("" if as_json else progress.shortfall(), err=True, nl=not as_json)
        fail(progress.error, as_json=as_json)
    if interrupted:
        sys.exit(INTERRUPTED)


class Upload:
    """Sends batches of lines and counts their outcomes in the order of sending, until one fails."""

    def __init__(
        self, producer: Producer, topic: Topic, partition: int | None, separator: str | None, progress: UploadProgress
    ) -> None:
        config = producer.client.config
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._separator = None if separator is None else separator.encode()
        self._progress = progress
        self._outstanding: deque[tuple[Delivery, int, int]] = deque()
        bytes_max = min(config.batch_bytes_max, topic.config.max_batch_bytes - BATCH_OVERHEAD_BYTES)
        self._gatherer = Gatherer(config.batch_records_max, bytes_max, RECORD_OVERHEAD_BYTES)

    async def run(self, files: Sequence[Path]) -> bool:
        """Send every line of ``files`` and wait for the outcomes. Returns whether Ctrl-C interrupted it."""
        reading = asyncio.ensure_future(self._read(files))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, reading.cancel)
        try:
            await reading
        except asyncio.CancelledError:
            return True
        except StockadeError as error:
            self._progress.failed(error, 0, 0)
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
            while self._outstanding:
                await self._count_oldest()
        return False

    async def _read(self, files: Sequence[Path]) -> None:
        for path in files or [Path("-")]:
            if str(path) == "-":
                await self._read_file(sys.stdin.buffer)
            else:
                with path.open("rb") as file:
                    await self._read_file(file)
        await self._send(self._gatherer.take())

    async def _read_file(self, file: BinaryIO) -> None:
        reader, cutter = BlockReader(file), LineCutter()
        async for block in reader:
            for lines in self._gatherer.add(cutter.feed(block)):
                await self._send(lines)
            if reader.is_waiting:
                # A slow source: lines that are there must not wait for lines that may come.
                await self._send(self._gatherer.take())
        for lines in self._gatherer.add(cutter.end()):
            await self._send(lines)

    async def _send(self, lines: list[bytes]) -> None:
        for partition, keys, values in self._parts(lines):
            delivery = await self._producer.send_batch(self._topic.name, partition, values, keys=keys)
            self._outstanding.append((delivery, len(values), sum(map(len, values))))
            while len(self._outstanding) > OUTSTANDING_MAX or (self._outstanding and self._outstanding[0][0].is_done):
                await self._count_oldest()
            if self._progress.error is not None:
                raise self._progress.error

    def _parts(self, lines: list[bytes]) -> list[tuple[int | None, list[bytes] | None, list[bytes]]]:
        """(partition, keys, values) of each batch to send."""
        if self._separator is None:
            return [(self._partition, None, lines)] if lines else []
        parts: dict[int, tuple[list[bytes], list[bytes]]] = {}
        for line in lines:
            key, found, value = line.partition(self._separator)
            if not found:
                raise InvalidRecord(f"the line {line[:60]!r} has no key separator")
            chosen = self._partition
            if chosen is None:
                chosen = partition_for_key(key, len(self._topic.partitions))
            keys, values = parts.setdefault(chosen, ([], []))
            keys.append(key)
            values.append(value)
        return [(partition, keys, values) for partition, (keys, values) in parts.items()]

    async def _count_oldest(self) -> None:
        delivery, records, size = self._outstanding[0]
        try:
            receipt: Receipt = await delivery
        except StockadeError as error:
            self._progress.failed(error, records, size)
        else:
            self._progress.stored(receipt, size)
        self._outstanding.popleft()


def _exclusive(
    producer: Producer, topic: str, partition: int | None, mode: Mode | None
) -> AbstractAsyncContextManager[object]:
    if mode in (None, "Shared"):
        return nullcontext()
    partitions = None if partition is None else [partition]
    # Not cancelled when the grant is lost: every batch in flight still has an outcome to report.
    return producer.exclusive(topic, partitions, mode, cancel_on_loss=False)


def _is_typed(files: Sequence[Path]) -> bool:
    """Whether lines come from a terminal."""
    return (not files or Path("-") in files) and sys.stdin.isatty()


def _size_of(files: Sequence[Path]) -> int | None:
    """The size of the input in bytes, if it is known."""
    if not files or any(str(path) == "-" or not path.is_file() for path in files):
        return None
    return sum(path.stat().st_size for path in files)
