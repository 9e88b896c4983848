"""Calls between nodes: every call ends as surely not sent, answered, failed, or unknown."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from stockade.raft.messages import Call, Hello, Reply
from stockade.raft.net.codec import FRAME_BYTES_MAX, PROTOCOL_VERSION, InvalidFrame, encode
from stockade.raft.net.liveness import LivenessTimeouts
from stockade.raft.net.rpc import CallRefused
from stockade.raft.net.transport import CallFailed, CallUnknown, Transport

from ..transports import KIND, UNSET

LONG_S = 60.0
Handler = Callable[[str, bytes], Awaitable[bytes]]


@asynccontextmanager
async def two_nodes(handler: Handler, calls_max: int = 8) -> AsyncIterator[tuple[Transport, Transport]]:
    """n1 and n2, connected; n1 answers calls with ``handler``."""
    addresses = {"n1": UNSET, "n2": UNSET}
    n1 = Transport("n1", "house", UNSET, addresses, calls_max=calls_max)
    n2 = Transport("n2", "house", UNSET, addresses, calls_max=calls_max, times=LivenessTimeouts(reconnect_s=0.01))
    n1.handlers[KIND] = handler
    n1_sees_n2, n2_sees_n1 = asyncio.Event(), asyncio.Event()
    n1.on_up = lambda *_: n1_sees_n2.set()
    n2.on_up = lambda *_: n2_sees_n1.set()
    await n1.start(0)
    n2.set_peer("n1", n1.address)
    await n2.start(0)
    await n1_sees_n2.wait()
    await n2_sees_n1.wait()
    try:
        yield n1, n2
    finally:
        await n2.stop()
        await n1.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def echo(node_id: str, payload: bytes) -> bytes:
    return node_id.encode() + b" said " + payload


def test_a_call_is_answered_by_the_other_nodes_handler() -> None:
    async def scenario() -> None:
        async with two_nodes(echo) as (_, n2):
            assert await n2.call("n1", KIND, b"hello", LONG_S) == b"n2 said hello"
            assert await n2.call("n1", KIND, b"", LONG_S) == b"n2 said "

    asyncio.run(scenario())


def test_each_answer_reaches_the_call_it_belongs_to_whatever_the_order() -> None:
    async def scenario() -> None:
        gates = [asyncio.Event() for _ in range(8)]

        async def answer(node_id: str, payload: bytes) -> bytes:
            await gates[payload[0]].wait()
            if payload[0]:
                gates[payload[0] - 1].set()
            return payload * 2

        async with two_nodes(answer) as (_, n2):
            calls = [asyncio.create_task(n2.call("n1", KIND, bytes([i]), LONG_S)) for i in range(8)]
            gates[7].set()
            assert await asyncio.gather(*calls) == [bytes([i, i]) for i in range(8)]

    asyncio.run(scenario())


def test_an_exception_of_the_handler_reaches_the_caller_as_text() -> None:
    async def fail(node_id: str, payload: bytes) -> bytes:
        raise KeyError("no such thing")

    async def scenario() -> None:
        async with two_nodes(fail) as (_, n2):
            with pytest.raises(CallFailed, match="KeyError: 'no such thing'"):
                await n2.call("n1", KIND, b"x", LONG_S)

    asyncio.run(scenario())


def test_a_call_that_is_refused_is_no_fault_of_the_node_and_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Chaos, seed 73 with corrupt-index: two nodes wrote 15,000 lines while a third one waited for its turn."""
    failures: list[Exception] = [KeyError("broken"), CallRefused("not now")]

    async def fail(node_id: str, payload: bytes) -> bytes:
        raise failures.pop()

    async def scenario() -> None:
        async with two_nodes(fail) as (_, n2):
            with pytest.raises(CallFailed, match="CallRefused: not now"):
                await n2.call("n1", KIND, b"x", LONG_S)
            assert not caplog.records
            with pytest.raises(CallFailed, match="KeyError"):
                await n2.call("n1", KIND, b"x", LONG_S)
            assert caplog.records

    asyncio.run(scenario())


def test_an_answer_too_long_for_a_frame_is_a_failure() -> None:
    async def ramble(node_id: str, payload: bytes) -> bytes:
        return bytes(FRAME_BYTES_MAX)

    async def scenario() -> None:
        async with two_nodes(ramble) as (_, n2):
            with pytest.raises(CallFailed, match="InvalidFrame"):
                await n2.call("n1", KIND, b"x", LONG_S)
            with pytest.raises(InvalidFrame):
                await n2.call("n1", KIND, bytes(FRAME_BYTES_MAX), LONG_S)

    asyncio.run(scenario())


def test_a_node_without_a_handler_says_so_and_logs_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    """A node that starts is called before it has opened its replicas: its log had a traceback for each call."""

    async def scenario() -> None:
        async with two_nodes(echo) as (n1, _):
            with pytest.raises(CallFailed, match="answers no calls"):
                await n1.call("n2", KIND, b"x", LONG_S)
            assert not caplog.records

    asyncio.run(scenario())


def test_a_call_to_a_node_that_is_not_connected_was_surely_not_sent() -> None:
    async def scenario() -> None:
        async with two_nodes(echo) as (_, n2):
            with pytest.raises(ConnectionError, match="not connected"):
                await n2.call("n3", KIND, b"x", LONG_S)

    asyncio.run(scenario())


