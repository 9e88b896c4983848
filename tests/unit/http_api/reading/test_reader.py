"""Large bodies are read in a process beside the node, by the same rules as small ones."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stockade.http_api.codec.json_codec import VALUES_MAX
from stockade.http_api.codec.media import ARROW, JSON, NDJSON, TEXT
from stockade.http_api.codec.schemas import NewSession, NewTopic
from stockade.http_api.reading import reader as reader_module
from stockade.http_api.reading.decode import read_batch
from stockade.http_api.reading.process import MEMORY_BYTES_MAX
from stockade.http_api.reading.reader import WAITING_MAX, BodyReader
from stockade.http_api.reading.work import (
    INLINE_BYTES_MAX,
    INLINE_SPLIT_ROWS_MAX,
    Order,
    ReadBatch,
    ReadJson,
    SplitBatches,
    do,
    name_of,
)
from stockade.http_api.records.parts import PartList
from stockade.partition.errors import (
    InternalError,
    InvalidRecord,
    InvalidRequest,
    MessageTooLarge,
    StockadeError,
    ThrottlingQuotaExceeded,
)
from stockade.partition.records.batch import batch_from_columns, compressed, stream

BYTES_MAX = 16 << 20
LARGE = json.dumps({"records": [{"key": f"k{number}", "value": "x" * 100} for number in range(1000)]}).encode()
LINES = b"\n".join(json.dumps({"value": str(number), "timestamp_ms": number}).encode() for number in range(5000))


class Counted(BodyReader):
    """A reader that notes the processes that it starts."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []
        super().__init__(self._begin)

    def _begin(self) -> "subprocess.Popen[bytes]":
        self.started.append(reader_module._start())
        return self.started[-1]


@asynccontextmanager
async def readers() -> AsyncIterator[Counted]:
    """A reader, all of whose processes have ended when the block has."""
    reader = Counted()
    try:
        yield reader
    finally:
        await reader.close()
        assert [process.poll() is None for process in reader.started] == [False] * len(reader.started)


def run(scenario: Callable[[Counted], Awaitable[None]]) -> None:
    async def main() -> None:
        async with readers() as reader:
            await scenario(reader)

    asyncio.run(main())


@pytest.mark.parametrize(("form", "body"), [(JSON, LARGE), (NDJSON, LINES)])
def test_a_large_body_is_read_in_a_process_and_gives_the_same_batch(form: str, body: bytes) -> None:
    async def scenario(reader: Counted) -> None:
        for _ in range(2):
            found = await reader.batch(form, body, now_ms=7, batch_bytes_max=BYTES_MAX)
            assert found == read_batch(form, body, now_ms=7, batch_bytes_max=BYTES_MAX)
        assert len(reader.started) == 1

    run(scenario)


@pytest.mark.parametrize(
    ("form", "size", "processes"),
    [
        (JSON, INLINE_BYTES_MAX, 0),
        (JSON, INLINE_BYTES_MAX + 1, 1),
        (NDJSON, INLINE_BYTES_MAX + 1, 1),
        (TEXT, 1 << 20, 0),
    ],
)
def test_the_bound_between_small_and_large(form: str, size: int, processes: int) -> None:
    body = b'{"records":[{"value":"' if form == JSON else b'{"value":"' if form == NDJSON else b""
    end = {JSON: b'"}]}', NDJSON: b'"}', TEXT: b""}[form]
    body += b"x" * (size - len(body) - len(end)) + end

    async def scenario(reader: Counted) -> None:
        assert (await reader.batch(form, body, now_ms=1, batch_bytes_max=BYTES_MAX)).count == 1
        assert (len(body), len(reader.started)) == (size, processes)

    run(scenario)


PAD = b" " * INLINE_BYTES_MAX
REFUSED: list[tuple[str, bytes, type[StockadeError], dict[str, Any]]] = [
    (JSON, b"{" + PAD, InvalidRequest, {}),
    (JSON, b'{"records":[{"value":1}]}' + PAD, InvalidRecord, {"index": 0}),
    (NDJSON, b"{}\n" * 100_001, MessageTooLarge, {"limit": 100_000, "unit": "records"}),
    (JSON, b'{"records":[' + b"{}," * VALUES_MAX + b"{}]}", MessageTooLarge, {"limit": VALUES_MAX, "unit": "values"}),
]


@pytest.mark.parametrize(("form", "body", "kind", "fields"), REFUSED, ids=["no JSON", "record", "records", "values"])
def test_a_body_gets_the_same_refusal_in_a_process_and_on_the_loop(
    form: str, body: bytes, kind: type[StockadeError], fields: dict[str, Any]
) -> None:
    async def scenario(reader: Counted) -> None:
        with pytest.raises(kind) as there:
            await reader.batch(form, body, now_ms=1, batch_bytes_max=BYTES_MAX)
        with pytest.raises(kind) as here:
            read_batch(form, body, now_ms=1, batch_bytes_max=BYTES_MAX)
        assert (there.value.detail, there.value.fields) == (here.value.detail, here.value.fields)
        assert fields.items() <= there.value.fields.items()
        assert len(reader.started) == 1

    run(scenario)


