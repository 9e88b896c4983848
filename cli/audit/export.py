"""Exports the ledger as an Arrow file, and verifies its chain of hashes. docs/how-to/ledger.md does the same with a
short script that needs only pyarrow and hashlib.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import msgspec
import pyarrow as pa

from ...client.api.client import Client
from ...partition.api.ledger import NO_HASH, LedgerEntry, entry_hash
from ...partition.internal_names import LEDGER_TOPIC
from ...partition.log.modes import SECRET_MODE
from ..ui.files import whole_file

SCHEMA = pa.schema([pa.field("number", pa.int64(), nullable=False), pa.field("entry", pa.binary(), nullable=False)])
FETCH_BYTES = 4 * 1024 * 1024


class Fault(Exception):
    """The chain does not hold; the message says where."""


class Chain:
    """Verifies entry after entry that each has the number and the hash that follow from the one before it.

    ``first`` and ``last``: numbers of the first and the last entry; ``head``: the hash of the last; ``began_ms`` and
    ``ended_ms``: their times.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int = 0
        self.head: str = NO_HASH
        self.began_ms: int = 0
        self.ended_ms: int = 0

    def follow(self, number: int, encoded: bytes) -> LedgerEntry:
        """Verify the next entry; returns it decoded. Raises Fault."""
        try:
            entry = msgspec.json.decode(encoded, type=LedgerEntry)
        except msgspec.DecodeError as error:
            raise Fault(f"entry {number} cannot be read: {error}") from error
        if entry.number != number or (self.first is not None and number != self.last + 1):
            raise Fault(
                f"entry {entry.number} is at the place of entry {number if self.first is None else self.last + 1}"
            )
        if (self.first is not None or number == 1) and entry.previous != self.head:
            raise Fault(f"entry {number} does not have the hash of the entry before it: one of both was changed")
        if self.first is None:
            self.first, self.began_ms = number, entry.at_ms
        self.last, self.ended_ms = number, entry.at_ms
        self.head = entry_hash(encoded)
        return entry


async def stored(client: Client, first: int) -> AsyncIterator[list[tuple[int, bytes]]]:
    """Pages of the ledger's entries as (number, bytes as stored), from the number ``first`` on, up to the ledger's end
    at the time of the last fetch. Entry k is at offset k - 1.
    """
    offset: int | str = "earliest" if first <= 1 else first - 1
    while True:
        found = await client.fetch(LEDGER_TOPIC, 0, offset, max_bytes=FETCH_BYTES)
        start = found.base_offset if offset == "earliest" else int(offset)
        entries = [
            (base + row + 1, value)
            for base, batch in found.after(max(start, found.log_start))
            for row, value in enumerate(batch.column("value").to_pylist())
        ]
        if entries:
            yield entries
        if found.next_offset >= found.log_end:
            return
        offset = found.next_offset


async def export(client: Client, path: Path, cluster_id: str) -> Chain:
    """Write the ledger into an Arrow file that only its owner may read, and verify its chain meanwhile. Raises Fault,
    OSError; then an existing file of this name is unchanged.
    """
    chain = Chain()
    schema = SCHEMA.with_metadata({"cluster_id": cluster_id})
    with _opened(path) as sink, pa.ipc.new_file(sink, schema) as file:
        async for entries in stored(client, 1):
            for number, encoded in entries:
                chain.follow(number, encoded)
            numbers, values = zip(*entries, strict=True)
            columns = [pa.array(numbers, pa.int64()), pa.array(values, pa.binary())]
            file.write_batch(pa.record_batch(columns, schema=schema))
    return chain


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    """The file at ``path`` for writing. A device or a pipe is written to directly; a link's target is replaced."""
    if path.exists() and not path.is_file():
        return path.open("wb")
    return whole_file(path.resolve(), SECRET_MODE, replaces=True)
