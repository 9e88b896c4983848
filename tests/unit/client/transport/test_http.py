import asyncio
import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from stockade.cli.ui.exits import UNKNOWN_OUTCOME, UNREACHABLE, exit_code
from stockade.client.api.client import Client
from stockade.client.blocking.http import PlainHttp
from stockade.client.blocking.reader import BlockingClient
from stockade.client.blocking.writer import BlockingWriter
from stockade.client.config import BOUNDS, ClientConfig, is_downgrade
from stockade.client.errors import ClientClosed, ClusterUnreachable, PlaintextRefused
from stockade.client.transport.http import (
    JOINED_BYTES_MAX,
    LEADER_HINTS_MAX,
    NODE_PAUSE_S_MAX,
    NODES_MAX,
    Answer,
    Request,
    Transport,
    _Body,
)
from stockade.partition.errors import CorruptMessage, LeaderNotAvailable, NotLeaderOrFollower, RequestTimedOut

from ..fake_cluster import FakeCluster, Fault

PATH = "/v1/topics/t/partitions/0/records"
READ = Request(method="GET", path=PATH, params={"offset": 0, "max_bytes": 1})


def ask(request: Request, *nodes: str, **settings: Any) -> Answer:
    async def run() -> Answer:
        async with Transport(ClientConfig(bootstrap=nodes, **settings)) as transport:
            return await transport.request(request)

    return asyncio.run(run())


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.filterwarnings("ignore:(Unclosed|unclosed):ResourceWarning")
def test_a_client_that_is_forgotten_is_named_in_the_log(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """There was aiohttp's warning alone, of a session that the application had not made."""

    async def run(*, closes: bool) -> None:
        client = Client(cluster.nodes)
        assert await client.topics() == []
        if closes:
            await client.close()
        del client
        _ = Client(cluster.nodes)  # it has no connection

    warning = "a Client, Consumer or Producer was not closed: use it in a `with` block, or call its `close`"
    for closes, told in ((True, []), (False, [warning])):
        asyncio.run(run(closes=closes))
        gc.collect()
        assert [each.getMessage() for each in caplog.records if each.name == "stockade.client.transport.http"] == told


def test_a_node_that_cannot_be_connected_to_is_passed_over_and_tried_last_for_a_while(cluster: FakeCluster) -> None:
    dead = free_port()

    async def run() -> None:
        async with Transport(ClientConfig(bootstrap=(dead, cluster.nodes[0]))) as transport:
            assert transport.nodes[0] == dead
            answer = await transport.request(Request(method="GET", path="/v1/cluster"))
            assert answer.status == 200
            assert transport.nodes == [cluster.nodes[0], dead]

    asyncio.run(run())


def test_a_node_that_hangs_is_passed_over_when_a_client_connects(cluster: FakeCluster) -> None:
    async def run(hanging: str) -> None:
        nodes = (hanging, *cluster.nodes)
        async with Client(ClientConfig(bootstrap=nodes, connect_timeout_ms=200, request_timeout_ms=60_000)) as client:
            async with asyncio.timeout(30):
                assert [node.url for node in (await client.connect()).nodes] == cluster.nodes
                assert await client.topics() == []

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(run(f"http://127.0.0.1:{listener.getsockname()[1]}"))


def test_other_requests_pass_over_a_node_from_which_one_waits_for_an_answer_that_should_have_come(
    cluster: FakeCluster,
) -> None:
    async def run(hanging: str) -> None:
        async with Transport(ClientConfig(bootstrap=(hanging, *cluster.nodes))) as transport:
            ask = Request(method="GET", path="/v1/cluster", node=hanging, only_node=True, silent_ms=50)
            waits = asyncio.create_task(transport.request(ask))
            await until(lambda: transport.nodes == [*cluster.nodes, hanging])
            assert not waits.done()
            transport.avoid(cluster.nodes[0])
            assert transport.nodes == [*cluster.nodes[1:], hanging, cluster.nodes[0]], "it was avoided before"
            waits.cancel()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(run(f"http://127.0.0.1:{listener.getsockname()[1]}"))


class _Writer(AbstractStreamWriter):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    async def write(self, chunk: Any) -> None:
        self.parts.append(chunk)

    async def write_eof(self, chunk: bytes = b"") -> None:
        raise NotImplementedError

    async def drain(self) -> None:
        raise NotImplementedError

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        raise NotImplementedError

    def enable_chunking(self) -> None:
        raise NotImplementedError

    async def write_headers(self, status_line: str, headers: Any) -> None:
        raise NotImplementedError


def written(parts: tuple[bytes, ...]) -> list[bytes]:
    """The pieces that a body of these parts is handed to the connection in; it reports that after the last one."""
    told: list[int] = []
    body, writer = _Body(parts, lambda: told.append(len(writer.parts))), _Writer()
    asyncio.run(body.write(writer))
    assert told == [len(writer.parts)]
    assert body.size == sum(map(len, parts))
    assert b"".join(parts) == b"".join(writer.parts)
    return writer.parts


@pytest.mark.parametrize(("size", "pieces"), [(JOINED_BYTES_MAX - 5, 1), (JOINED_BYTES_MAX - 4, 2)])
def test_a_short_body_goes_in_one_piece(size: int, pieces: int) -> None:
    assert len(written((b"ab", b"x" * size, b"end"))) == pieces


@given(st.lists(st.sampled_from([0, 1, 500, 20_000, JOINED_BYTES_MAX, 100_000]), max_size=30))
def test_short_parts_of_a_body_are_joined_and_long_ones_are_not_copied(sizes: list[int]) -> None:
    """Each part by itself cost a Producer of many partitions up to ten times the processor time."""
    parts = tuple(map(bytes, sizes))
    pieces = written(parts)
    assert all(len(one) + len(other) > JOINED_BYTES_MAX for one, other in pairwise(pieces[:-1]))
    long = [part for part in parts if len(part) > JOINED_BYTES_MAX]
    assert [piece for piece in pieces if len(piece) > JOINED_BYTES_MAX] == long
    assert all(any(piece is part for piece in pieces) for part in long)


def test_a_host_that_is_not_known_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not "Unknown error -2"."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ClusterUnreachable, match=r"\(the host's address is not known: Name or service not known\)"):
        ask(Request(method="GET", path="/v1/cluster"), "http://stokade.example:7101")


def test_when_no_node_can_be_reached_nothing_was_sent() -> None:
    with pytest.raises(ClusterUnreachable) as unreachable:
        ask(READ, free_port(), free_port())
    assert unreachable.value.no_side_effects
    assert unreachable.value.retriable
    assert unreachable.value.detail.count("http://") == 2


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_change_whose_answer_is_lost_is_an_unknown_outcome_and_is_sent_once(method: str) -> None:
    """aiohttp would send it again, and give the answer to that: 404 for what the first one deleted."""
    heads: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if len(heads) > 1:
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
            node = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with Transport(ClientConfig(bootstrap=(node,))) as transport:
                transport.learn([node])
                with pytest.raises(RequestTimedOut):
                    await transport.request(Request(method=method, path="/v1/session"))

    asyncio.run(run())
    assert len(heads) == 1


def test_a_leader_hint_is_followed(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.read_faults = [Fault.MOVED]
    assert ask(READ, *cluster.nodes).status == 200
    assert len(cluster.requests) == 2


def test_hints_are_followed_a_few_times_at_most(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.read_faults = [Fault.MOVED] * 10
    with pytest.raises(NotLeaderOrFollower):
        ask(READ, *cluster.nodes)
    assert len(cluster.requests) == LEADER_HINTS_MAX + 1


@pytest.mark.parametrize("fault", [Fault.LEADERLESS, Fault.UNAVAILABLE])
def test_a_node_that_knows_no_leader_is_tried_last_for_a_while(cluster: FakeCluster, fault: Fault) -> None:
    cluster.create("t")
    cluster.read_faults = [fault]

    async def run() -> None:
        first, second = cluster.nodes
        async with Transport(ClientConfig(bootstrap=(first, second))) as transport:
            with pytest.raises((NotLeaderOrFollower, LeaderNotAvailable)):
                await transport.request(READ)
            assert transport.nodes == [second, first]
            assert (await transport.request(READ)).status == 200

    asyncio.run(run())


def test_a_request_with_only_node_is_sent_to_no_other(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.read_faults = [Fault.MOVED]
    only = Request(method="GET", path=PATH, params=READ.params, node=cluster.nodes[0], only_node=True)
    with pytest.raises(NotLeaderOrFollower):
        ask(only, *cluster.nodes)
    with pytest.raises(ClusterUnreachable):
        ask(Request(method="GET", path="/v1/cluster", node=free_port(), only_node=True), *cluster.nodes)


def test_a_lost_answer_is_an_unknown_outcome_and_not_repeated(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.LOSE_REQUEST]
    with pytest.raises(RequestTimedOut) as unknown:
        ask(Request(method="POST", path=PATH, body=b"x"), *cluster.nodes)
    assert not unknown.value.no_side_effects
    assert cluster.paths("POST") == [PATH]


@contextmanager
def other_port(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A port that speaks something else: its address, and what it was sent. It closes each connection."""
    sent: list[bytes] = []
    closing = threading.Event()

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                if closing.is_set():
                    return
                sent.append(connection.recv(1 << 16))
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", sent
        finally:
            closing.set()
            socket.create_connection(listener.getsockname()).close()
            thread.join()


@pytest.mark.parametrize("answer", [b"", b"\x00\x01raft", b"220 mail.example ESMTP\r\n"])
def test_a_port_that_speaks_no_http_is_called_so_and_took_nothing(answer: bytes) -> None:
    with other_port(answer) as (url, sent):
        for request in (Request(method="POST", path=PATH, body=b"record"), Request(method="GET", path="/v1/cluster")):
            with pytest.raises(ClusterUnreachable, match=f"{url} .it gives no HTTP answer"):
                ask(request, url)
        assert not any(b"record" in each for each in sent)


def test_a_wrong_port_among_the_addresses_is_passed_over(cluster: FakeCluster) -> None:
    cluster.create("t")
    with other_port(b"") as (url, _):
        with pytest.raises(CorruptMessage):
            ask(Request(method="POST", path=PATH, body=b"no record"), url, cluster.nodes[0])
        assert cluster.paths("POST") == [PATH]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_answer_in_time_leaves_the_outcome_unknown_of_all_but_a_read(cluster: FakeCluster, method: str) -> None:
    """A command that only reads ended with "it may have been done", and exit code 3."""
    cluster.create("t")
    cluster.read_faults, cluster.faults = [Fault.HOLD], [Fault.HOLD]
    with pytest.raises(RequestTimedOut, match="no answer within 100 ms") as raised:
        ask(Request(method=method, path=PATH, params=READ.params), *cluster.nodes, request_timeout_ms=100)
    is_read = method == "GET"
    assert (raised.value.no_side_effects, "outcome is unknown" in raised.value.detail) == (is_read, not is_read)
    assert exit_code(raised.value) == (UNREACHABLE if is_read else UNKNOWN_OUTCOME)


def test_the_blocking_clients_say_the_same_of_a_lost_answer() -> None:
    with other_port(b"") as (url, _):
        config = ClientConfig(bootstrap=url, delivery_timeout_ms=200, request_timeout_ms=100, linger_ms=0)
        reader, writer = BlockingClient(config), BlockingWriter(config)
        with pytest.raises(RequestTimedOut) as raised:
            reader.topics()
        assert (raised.value.no_side_effects, "unknown" in raised.value.detail) == (True, False)
        with pytest.raises(RequestTimedOut, match="the outcome is unknown") as raised:
            writer.trim("t", 0, 0)
        assert not raised.value.no_side_effects
        reader.close()
        writer.close()


def test_the_time_that_a_node_may_wait_comes_on_top(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.read_faults = [Fault.HOLD]
    with pytest.raises(RequestTimedOut, match="no answer within 150 ms"):
        ask(Request(method="GET", path=PATH, params=READ.params, wait_ms=50), *cluster.nodes, request_timeout_ms=100)


def test_a_request_that_begins_while_the_transport_closes_finds_it_closed(cluster: FakeCluster) -> None:
    """And not a RuntimeError of aiohttp, which tasks in the background, such as the watchdog's, do not expect."""

    async def run() -> None:
        transport = Transport(ClientConfig(bootstrap=tuple(cluster.nodes)))
        _ = await transport.request(Request(method="GET", path="/v1/cluster"))
        assert transport._session is not None
        close, closing, begun = transport._session.close, asyncio.Event(), asyncio.Event()

        async def close_slowly() -> None:
            await close()
            closing.set()
            await begun.wait()

        transport._session.close = close_slowly  # type: ignore[method-assign]
        ended = asyncio.create_task(transport.close())
        await closing.wait()
        with pytest.raises(ClientClosed):
            _ = await transport.request(Request(method="GET", path="/v1/cluster"))
        begun.set()
        await ended

    asyncio.run(run())


def test_a_closed_transport_sends_nothing(cluster: FakeCluster) -> None:
    async def run() -> None:
        transport = Transport(ClientConfig(bootstrap=tuple(cluster.nodes)))
        await transport.close()
        with pytest.raises(ClientClosed):
            await transport.request(READ)

    asyncio.run(run())
    assert cluster.requests == []


def test_only_base_urls_are_learned() -> None:
    transport = Transport(ClientConfig(bootstrap=("http://a:1",)))
    transport.learn(["http://b:2/", "file:///etc", "http://a:1", ""])
    assert transport.nodes == ["http://a:1", "http://b:2"]


def test_nodes_that_have_left_the_cluster_are_forgotten_but_for_those_that_the_application_named() -> None:
    """A client that lived longer than all nodes tried the addresses of those that were gone, one after the other."""
    transport = Transport(ClientConfig(bootstrap=("http://a:1",)))
    transport.learn(["http://a:1", "http://b:2", "http://c:3"])
    transport.avoid("http://c:3")
    transport.learn(["http://d:4", "http://c:3"])
    assert "http://b:2" in transport.nodes, "the node that answered may not have heard of it"
    for gone in ("http://a:1", "http://b:2"):
        transport._not_reached(gone)
    transport.learn(["http://d:4", "http://c:3"])
    assert set(transport.nodes) == {"http://a:1", "http://c:3", "http://d:4"}
    assert transport.nodes[0] == "http://d:4", "the others are tried last"


def test_no_more_nodes_than_the_bound_are_remembered() -> None:
    transport = Transport(ClientConfig(bootstrap=("http://a:1",)))
    transport.learn(f"http://b:{number}" for number in range(1, NODES_MAX + 10))
    assert len(transport.nodes) == NODES_MAX


def test_an_address_that_takes_no_connection_is_tried_first_less_and_less_often(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("stockade.client.transport.http.time.monotonic", lambda: now[0])
    cluster.create("t")
    live = cluster.nodes[0]

    async def pauses(transport: Transport, gone: str, count: int) -> list[float]:
        found = []
        for _ in range(count):
            before = now[0]
            _ = await transport.request(READ)
            while transport.nodes[0] != gone:
                now[0] += 0.5
            found.append(now[0] - before)
        return found

    async def run() -> None:
        gone = free_port()
        async with Transport(ClientConfig(bootstrap=(gone, live))) as transport:
            assert await pauses(transport, gone, 7) == [1.0, 2.0, 4.0, 8.0, 16.0, NODE_PAUSE_S_MAX, NODE_PAUSE_S_MAX]
            await asyncio.gather(*(transport.request(READ) for _ in range(5)))  # side by side: one failure
            assert transport._nodes[gone] == now[0] + NODE_PAUSE_S_MAX
            transport._nodes[live], transport._unreached[live] = now[0] + NODE_PAUSE_S_MAX, 7
            _ = await transport.request(replace(READ, node=live))
            assert transport.nodes == [live, gone], "it has answered"

    asyncio.run(run())


@pytest.mark.parametrize("named_by", ["the leader hint of an append", "the list of nodes"])
def test_a_client_that_began_with_tls_sends_nothing_without_it(cluster: FakeCluster, named_by: str) -> None:
    """The node that is named exists and would answer: it must get neither the request nor the token."""
    plain = cluster.nodes[0]
    config = ClientConfig(bootstrap=("https://127.0.0.1:1",), token="secret")

    async def run() -> None:
        async with Transport(config) as transport:
            if named_by == "the list of nodes":
                transport.learn([plain])
                assert transport.nodes == ["https://127.0.0.1:1"]
            with pytest.raises(PlaintextRefused) as refused:
                await transport.request(Request(method="GET", path="/v1/cluster", node=plain))
            assert refused.value.fields["node"] == plain
            assert not refused.value.retriable

    asyncio.run(run())
    assert cluster.requests == []
    blocking = PlainHttp(config.credentials(), 1.0, 1.0, config.bootstrap)
    with pytest.raises(PlaintextRefused):
        blocking.request(plain, "GET", "/v1/cluster")
    assert cluster.requests == []


def test_a_node_without_tls_that_the_application_named_is_asked_and_so_is_one_with_tls(cluster: FakeCluster) -> None:
    plain = cluster.nodes[0]
    assert ask(Request(method="GET", path="/v1/cluster", node=plain), "https://127.0.0.1:1", plain).status == 200
    assert not is_downgrade("https://other:1", ("http://127.0.0.1:1",))


@pytest.mark.parametrize(
    ("connections", "at_once"), [(BOUNDS["connections_max"][0], 1), (3, 2), (4, 3), (64, 48), (100, 84)]
)
def test_requests_that_wait_leave_connections_for_those_that_do_not(connections: int, at_once: int) -> None:
    """A client's long polls held all of its connections, and its sessions ended for want of a renewal. With a single
    one, which was allowed, they still did.
    """
    arrived = list[str]()

    async def run() -> None:
        over, all_wait = asyncio.Event(), asyncio.Event()

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            arrived.append(request.path)
            if request.path == "/wait":
                if arrived.count("/wait") == at_once:
                    all_wait.set()
                await over.wait()
            return web.Response()

        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        node = f"http://127.0.0.1:{runner.addresses[0][1]}"
        config = ClientConfig(bootstrap=node, connections_max=connections)
        async with Transport(config) as transport, asyncio.timeout(30):
            wait = Request(method="GET", path="/wait", wait_ms=60_000)
            assert transport.has_room_to_wait
            waiting = [asyncio.ensure_future(transport.request(wait)) for _ in range(connections + 2)]
            await all_wait.wait()
            assert not transport.has_room_to_wait
            assert (await transport.request(Request(method="PUT", path="/now"))).status == 200
            assert arrived.count("/wait") == at_once
            over.set()
            assert {each.status for each in await asyncio.gather(*waiting)} == {200}
            assert transport.has_room_to_wait
        await runner.cleanup()

    asyncio.run(run())
