"""Slow readers, slow writers and crowds: they have limits, and harm no other client."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pytest
from waiting import until

from stockade.cluster.front import front
from stockade.http_api import server
from stockade.http_api.endpoint import dispatch
from stockade.http_api.records import sendfile
from stockade.http_api.request import call as calls
from stockade.http_api.request.connections import Descriptors
from stockade.partition.log.interface import Run

from ..conversation import ARROW, NDJSON, RECORDS, TEXT, Conversation, nodes, run
from ..records.test_append import arrow_stream

HEAD = f"POST {RECORDS} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n".encode()
FETCH = f"GET {RECORDS}?max_bytes=67108864 HTTP/1.1\r\nHost: x\r\n\r\n".encode()

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(node: Conversation, first: bytes) -> Connection:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port, limit=1024)
    writer.write(first)
    await writer.drain()
    return reader, writer


async def hang_up(connections: list[Connection]) -> None:
    for _, writer in connections:
        writer.transport.abort()


async def others_are_answered(node: Conversation, count: int = 30) -> None:
    async with asyncio.timeout(60):
        for _ in range(count):
            assert (await node.call("POST", RECORDS, b"x\n", TEXT)).status == 200


def alone(test: Callable[[Conversation], Awaitable[None]]) -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic(max_batch_bytes=16_777_216)
            await test(node)

    asyncio.run(main())


def test_slow_bodies_count_only_received_bytes_and_delay_no_other_request() -> None:
    async def test(node: Conversation) -> None:
        budget = node.server.front.in_flight.body_bytes
        slow = [await connect(node, HEAD + b"Content-Length: 30000000\r\n\r\nabc") for _ in range(50)]
        await until(lambda: budget.used == 50 * 3)
        await others_are_answered(node)
        for _, writer in slow:
            writer.write(b"d")
        await until(lambda: budget.used == 50 * 4)
        await hang_up(slow)
        await until(lambda: budget.used == 0)

    alone(test)


def test_a_body_that_comes_byte_by_byte_is_refused_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "ARRIVAL_S", 0.3)

    async def test(node: Conversation) -> None:
        reader, writer = await connect(node, HEAD + b"Content-Length: 100\r\n\r\n")
        answer = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
        while not answer.done():  # never long without a byte
            writer.write(b"x")
            await asyncio.sleep(0.05)
        assert (await answer).startswith(b"HTTP/1.1 400 ")
        await hang_up([(reader, writer)])

    run(test)


def test_the_time_limit_of_a_body_grows_with_its_received_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten bytes give ten seconds more; a body of which nothing comes is refused after the first half second."""
    monkeypatch.setattr(calls, "ARRIVAL_START_S", 0.5)
    monkeypatch.setattr(calls, "SLOWEST_BODY_BYTES_PER_S", 1)

    async def test(node: Conversation) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        ten = b"x" * 10  # worth ten seconds
        silent, slow = [await connect(node, HEAD + b"Content-Length: 20\r\n\r\n" + part) for part in (b"", ten)]
        answer = asyncio.create_task(slow[0].readuntil(b"\r\n\r\n"))
        refused = await silent[0].readuntil(b"\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 400 ")
        assert loop.time() - began >= 0.5
        await until(lambda: node.server.front.in_flight.arriving.used == 1)
        slow[1].write(ten)
        assert (await answer).startswith(b"HTTP/1.1 200 ")
        await until(lambda: node.server.front.in_flight.arriving.used == 0)
        await hang_up([silent, slow])

    run(test)


