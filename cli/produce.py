"""`stockade produce`: lines of files, or of standard input, into a topic."""

import asyncio
import signal
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import click

from ..client.batches import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES, Receipt
from ..client.config import BOUNDS, ClientConfig
from ..client.delivery import Delivery
from ..client.model import Mode, Topic
from ..client.producer import Producer
from ..partition.errors import InvalidRecord, StockadeError
from ..partition.partitioner import partition_for_key
from .connection import connected
from .exits import INTERRUPTED, WRITER, fail
from .lines import BlockReader, Gatherer, LineCutter
from .manual import Manual
from .names import TOPIC
from .output import output_option, told
from .tally import Tally

OUTSTANDING_MAX = 256
"""Batches sent whose outcome was not looked at yet; the producer's own bounds are on bytes and batches in flight."""


@click.command(
    cls=Manual,
    short_help="Store lines of files or of standard input.",
    exits=WRITER,
    examples=[
        ("A file, as the only writer of a partition", "stockade produce logs access.log --partition 0 --exclusive"),
        ("What a program prints, as it comes", "tail -f app.log | stockade produce logs"),
        ("Keys and values", "printf 'k1\\tv1\\n' | stockade produce table --key-separator \"$(printf '\\t')\""),
        ("Take the place of a writer that hangs", "stockade produce logs rest.log --partition 0 --fencing"),
    ],
)
@click.argument("topic", type=TOPIC)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--partition", type=click.IntRange(0), help="Which one. Default: one after the other, or by key.")
@click.option("--key-separator", help="What is before it in a line is the key, what is behind it the value.")
@click.option(
    "--batch-records",
    default=1000,
    show_default=True,
    type=click.IntRange(*BOUNDS["batch_records_max"]),
    help="Most lines in one batch.",
)
@click.option(
    "--exclusive",
    "mode",
    flag_value="Exclusive",
    help="Let nobody else write meanwhile. Refused while somebody else does.",
)
@click.option(
    "--fencing", "mode", flag_value="ExclusiveWithFencing", help="The same, but take the place of whoever is there."
)
@click.option("--name", help="Name of the writer; a later writer of the same name fences this one off.")
@output_option
@connected
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
    """Store the lines of FILES in TOPIC, a record each, byte for byte without the LF; `-` or no file: standard input.

    A CR stays a part of its line, and a last line without LF counts. Each batch is stored whole or not at all, once,
    and in order within its partition; at the end it says how many records are stored, and where. A progress bar is on
    standard error when that is a terminal.
    """
    settings = replace(config, batch_records_max=batch_records)
    async with Producer(settings, name=name) as producer:
        described = await producer.client.metadata.topic(topic)
        with Tally(_size_of(files)) as tally:
            upload = Upload(producer, described, partition, key_separator, tally)
            async with _exclusive(producer, topic, partition, mode):
                interrupted = await upload.run(files)
    as_json = output == "json"
    told(tally.facts(topic), tally.summary(topic), output)
    if tally.error is not None:
        click.echo("" if as_json else tally.shortfall(), err=True, nl=not as_json)
        fail(tally.error, as_json=as_json)
    if interrupted:
        sys.exit(INTERRUPTED)


class Upload:
    """Sends batches of lines and looks at their outcomes in the order of sending, until one fails."""

    def __init__(
        self, producer: Producer, topic: Topic, partition: int | None, separator: str | None, tally: Tally
    ) -> None:
        config = producer.client.config
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._separator = None if separator is None else separator.encode()
        self._tally = tally
        self._outstanding: deque[tuple[Delivery, int, int]] = deque()
        bytes_max = min(config.batch_bytes_max, topic.config.max_batch_bytes - BATCH_OVERHEAD_BYTES)
        self._gatherer = Gatherer(config.batch_records_max, bytes_max, RECORD_OVERHEAD_BYTES)

    async def run(self, files: Sequence[Path]) -> bool:
        """Send every line of ``files`` and wait for the outcomes; whether it was cut short by Ctrl-C."""
        reading = asyncio.ensure_future(self._read(files))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, reading.cancel)
        try:
            await reading
        except asyncio.CancelledError:
            return True
        except StockadeError as error:
            self._tally.failed(error, 0, 0)
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
            while self._outstanding:
                await self._look_at_oldest()
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
                # A slow source: what is there must not wait for what may come.
                await self._send(self._gatherer.take())
        for lines in self._gatherer.add(cutter.end()):
            await self._send(lines)

    async def _send(self, lines: list[bytes]) -> None:
        for partition, keys, values in self._parts(lines):
            delivery = await self._producer.send_batch(self._topic.name, partition, values, keys=keys)
            self._outstanding.append((delivery, len(values), sum(map(len, values))))
            while len(self._outstanding) > OUTSTANDING_MAX or (self._outstanding and self._outstanding[0][0].is_done):
                await self._look_at_oldest()
            if self._tally.error is not None:
                raise self._tally.error

    def _parts(self, lines: list[bytes]) -> list[tuple[int | None, list[bytes] | None, list[bytes]]]:
        """(partition, keys, values) of what must be sent together."""
        if self._separator is None:
            return [(self._partition, None, lines)] if lines else []
        parts: dict[int, tuple[list[bytes], list[bytes]]] = {}
        for line in lines:
            key, found, value = line.partition(self._separator)
            if not found:
                raise InvalidRecord(f"there is no key separator in the line {line[:60]!r}")
            chosen = self._partition
            if chosen is None:
                chosen = partition_for_key(key, len(self._topic.partitions))
            keys, values = parts.setdefault(chosen, ([], []))
            keys.append(key)
            values.append(value)
        return [(partition, keys, values) for partition, (keys, values) in parts.items()]

    async def _look_at_oldest(self) -> None:
        delivery, records, size = self._outstanding[0]
        try:
            receipt: Receipt = await delivery
        except StockadeError as error:
            self._tally.failed(error, records, size)
        else:
            self._tally.stored(receipt, size)
        self._outstanding.popleft()


def _exclusive(
    producer: Producer, topic: str, partition: int | None, mode: Mode | None
) -> AbstractAsyncContextManager[object]:
    if mode is None:
        return nullcontext()
    partitions = None if partition is None else [partition]
    # Not cancelled when it is lost: the outcome of every batch is to be told.
    return producer.exclusive(topic, partitions, mode, cancel_on_loss=False)


def _size_of(files: Sequence[Path]) -> int | None:
    """Bytes to come, if that is known."""
    if not files or any(str(path) == "-" or not path.is_file() for path in files):
        return None
    return sum(path.stat().st_size for path in files)