def test_a_body_of_commas_in_a_text_is_no_body_of_many_values() -> None:
    body = b'{"records":[{"value":"' + b"," * (VALUES_MAX + 1) + b'"},{"value":"[{\\",,,"}]}'
    assert read_batch(JSON, body, now_ms=1, batch_bytes_max=BYTES_MAX).count == 2


def test_a_split_gives_each_partition_its_batch_or_its_refusal() -> None:
    order = SplitBatches(JSON, 1, 4096, 4, 2)
    values = [{"key": f"k{number}", "value": "x" * (3000 if number % 2 else 1)} for number in range(40)]
    body = json.dumps({"records": [*values, {"value": "keyless"}]}).encode() + PAD

    async def scenario(reader: Counted) -> None:
        found = await reader.split(order, body)
        assert found == do(order, body)
        assert (found.has_keyless, len(reader.started)) == (True, 1)
        assert {part.refusal.code for part in found.parts if part.refusal is not None} == {"MESSAGE_TOO_LARGE"}
        assert sorted(number for part in found.parts for number in part.records) == list(range(41))
        assert 40 in next(part for part in found.parts if part.partition == 2).records

    run(scenario)


def test_a_large_json_body_of_a_control_route_has_the_same_shape() -> None:
    topic = b'{"name":"t","partitions":3,"config":{"retention_ms":5}}'

    async def scenario(reader: Counted) -> None:
        for body in (topic, topic + PAD):
            assert await reader.json(body, NewTopic) == await reader.json(topic, NewTopic)
            assert (await reader.json(body.replace(b',"partitions":3', b""), NewTopic)).name == "t"
        for body in (b'{"client_id":7}', b'{"client_id":7}' + PAD, b'{"client_id":1e99}' + PAD):
            with pytest.raises(InvalidRequest):
                await reader.json(body, NewSession)

    run(scenario)


def test_the_loop_goes_on_while_a_body_is_read() -> None:
    """Its process runs beside: the loop turns over and over before the answer comes."""
    body = b"\n".join([b'{"value_json":[' + b"1," * 200 + b"1]}"] * 20_000)

    async def scenario(reader: Counted) -> None:
        await reader.batch(JSON, LARGE, now_ms=1, batch_bytes_max=BYTES_MAX)
        own_s = time.process_time()
        reading = asyncio.create_task(reader.batch(NDJSON, body, now_ms=1, batch_bytes_max=BYTES_MAX))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not reading.done()
        assert (await reading).count == 20_000
        own_s = time.process_time() - own_s
        began = time.process_time()
        read_batch(NDJSON, body, now_ms=1, batch_bytes_max=BYTES_MAX)
        assert own_s < time.process_time() - began, "what the node itself spends, less than reading it would"

    run(scenario)


def test_a_process_that_is_killed_costs_its_body_a_retry_and_is_replaced() -> None:
    async def scenario(reader: Counted) -> None:
        await reader.batch(JSON, LARGE, now_ms=1, batch_bytes_max=BYTES_MAX)
        reader.started[0].kill()
        with pytest.raises(ThrottlingQuotaExceeded):
            await reader.batch(JSON, LARGE, now_ms=1, batch_bytes_max=BYTES_MAX)
        assert (await reader.batch(JSON, LARGE, now_ms=1, batch_bytes_max=BYTES_MAX)).count == 1000
        assert len(reader.started) == 2

    run(scenario)


def silent() -> "subprocess.Popen[bytes]":
    """A process that takes everything and answers nothing."""
    command = [sys.executable, "-c", "import sys; sys.stdin.buffer.read()"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_body_that_is_not_read_in_time_may_be_sent_again_its_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "READ_S", 0.2)
    started: list[subprocess.Popen[bytes]] = []

    def start() -> "subprocess.Popen[bytes]":
        started.append(silent())
        return started[-1]

    async def main() -> None:
        reader = BodyReader(start)
        with pytest.raises(ThrottlingQuotaExceeded, match="was not read within"):
            await reader.batch(JSON, LARGE, now_ms=1, batch_bytes_max=BYTES_MAX)
        assert started[0].poll() is not None
        await reader.close()

    asyncio.run(main())


def test_a_process_that_was_killed_just_after_its_answer_costs_the_next_body_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Late(threading.Timer):
        """A timer whose time is over when it is cancelled."""

        def cancel(self) -> None:
            self.function(*self.args, **self.kwargs)
            super().cancel()

    async def scenario(reader: Counted) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading, "Timer", Late)
            with pytest.raises(ThrottlingQuotaExceeded, match="was not read within"):
                await reader.batch(JSON, LARGE, now_ms=1, batch_bytes_max=BYTES_MAX)
        assert (await reader.batch(JSON, LARGE, now_ms=1, batch_bytes_max=BYTES_MAX)).count == 1000

    run(scenario)


