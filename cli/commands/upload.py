"""The upload of lines: they are gathered into batches (lines.py), divided by partition or given message ids (Parts),
and sent (Upload); their outcomes are counted (UploadProgress).
"""

import asyncio
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from ...client.producer.delivery import Delivery
from ...client.producer.producer import Producer
from ...client.producer.queue.batch import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES, Receipt
from ...client.session.session import Fence
from ...partition.api.topics import Topic
from ...partition.errors import InvalidRecord, InvalidRequest, MessageTooLarge, StockadeError
from ...partition.partitioner import partition_for_key
from ..ui.output import count
from .lines import BlockReader, Gatherer, LineCutter

OUTSTANDING_MAX = 256
"""Batches sent and not counted yet, at most. The producer itself bounds bytes and batches in flight."""
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
        done = f"{topic}: {count(self.records, 'record')}, {self.bytes / MEGABYTE:,.1f} MB in {self._took_s:.2f} s"
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
