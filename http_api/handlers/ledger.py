"""The handler of the ledger: it reads the ledger's topic, and filters its entries by topic, principal and act."""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web
from msgspec import DecodeError, json, structs

from ...cluster.features import LEDGER
from ...cluster.front.front import unless_ended
from ...partition.api.ledger import HashedEntry, LedgerEntry, LedgerPage, entry_hash
from ...partition.errors import FeatureLevelTooLow, InternalError
from ...partition.internal_names import LEDGER_TOPIC
from ...partition.log.interface import Slice
from ...partition.records.batch import decode_batch
from ..codec.parameters import INT64_MAX
from ..records.fetch import records_gone
from ..request.call import Call, json_answer
from .lists import LISTED_DEFAULT, LISTED_MAX

READ_BYTES = 512 * 1024
"""Bytes of entries that are read at one time."""
SCANNED_MAX = 20_000
"""Entries after whose examination an answer ends, at the end of the slice that was read."""
ANSWER_BYTES_MAX = 1024 * 1024
"""Bytes of entries after which an answer ends; it has at least one entry."""
ENTRIES_PER_TURN = 250
WAIT_MS_MAX = 60_000


async def list_entries(call: Call) -> web.StreamResponse:
    """A page of the ledger's entries, ascending, from number ``from`` on."""
    level = call.service.cluster().feature_level
    if level < LEDGER:
        raise FeatureLevelTooLow(feature_level=level, needed=LEDGER)
    parameters = call.parameters
    first = parameters.query_integer("from", 1, INT64_MAX, 1)
    most = parameters.query_integer("n", 1, LISTED_MAX, LISTED_DEFAULT)
    wait_ms = parameters.query_integer("wait_ms", 0, WAIT_MS_MAX, 0)
    wanted = {name: parameters.query_text(name) for name in ("topic", "act", "principal") if parameters.has(name)}
    call.wait_s = wait_ms / 1000
    call.partition = await call.service.partition(LEDGER_TOPIC, 0, None)
    page = await _page(call, first, most, wait_ms, wanted)
    return json_answer(page)


async def _page(call: Call, first: int, most: int, wait_ms: int, wanted: dict[str, str]) -> LedgerPage:
    """At most ``most`` entries that match ``wanted``, from number ``first`` on. Raises LeaderNotAvailable if a file is
    removed while it is read.
    """
    found = await _read(call, first - 1, wait_ms)
    start, end = found.log_start + 1, found.log_end + 1
    begin = next_number = min(max(first, start), end)
    entries: list[HashedEntry] = []
    size = 0
    while next_number < end and next_number - begin < SCANNED_MAX:
        async for number, encoded in _entries(found, next_number - 1):
            next_number = number + 1
            entry = _fitting(number, encoded, wanted)
            if entry is not None:
                entries.append(entry)
                size += len(encoded)
            if len(entries) == most or size >= ANSWER_BYTES_MAX:
                return LedgerPage(start, end, next_number, entries)
        found = await _read(call, next_number - 1, 0)
    return LedgerPage(start, end, next_number, entries)


async def _read(call: Call, offset: int, wait_ms: int) -> Slice:
    """A slice from ``offset`` on, or from the log's start if that is later. Waits up to ``wait_ms`` for the entry at
    ``offset``.
    """
    partition, loop = call.partition, asyncio.get_running_loop()
    assert partition is not None
    deadline = loop.time() + wait_ms / 1000
    while True:
        reading = partition.read(None, max_bytes=1, min_bytes=0, max_wait_ms=0, local=False)
        bounds = await unless_ended(call, reading)
        start = min(max(offset, bounds.log_start), bounds.log_end)
        left_ms = max(0, round(1000 * (deadline - loop.time())))
        reading = partition.read(start, max_bytes=READ_BYTES, min_bytes=1, max_wait_ms=left_ms, local=False)
        found = await unless_ended(call, reading)
        if wait_ms:
            call.check_rights()
        if found.log_end > offset or not left_ms:
            break
    call.spend_bytes(found.size)
    return found


async def _entries(found: Slice, offset: int) -> AsyncIterator[tuple[int, bytes]]:
    """The number (offset + 1) and the bytes of each entry of a slice, from ``offset`` on."""
    try:
        for batch, message in zip(found.batches, found.messages(), strict=True):
            values = decode_batch(message).column("value").to_pylist()
            for row, value in enumerate(values):
                if batch.base_offset + row >= offset:
                    yield batch.base_offset + row + 1, value
                if row % ENTRIES_PER_TURN == ENTRIES_PER_TURN - 1:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
    except FileNotFoundError as error:
        raise records_gone() from error


def _fitting(number: int, encoded: bytes, wanted: dict[str, str]) -> HashedEntry | None:
    try:
        entry = json.decode(encoded, type=LedgerEntry)
    except DecodeError as error:
        raise InternalError(f"entry {number} of the ledger cannot be read") from error
    if any((getattr(entry, name) or "") != value for name, value in wanted.items()):
        return None
    return HashedEntry(**structs.asdict(entry), hash=entry_hash(encoded))