def test_slow_bodies_take_no_more_than_their_share_of_the_requests_in_flight() -> None:
    async def test(node: Conversation) -> None:
        in_flight = node.server.front.in_flight
        assert (in_flight.arriving.limit, in_flight.requests.limit) == (5_000, 10_000)
        in_flight.arriving.limit = 3
        slow = [await connect(node, HEAD + b"Content-Length: 100\r\n\r\n") for _ in range(3)]
        await until(lambda: in_flight.arriving.used == 3)
        fourth = await connect(node, HEAD + b"Content-Length: 100\r\n\r\n")
        assert (await fourth[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 429 ")
        await others_are_answered(node)
        slow[0][1].write(b"x" * 100)
        assert (await slow[0][0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await until(lambda: in_flight.arriving.used == 2)
        await hang_up([*slow, fourth])
        await until(lambda: in_flight.arriving.used == 0)

    run(test)


def test_a_reader_that_takes_its_text_too_slowly_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "STALL_S", 0.2)
    monkeypatch.setattr(calls, "SLOWEST_BYTES_PER_S", 1 << 30)

    async def test(node: Conversation) -> None:
        for _ in range(4):
            assert (await node.call("POST", RECORDS, b"x" * 8_000_000, TEXT)).status == 200
        in_flight = node.server.front.in_flight
        reader, writer = await connect(node, FETCH)
        await until(lambda: in_flight.answer_bytes.used > 0)
        await others_are_answered(node)
        await until(lambda: in_flight.answer_bytes.used == 0 and in_flight.requests.used == 0)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            while True:
                await reader.readexactly(100_000)
        await hang_up([(reader, writer)])

    alone(test)


def test_a_follower_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "STALL_S", 0.2)

    async def test(node: Conversation) -> None:
        for _ in range(4):
            assert (await node.call("POST", RECORDS, b"x" * 8_000_000, TEXT)).status == 200
        in_flight = node.server.front.in_flight
        following = FETCH.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nAccept: text/event-stream\r\n")
        slow = await connect(node, following)
        await until(lambda: in_flight.followers.used == 1)
        await others_are_answered(node)
        await until(lambda: in_flight.followers.used == 0)
        await hang_up([slow])

    alone(test)


def test_text_answers_are_bounded_all_together() -> None:
    async def test(node: Conversation) -> None:
        assert (await node.call("POST", RECORDS, b"x" * 100_000, TEXT)).status == 200
        budget = node.server.front.in_flight.answer_bytes
        budget.limit = 50_000
        refused = await node.call("GET", RECORDS)
        assert (refused.status, refused.json["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        assert refused.headers["Retry-After"] == "1"
        arrow = await node.call("GET", RECORDS, None, {"Accept": "application/vnd.apache.arrow.stream"})
        assert arrow.status == 200
        budget.limit = 200_000
        for _ in range(5):
            assert (await node.call("GET", RECORDS)).status == 200
        assert budget.used == 0

    run(test)


def held_by(in_flight: front.InFlight) -> list[int]:
    """The bytes of answers in memory after each ``take`` from now on."""
    used, take = list[int](), in_flight.take

    def seen(*counts: int, **named: int) -> None:
        take(*counts, **named)
        used.append(in_flight.answer_bytes.used)

    in_flight.take = seen  # type: ignore[method-assign]
    return used


def test_short_arrow_answers_count_and_are_sent_piece_by_piece_where_there_is_no_room_for_them() -> None:
    """They did not count: ten thousand readers that take nothing held 2.5 GB, and 10 GB at a node that forwards."""

    async def main() -> None:
        async with nodes(2) as (leader, other):
            await leader.topic()
            assert (await leader.call("POST", RECORDS, arrow_stream([bytes(100_000)]), ARROW)).status == 200
            for node in (leader, other):
                budget = node.server.front.in_flight.answer_bytes
                used = held_by(node.server.front.in_flight)
                for limit, is_held in ((1_000_000, True), (1000, False)):
                    used.clear()
                    budget.limit = limit
                    answer = await node.call("GET", RECORDS, None, {"Accept": ARROW["Content-Type"]})
                    assert (answer.status, len(answer.body) > 100_000) == (200, True)
                    assert (max(used) > 100_000, budget.used) == (is_held, 0)

    asyncio.run(main())


def test_short_arrow_answers_leave_half_of_the_bound_to_answers_that_have_to_be_in_memory() -> None:
    """A thousand readers of Arrow that took their answers slowly had all other readers refused."""

    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic()
            assert (await node.call("POST", RECORDS, arrow_stream([b"x" * 100_000]), ARROW)).status == 200
            budget = node.server.front.in_flight.answer_bytes
            budget.limit, budget.used = 1_000_000, 450_000
            used = held_by(node.server.front.in_flight)
            arrow = await node.call("GET", RECORDS, None, {"Accept": ARROW["Content-Type"]})
            assert (arrow.status, max(used)) == (200, 450_000)
            text = await node.call("GET", RECORDS)
            assert (text.status, max(used) > 550_000, budget.used) == (200, True, 450_000)

    asyncio.run(main())


@pytest.mark.parametrize("form", ["application/x-ndjson", "text/event-stream"])
def test_unsent_text_of_followed_streams_is_counted_and_bounded(form: str) -> None:
    """Each follower that read nothing held a MiB, or its largest batch, and no bound counted it."""

    async def test(node: Conversation) -> None:
        for _ in range(4):
            assert (await node.call("POST", RECORDS, b"x" * 8_000_000, TEXT)).status == 200
        budget = node.server.front.in_flight.answer_bytes
        following = FETCH.replace(b" HTTP/1.1\r\n", b"&follow=true HTTP/1.1\r\nAccept: " + form.encode() + b"\r\n")
        following = following.replace(b"Host: x", b"Host: x\r\nConnection: close")
        slow = await connect(node, following)
        await until(lambda: budget.used >= 8_000_000)
        budget.limit = 10_000_000
        reader, writer = await connect(node, following)
        ended = await reader.read()
        assert b"THROTTLING_QUOTA_EXCEEDED" in ended[-1000:]
        assert len(ended) < 10_000
        await hang_up([slow, (reader, writer)])
        await until(lambda: budget.used == 0)

    alone(test)


def test_text_that_a_follower_has_taken_is_given_back_to_the_budget() -> None:
    async def test(node: Conversation) -> None:
        budget = node.server.front.in_flight.answer_bytes
        budget.limit = 1_500_000
        following = FETCH.replace(b" HTTP/1.1\r\n", b"&follow=true HTTP/1.1\r\n")
        reader, writer = await connect(node, following.replace(b"Host", b"Accept: application/x-ndjson\r\nHost"))
        for _ in range(5):
            assert (await node.call("POST", RECORDS, b"x" * 1_000_000, TEXT)).status == 200
            await reader.readexactly(1_000_000)
        await until(lambda: budget.used == 0)
        await hang_up([(reader, writer)])

    alone(test)


@pytest.mark.parametrize("form", ["application/x-ndjson", "text/event-stream", ARROW["Content-Type"]])
def test_followers_that_read_promptly_hold_a_new_batch_one_after_the_other(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All held a new batch, or had its file open, at one time, so that streams of good clients ended at the bound."""
    opened, opens = sendfile.opened, 0

    @contextmanager
    def one_at_a_time(runs: Sequence[Run], descriptors: Descriptors) -> Iterator[list[tuple[int, int, int]]]:
        nonlocal opens
        with opened(runs, descriptors) as parts:
            opens += bool(runs)
            assert opens < 2
            yield parts
            opens -= bool(runs)

    monkeypatch.setattr(sendfile, "opened", one_at_a_time)

    async def test(node: Conversation) -> None:
        in_flight = node.server.front.in_flight
        in_flight.answer_bytes.limit = 150_000
        following = FETCH.replace(b" HTTP/1.1\r\n", b"&follow=true HTTP/1.1\r\nAccept: " + form.encode() + b"\r\n")
        followers = [await connect(node, following) for _ in range(20)]
        await until(lambda: in_flight.followers.used == 20)
        for _ in range(3):
            assert (await node.call("POST", RECORDS, b"x" * 20_000, TEXT)).status == 200
            for taken in await asyncio.gather(*(reader.readexactly(20_000) for reader, _ in followers)):
                assert b"THROTTLING" not in taken
        await until(lambda: in_flight.answer_bytes.used == 0)
        assert in_flight.followers.used == 20
        await hang_up(followers)

    alone(test)


def test_large_answers_of_any_kind_are_bounded_all_together() -> None:
    """A topic of 10,000 partitions is described in 4 MB: no bound counted those that are not read."""

    async def test(node: Conversation) -> None:
        await node.topic("wide", partitions=400)
        budget = node.server.front.in_flight.answer_bytes
        budget.limit = size = len((await node.call("GET", "/v1/topics/wide")).body)
        assert size > dispatch.LARGE_BYTES
        assert (await node.call("GET", "/v1/topics/wide")).status == 200
        budget.limit = size - 1000
        refused = await node.call("GET", "/v1/topics/wide")
        assert (refused.status, refused.json["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        assert (await node.call("GET", "/openapi.json")).status == 200, "it is in memory once"
        assert budget.used == 0

    run(test)


def test_the_large_answer_of_a_mutating_request_is_sent_although_the_budget_is_used() -> None:
    """It was refused after it was done, by a problem that says that it had no effect: a retry did it twice."""

    async def test(node: Conversation) -> None:
        node.server.front.in_flight.answer_bytes.limit = 0
        made = await node.topic("wide", partitions=400)
        lines = b"".join(b'{"key": "%d", "value": "x"}\n' % number for number in range(4000))
        stored = await node.call("POST", "/v1/topics/wide/records", lines, NDJSON)
        assert (len(made["partitions"]), stored.status) == (400, 200)
        node.server.front.in_flight.answer_bytes.limit = 1 << 20
        assert len((await node.call("GET", "/v1/topics/wide")).body) > dispatch.LARGE_BYTES

    run(test)


def test_the_last_records_are_counted_while_they_are_sent() -> None:
    async def test(node: Conversation) -> None:
        assert (await node.call("POST", RECORDS, b"x" * 100_000, TEXT)).status == 200
        budget = node.server.front.in_flight.answer_bytes
        budget.limit = 50_000
        refused = await node.call("GET", RECORDS.replace("records", "tail?n=1"))
        assert (refused.status, refused.json["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        budget.limit = 150_000
        assert (await node.call("GET", RECORDS.replace("records", "tail?n=1"))).status == 200
        assert budget.used == 0

    run(test)


def test_the_uncompressed_size_of_a_batch_is_counted_for_any_part_of_it() -> None:
    """Only the text of the one record that is taken was counted, and the bytes on the disk."""

    async def test(node: Conversation) -> None:
        packed = pa.BufferOutputStream()
        plain = pa.ipc.open_stream(arrow_stream([bytes(1000)] * 900)).read_all()
        with pa.ipc.new_stream(packed, plain.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as written:
            written.write_table(plain)
        body = packed.getvalue().to_pybytes()
        assert len(body) < 100_000
        assert (await node.call("POST", RECORDS, body, ARROW)).status == 200
        budget = node.server.front.in_flight.answer_bytes
        budget.limit = 500_000
        refused = await node.call("GET", RECORDS.replace("records", "records?max_bytes=1"))
        assert (refused.status, refused.json["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        budget.limit = 1_500_000
        assert len((await node.call("GET", RECORDS.replace("records", "records?max_bytes=1"))).json["records"]) == 1
        assert budget.used == 0

    run(test)


def test_text_that_takes_more_memory_than_its_batches_is_counted_as_the_text_that_it_is() -> None:
    """The bound was on the bytes on disk: a compressed batch, or control characters, took many times as much."""

    async def test(node: Conversation) -> None:
        assert (await node.call("POST", RECORDS, (b"\x01" * 100_000 + b"\n") * 4, TEXT)).status == 200
        budget = node.server.front.in_flight.answer_bytes
        budget.limit = 1_000_000  # the batch has room, the first piece of its text, two records of 600 KB, has not
        refused = await node.call("GET", RECORDS)
        assert (refused.status, refused.json["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        budget.limit = 2_000_000
        answer = await node.call("GET", RECORDS)
        assert (len(answer.json["records"]), answer.json["next_offset"]) == (2, 2)
        budget.limit = 3_000_000
        assert len((await node.call("GET", RECORDS)).json["records"]) == 4
        assert budget.used == 0

    run(test)


def test_requests_in_flight_are_bounded_and_refused_with_retry_after() -> None:
    async def test(node: Conversation) -> None:
        shared, budget = node.service.shared, node.server.front.in_flight.requests
        budget.limit = 2
        waiting = [asyncio.create_task(node.call("GET", f"{RECORDS}?max_wait_ms=60000")) for _ in range(2)]
        await until(lambda: budget.used == 2)
        refused = await node.call("GET", "/v1/topics")
        assert (refused.status, refused.json["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        assert "Retry-After" in refused.headers
        shared.wake()
        assert [(await one).status for one in waiting] == [200, 200]
        assert (await node.call("GET", "/v1/topics")).status == 200
        assert budget.used == 0

    run(test)


def test_a_node_full_of_long_polls_is_alive_and_keeps_the_sessions_of_its_callers() -> None:
    """Its probes were refused, too: Kubernetes would have ended it, and sessions would have expired."""

    async def test(node: Conversation) -> None:
        in_flight = node.server.front.in_flight
        in_flight.requests.limit = 2
        session = (await node.call("POST", "/v1/sessions", {"client_id": "c"})).json["session"]
        waiting = [asyncio.create_task(node.call("GET", f"{RECORDS}?max_wait_ms=60000")) for _ in range(2)]
        await until(lambda: in_flight.requests.used == 2)
        for path in ("/healthz", "/readyz", "/readyz/data", "/metrics", "/openapi.json"):
            assert (await node.call("GET", path)).status == 200, path
        odd = {"Stockade-Session": session, "Accept-Language": "en"}  # not on the fast path
        for headers in ({"Stockade-Session": session}, odd):
            assert (await node.call("PUT", "/v1/session", headers=headers)).status == 200
        assert (await node.call("GET", "/v1/topics")).status == 429
        in_flight.requests.used += front.KEEPING_MAX
        assert (await node.call("PUT", "/v1/session", headers=odd)).status == 429
        in_flight.requests.used -= front.KEEPING_MAX
        node.service.shared.wake()
        assert [(await one).status for one in waiting] == [200, 200]
        assert in_flight.requests.used == 0

    run(test)


def test_a_connection_that_never_ends_its_headers_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_S", 0.2)

    async def test(node: Conversation) -> None:
        idle = [await connect(node, first) for first in (b"", HEAD)]
        async with asyncio.timeout(60):
            for reader, _ in idle:
                assert await reader.read() == b""
        assert (await node.call("GET", "/healthz")).status == 200
        await hang_up(idle)

    run(test)


def test_a_node_that_leaves_is_not_ready_and_still_serves() -> None:
    async def test(node: Conversation) -> None:
        node.server.leave()
        refused = await node.call("GET", "/readyz")
        assert (refused.status, refused.json["detail"]) == (503, "the node is stopping")
        written = await node.call("POST", RECORDS, b"x\n", TEXT)
        assert (written.status, written.headers["Connection"]) == (200, "close")
        assert (await node.call("GET", "/healthz")).status == 200

    run(test)