def test_more_large_bodies_than_may_wait_are_refused() -> None:
    async def scenario(reader: Counted) -> None:
        bodies = [reader.batch(JSON, LARGE, now_ms=1, batch_bytes_max=BYTES_MAX) for _ in range(WAITING_MAX + 3)]
        found = await asyncio.gather(*bodies, return_exceptions=True)
        assert [type(each) for each in found].count(ThrottlingQuotaExceeded) == 3
        assert len(reader.started) <= reader_module.PROCESSES_MAX

    run(scenario)


def test_a_process_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "IDLE_S", 0.05)

    async def scenario(reader: Counted) -> None:
        await reader.batch(JSON, LARGE, now_ms=1, batch_bytes_max=BYTES_MAX)
        await asyncio.to_thread(reader.started[0].wait, 30)
        assert (await reader.batch(JSON, LARGE, now_ms=1, batch_bytes_max=BYTES_MAX)).count == 1000

    run(scenario)


def test_a_process_ends_when_its_node_is_gone() -> None:
    process = reader_module._start()
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == 0
    assert process.stdout is not None
    process.stdout.close()


def test_the_memory_of_a_reading_process_is_bounded_and_the_refusal_says_so() -> None:
    code = (
        "from stockade.http_api.reading import process, work\n"
        f"work.do = process.do = lambda order, body: bytearray({2 * MEMORY_BYTES_MAX})\n"
        "process.main()"
    )

    def start() -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "src")}
        command = [sys.executable, "-c", code]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    async def main() -> None:
        reader = BodyReader(start)
        with pytest.raises(InvalidRequest, match="bytes of memory"):
            await reader.batch(JSON, LARGE, now_ms=1, batch_bytes_max=BYTES_MAX)
        await reader.close()

    asyncio.run(main())


def test_a_bug_in_a_reading_process_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Local:
        """No process can import it."""

    async def scenario(reader: Counted) -> None:
        with pytest.raises(InternalError):
            await reader.json(b"{}" + PAD, Local)

    run(scenario)


def zeros(rows: int, row_bytes: int) -> bytes:
    """An Arrow stream that is far smaller than what it unpacks to."""
    values = batch_from_columns([None] * rows, [bytes(row_bytes)] * rows, None, None, now_ms=1, batch_bytes_max=1 << 30)
    return b"".join(stream([compressed(values.message, "zstd")]))


HOLDS_THE_LOOP: list[tuple[str, Order, bytes]] = [
    ("lines", ReadBatch(NDJSON, 1, BYTES_MAX), b"{}\n" * (INLINE_BYTES_MAX // 3)),
    ("numbers", ReadBatch(NDJSON, 1, BYTES_MAX), b"1\n" * (INLINE_BYTES_MAX // 2)),
    ("objects", ReadBatch(JSON, 1, BYTES_MAX), b'{"records":[' + b"{}," * (INLINE_BYTES_MAX // 3 - 8) + b"{}]}"),
    ("brackets", ReadBatch(JSON, 1, BYTES_MAX), b"[" * INLINE_BYTES_MAX),
    ("lines of text", ReadBatch(TEXT, 1, BYTES_MAX), b"\n" * 50_000),
    ("unpacks", ReadBatch(ARROW, 1, BYTES_MAX), zeros(1, 15 << 20)),
    ("records to split", SplitBatches(ARROW, 1, BYTES_MAX, 4, 0), zeros(INLINE_SPLIT_ROWS_MAX + 1, 0)),
    ("unpacks to split", SplitBatches(ARROW, 1, BYTES_MAX, 4, 0), zeros(16, 1 << 16)),
    ("text to split", SplitBatches(TEXT, 1, BYTES_MAX, 4, 0), b"\n" * 50_000),
    ("parts", ReadJson(name_of(PartList)), b'{"version":1,"parts":[' + b"1," * 30_000 + b"1]}"),
]
"""Each is small, or was taken for light: 18 to 110 ms of the event loop."""


@pytest.mark.parametrize(("order", "body"), [row[1:] for row in HOLDS_THE_LOOP], ids=[row[0] for row in HOLDS_THE_LOOP])
def test_a_small_body_that_means_much_work_does_not_hold_the_loop(order: Order, body: bytes) -> None:
    async def scenario(reader: Counted) -> None:
        with suppress(StockadeError):
            await reader._do(order, body)
        assert len(reader.started) == 1, f"{len(body)} bytes were read on the loop"

    run(scenario)


def test_small_arrow_bodies_are_read_on_the_event_loop() -> None:
    rows = read_batch(TEXT, b"x" * (1 << 20), now_ms=1, batch_bytes_max=BYTES_MAX)

    async def scenario(reader: Counted) -> None:
        body = b"".join(stream([rows.message]))
        assert (await reader.batch(ARROW, body, now_ms=1, batch_bytes_max=BYTES_MAX)).count == 1
        small = SplitBatches(ARROW, 1, BYTES_MAX, 4, 0)
        assert not (await reader.split(small, zeros(INLINE_SPLIT_ROWS_MAX, 0))).parts[0].refusal
        assert reader.started == []

    run(scenario)