def test_a_call_without_an_answer_in_time_is_unknown_and_its_late_answer_is_dropped() -> None:
    async def scenario() -> None:
        may_answer = asyncio.Event()

        async def answer(node_id: str, payload: bytes) -> bytes:
            await may_answer.wait()
            return payload

        async with two_nodes(answer) as (_, n2):
            with pytest.raises(CallUnknown, match=r"no answer within 0\.01 s"):
                await n2.call("n1", KIND, b"late", 0.01)
            may_answer.set()
            assert await n2.call("n1", KIND, b"next", LONG_S) == b"next"

    asyncio.run(scenario())


def test_a_call_under_way_when_the_connection_is_lost_is_unknown() -> None:
    async def scenario() -> None:
        started = asyncio.Event()

        async def hang(node_id: str, payload: bytes) -> bytes:
            started.set()
            await asyncio.Event().wait()
            return b"never"

        async with two_nodes(hang) as (n1, n2):
            call = asyncio.create_task(n2.call("n1", KIND, b"x", LONG_S))
            await started.wait()
            await n1.stop()
            with pytest.raises(CallUnknown, match="lost before"):
                await call

    asyncio.run(scenario())


def test_calls_under_way_when_their_caller_stops_are_unknown() -> None:
    async def scenario() -> None:
        started = asyncio.Event()

        async def hang(node_id: str, payload: bytes) -> bytes:
            started.set()
            await asyncio.Event().wait()
            return b"never"

        async with two_nodes(hang) as (_, n2):
            call = asyncio.create_task(n2.call("n1", KIND, b"x", LONG_S))
            await started.wait()
            await n2.stop()
            with pytest.raises(CallUnknown):
                await call

    asyncio.run(scenario())


def test_more_calls_than_the_bound_are_surely_not_sent() -> None:
    async def scenario() -> None:
        may_answer = asyncio.Event()
        started = 0

        async def answer(node_id: str, payload: bytes) -> bytes:
            nonlocal started
            started += 1
            await may_answer.wait()
            return payload

        async with two_nodes(answer, calls_max=3) as (_, n2):
            calls = [asyncio.create_task(n2.call("n1", KIND, b"x", LONG_S)) for _ in range(3)]
            await asyncio.sleep(0)
            with pytest.raises(ConnectionError, match="3 calls"):
                await n2.call("n1", KIND, b"one too many", LONG_S)
            may_answer.set()
            assert await asyncio.gather(*calls) == [b"x"] * 3
            assert await n2.call("n1", KIND, b"now", LONG_S) == b"now"
            assert started == 4

    asyncio.run(scenario())


def test_a_peer_is_served_no_more_calls_at_a_time_than_the_bound() -> None:
    async def scenario() -> None:
        may_answer = asyncio.Event()

        async def answer(node_id: str, payload: bytes) -> bytes:
            await may_answer.wait()
            return payload

        async with two_nodes(answer, calls_max=2) as (_, n2):
            for _ in range(2):  # given up here, but still being served there
                with pytest.raises(CallUnknown):
                    await n2.call("n1", KIND, b"slow", 0.01)
            with pytest.raises(CallFailed, match="not started: 2 calls"):
                await n2.call("n1", KIND, b"one too many", LONG_S)
            may_answer.set()

    asyncio.run(scenario())


def test_a_call_that_finds_the_buffer_full_was_surely_not_sent() -> None:
    async def scenario() -> None:
        n1 = Transport("n1", "house", UNSET, {"n2": UNSET}, peer_buffer_bytes_max=1000)
        await n1.start(0)
        _, writer = await asyncio.open_connection(*n1.address)
        up = asyncio.Event()
        n1.on_up = lambda *_: up.set()
        writer.write(encode(0, Hello(PROTOCOL_VERSION, "house", "n2", 0)))
        await up.wait()
        with pytest.raises(ConnectionError, match="too many bytes"):
            await n1.call("n2", KIND, bytes(2000), LONG_S)
        writer.transport.abort()
        await n1.stop()

    asyncio.run(scenario())


def test_answers_without_a_question_are_dropped() -> None:
    async def scenario() -> None:
        n1 = Transport("n1", "house", UNSET, {"n2": UNSET})
        n1.handlers[KIND] = echo
        await n1.start(0)
        reader, writer = await asyncio.open_connection(*n1.address)
        hello, answer = encode(0, Hello(PROTOCOL_VERSION, "house", "n1", 0)), encode(0, Reply(5, b"n2 said x", True))
        writer.write(encode(0, Hello(PROTOCOL_VERSION, "house", "n2", 0)))
        writer.write(encode(0, Reply(77, b"what?", True)) + encode(0, Call(5, KIND + b"x")))
        assert await reader.readexactly(len(hello) + len(answer)) == hello + answer
        writer.transport.abort()
        await n1.stop()

    asyncio.run(scenario())


def test_a_cancelled_call_leaves_room_for_the_next() -> None:
    async def scenario() -> None:
        may_answer = asyncio.Event()

        async def answer(node_id: str, payload: bytes) -> bytes:
            await may_answer.wait()
            return payload

        async with two_nodes(answer, calls_max=2) as (_, n2):
            first = asyncio.create_task(n2.call("n1", KIND, b"1", LONG_S))
            second = asyncio.create_task(n2.call("n1", KIND, b"2", LONG_S))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            may_answer.set()
            assert await second == b"2"
            assert await n2.call("n1", KIND, b"3", LONG_S) == b"3"

    asyncio.run(scenario())
