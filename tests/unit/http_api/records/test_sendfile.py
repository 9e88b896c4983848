"""Long Arrow answers go from file to socket, at the pace of the client, and hold up no other."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
import uvloop

from stockade.http_api.records import sendfile
from stockade.http_api.request import call
from stockade.http_api.request.connections import ConnectionBounds
from stockade.partition.log.interface import StoredBatch
from stockade.partition.records.batch import STREAM_END

from ..conversation import ARROW, RECORDS, Conversation, nodes
from .test_append import arrow_stream

ACCEPT_ARROW = {"Accept": ARROW["Content-Type"]}
LONG = f"{RECORDS}?max_bytes=67108864"
BATCHES = 12
VALUE_BYTES = 500_000


def on_uvloop(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


@pytest.fixture(params=[asyncio.run, on_uvloop], ids=["asyncio", "uvloop"])
def on_a_loop(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    chosen: Callable[[Coroutine[Any, Any, None]], None] = request.param
    return chosen


async def fill(node: Conversation) -> None:
    await node.topic()
    for number in range(BATCHES):
        body = arrow_stream([bytes([number]) * VALUE_BYTES])
        assert (await node.call("POST", RECORDS, body, ARROW)).status == 200


def ask(node: Conversation, receive_bytes: int) -> socket.socket:
    """A connection that has asked for everything and does not read."""
    asking = socket.socket()
    asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    asking.connect(("127.0.0.1", node.port))
    asking.sendall(f"GET {LONG} HTTP/1.1\r\nHost: x\r\nAccept: {ARROW['Content-Type']}\r\n\r\n".encode())
    asking.setblocking(False)
    return asking


def test_a_long_answer_is_the_bytes_of_the_segments(on_a_loop: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await fill(node)
            assert len(node.service.shared.topics["orders"].machines[0].log.read(0, 1 << 40).runs) > 3
            for _ in range(3):
                answer = await node.call("GET", LONG, None, ACCEPT_ARROW)
                assert int(answer.headers["Content-Length"]) == len(answer.body)
                table = pa.ipc.open_stream(answer.body).read_all()
                assert table.column("value").to_pylist() == [bytes([k]) * VALUE_BYTES for k in range(BATCHES)]
                assert answer.headers["Stockade-Next-Offset"] == str(BATCHES)

    on_a_loop(main())


def test_a_long_answer_makes_no_object_for_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await fill(node)
            monkeypatch.setattr(StoredBatch, "__init__", None)
            monkeypatch.setattr(os, "pread", None)
            assert (await node.call("GET", LONG, None, ACCEPT_ARROW)).status == 200

    asyncio.run(main())


def test_a_client_that_takes_its_time_gets_everything(on_a_loop: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await fill(node)
            loop = asyncio.get_running_loop()
            with ask(node, 8192) as asking:
                received = bytearray()
                while not received.endswith(STREAM_END):
                    received += await loop.sock_recv(asking, 100_000)
            body = bytes(received).partition(b"\r\n\r\n")[2]
            assert pa.ipc.open_stream(body).read_all().num_rows == BATCHES

    on_a_loop(main())


@pytest.mark.parametrize("takes", [0, 1])
def test_a_client_that_takes_nothing_or_a_byte_now_and_then_is_cut_off_and_others_do_not_notice(
    on_a_loop: Callable[[Coroutine[Any, Any, None]], None],
    takes: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sendfile, "STALL_S", 0.3)
    monkeypatch.setattr(call, "STALL_S", 0.3)

    async def main() -> None:
        async with nodes(1) as (node,):
            await fill(node)
            with ask(node, 4096) as asking:
                assert (await node.call("GET", LONG, None, ACCEPT_ARROW)).status == 200
                async with asyncio.timeout(60):
                    while asking.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                        assert (await node.call("GET", "/healthz")).status == 200
                        with suppress(BlockingIOError, ConnectionResetError):
                            asking.recv(takes)
                        await asyncio.sleep(0.02)

    on_a_loop(main())
    assert "met a bug" not in caplog.text


def test_an_answer_for_whose_files_no_descriptor_is_left_is_refused_and_may_be_asked_for_again() -> None:
    async def main() -> None:
        bounds = ConnectionBounds(100, 100, descriptors_max=1 << 20, forwarding_descriptors_max=-(1 << 20))
        async with nodes(1, bounds=bounds) as (node,):
            await fill(node)
            assert (await node.call("POST", RECORDS, arrow_stream([b"x"]), ARROW)).status == 200
            answer = await node.call("GET", LONG, None, ACCEPT_ARROW)
            assert (answer.status, answer.json["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
            assert "open already" in answer.json["detail"]
            assert (await node.call("GET", LONG)).status == 200, "text needs no file while it is sent"
            short = await node.call("GET", f"{RECORDS}?offset={BATCHES}", None, ACCEPT_ARROW)
            assert short.status == 200, "nor does a short answer"

    asyncio.run(main())


def test_an_answer_goes_through_the_process_where_no_descriptor_is_left_for_sendfile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(descriptor: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def main() -> None:
        async with nodes(1) as (node,):
            await fill(node)
            monkeypatch.setattr(os, "dup", none_left)
            answer = await node.call("GET", LONG, None, ACCEPT_ARROW)
            assert pa.ipc.open_stream(answer.body).read_all().num_rows == BATCHES

    asyncio.run(main())


def test_a_client_that_takes_a_long_answer_too_slowly_is_cut_off_whatever_it_takes_now_and_then(
    on_a_loop: Callable[[Coroutine[Any, Any, None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept files open for as long as it liked, and so the room of records that retention had dropped."""
    monkeypatch.setattr(call, "STALL_S", 0.3)
    monkeypatch.setattr(call, "SLOWEST_BYTES_PER_S", 1 << 30)

    async def main() -> None:
        async with nodes(1) as (node,):
            await fill(node)
            loop = asyncio.get_running_loop()
            with ask(node, 4096) as asking:
                async with asyncio.timeout(60):
                    with pytest.raises(ConnectionResetError):
                        while True:
                            assert await loop.sock_recv(asking, 4096) != b""
                            await asyncio.sleep(0.01)

    on_a_loop(main())
