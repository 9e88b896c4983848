"""Answers that no node gives: of a proxy, a captive portal, or another service at a node's address."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stockade.client.api.client import Client
from stockade.client.blocking.reader import BlockingClient
from stockade.client.blocking.writer import BlockingWriter
from stockade.client.config import ClientConfig
from stockade.client.errors import UnreadableAnswer
from stockade.client.transport import http
from stockade.client.transport.http import Request, Transport
from stockade.partition.errors import RequestTimedOut

from ..fake_cluster import FakeCluster, Fault
from .test_http import other_port


def page(content_type: str, body: str) -> bytes:
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return (head + body).encode()


PAGES = [("text/html", "<html>It works!"), ("application/json", '{"message": "hello"}'), ("application/json", "[1, 2]")]
CALLS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "connect": lambda client: client.connect(),
    "topics": lambda client: client.topics(),
    "fetch": lambda client: client.fetch("t", 0, 0, max_bytes=1),
    "renew_session": lambda client: client.renew_session("s-1", 1000),
    "append": lambda client: client.append("t", 0, b"message"),
    "acquire": lambda client: client.acquire("t", "s-1", [0], "Exclusive", "me"),
}
WRITES = {"renew_session", "append", "acquire"}


@pytest.mark.parametrize(("content_type", "body"), PAGES)
@pytest.mark.parametrize("call", CALLS)
def test_the_error_says_what_answered_and_of_a_write_that_its_outcome_is_unknown(
    call: str, content_type: str, body: str
) -> None:
    """It was called "a fault in the server"."""

    async def run(url: str) -> None:
        async with Client(ClientConfig(bootstrap=url)) as client:
            await CALLS[call](client)

    with other_port(page(content_type, body)) as (url, _), pytest.raises(UnreadableAnswer) as raised:
        asyncio.run(run(url))
    error = raised.value
    assert f"{url} gave an answer that no node gives: status 200, {content_type}, and the body begins" in error.detail
    assert error.no_side_effects is (call not in WRITES)
    assert error.detail.endswith("the outcome is unknown") is (call in WRITES)
    assert error.fields == {"node": url, "answer_status": 200, "content_type": content_type}


def test_the_blocking_clients_say_the_same() -> None:
    with other_port(page("text/html", "<html>It works!")) as (url, _):
        config = ClientConfig(bootstrap=url)
        reader, writer = BlockingClient(config), BlockingWriter(config)
        for read in (reader.topics, lambda: reader.fetch("t", 0, 0)):
            with pytest.raises(UnreadableAnswer, match="It works!") as raised:
                read()
            assert raised.value.no_side_effects
        with pytest.raises(UnreadableAnswer, match="outcome is unknown"):
            writer.trim("t", 0, 0)
        reader.close()
        writer.close()


def test_after_a_portal_answered_for_the_leader_the_other_nodes_are_asked(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.read_faults = [Fault.PORTAL]

    async def run() -> None:
        async with Client(ClientConfig(bootstrap=tuple(cluster.nodes))) as client:
            await client.metadata.topic("t")
            leader = client.metadata.leader("t", 0)
            with pytest.raises(UnreadableAnswer):
                await client.fetch("t", 0, 0, max_bytes=1)
            assert leader == cluster.nodes[0]
            assert client.metadata.leader("t", 0) is None

    asyncio.run(run())


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n3\r\n 2]\r\n0\r\n\r\n"
LENGTHY = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n[1, 2]"


@pytest.mark.parametrize("answer", [CHUNKED, LENGTHY])
@pytest.mark.parametrize(("bytes_max", "is_read"), [(6, True), (5, False)])
def test_an_answer_that_is_longer_than_the_bound_is_not_read_also_if_it_does_not_tell_its_length(
    answer: bytes, bytes_max: int, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound held only where the answer had a Content-Length."""
    monkeypatch.setattr(http, "ANSWER_BYTES_MAX", bytes_max)

    async def run(url: str) -> bytes:
        async with Transport(ClientConfig(bootstrap=url)) as transport:
            return bytes((await transport.request(Request(method="GET", path="/", node=url, only_node=True))).body)

    with other_port(answer) as (url, _):
        if is_read:
            assert asyncio.run(run(url)) == b"[1, 2]"
        else:
            with pytest.raises(RequestTimedOut, match=f"the answer is longer than {bytes_max} bytes"):
                asyncio.run(run(url))
