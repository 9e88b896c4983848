"""Who a client is, as one node tells it to another: believed over a connection between nodes, and from nowhere else."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from stockade.cluster.https import ClientCertificate
from stockade.cluster.model import Leader
from stockade.http_api.request.call import Call
from stockade.http_api.request.peers import CLIENT_ADDRESS, CLIENT_CERTIFICATE, Message, Peers

from ..conversation import Conversation, nodes

APP = ClientCertificate("ab" * 32, ("URI:stockade://c/client/app",), "app")
TOLD = {CLIENT_CERTIFICATE: json.dumps(APP)}
Seen = list[tuple[str | None, ClientCertificate | None]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What each request's handler could see of its sender."""
    found: Seen = []
    checked = Call.leader_headers

    def watched(self: Call) -> dict[str, str]:
        found.append((self.peer_node, self.certificate))
        return checked(self)

    monkeypatch.setattr(Call, "leader_headers", watched)
    return found


def play(count: int, test: Callable[[list[Conversation]], Awaitable[None]]) -> None:
    async def main() -> None:
        async with nodes(count) as found:
            await found[0].topic()
            await test(found)

    asyncio.run(main())


async def ask_over_a_node_s_connection(node: Conversation, headers: dict[str, str]) -> bytes:
    """The first line of the answer on a connection that the node has accepted from node n2."""
    accepted, own = socket.socketpair()
    loop = asyncio.get_running_loop()
    accept = node.service.accept("n2")
    assert accept is not None
    await loop.connect_accepted_socket(lambda: accept, accepted)
    reader, writer = await asyncio.open_connection(sock=own)
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    writer.write(f"GET /v1/topics HTTP/1.1\r\nHost: n1\r\n{''.join(lines)}\r\n".encode())
    line = await reader.readline()
    writer.close()
    return line


def test_a_node_s_word_counts(seen: Seen) -> None:
    async def test(found: list[Conversation]) -> None:
        seen.clear()
        assert await ask_over_a_node_s_connection(found[0], TOLD) == b"HTTP/1.1 200 OK\r\n"
        assert set(seen) == {("n2", APP)}

    play(1, test)


def test_a_stranger_that_sends_the_headers_of_a_node_is_no_node(seen: Seen) -> None:
    async def test(found: list[Conversation]) -> None:
        seen.clear()
        headers = TOLD | {"Stockade-Forwarded-By": "n2"}
        assert (await found[0].call("GET", "/v1/topics", None, headers)).status == 200
        assert set(seen) == {(None, None)}

    play(1, test)


def test_a_stranger_s_headers_are_not_passed_on_and_its_own_token_is(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Message] = []
    reach = Peers.reach

    async def watched(self: Peers, leader: str | None, message: Message, deadline_s: float) -> aiohttp.ClientResponse:
        sent.append(message)
        return await reach(self, leader, message, deadline_s)

    monkeypatch.setattr(Peers, "reach", watched)

    async def test(found: list[Conversation]) -> None:
        headers = {CLIENT_CERTIFICATE.lower(): TOLD[CLIENT_CERTIFICATE], "Authorization": "Bearer x", "Stockade-A": "b"}
        headers |= {CLIENT_ADDRESS.lower(): "10.1.2.3"}
        assert (await found[1].call("GET", "/v1/topics", None, headers)).status == 200
        assert [message.headers for message in sent] == [
            {"Accept": "*/*", "Stockade-A": "b", CLIENT_ADDRESS: "127.0.0.1", "Authorization": "Bearer x"},
        ]

    play(2, test)


def test_headers_that_a_node_adds_to_those_of_its_client_do_not_make_them_too_large() -> None:
    async def test(found: list[Conversation]) -> None:
        names = tuple(f"DNS:client-{number}.internal" for number in range(50))
        certificate = json.dumps(ClientCertificate("ab" * 32, names, "app"))
        passed_on = {"Accept": "*/*, " + "a" * 16_000, CLIENT_CERTIFICATE: certificate}
        assert await ask_over_a_node_s_connection(found[0], passed_on) == b"HTTP/1.1 200 OK\r\n"
        assert (await found[0].call("GET", "/v1/topics", None, passed_on)).status == 431

    play(1, test)


def test_a_leader_that_is_no_member_of_the_cluster_gets_neither_request_nor_token() -> None:
    connected: list[object] = []

    async def test(found: list[Conversation]) -> None:
        two = found[1]
        async with await asyncio.start_server(lambda _, writer: connected.append(writer), "127.0.0.1", 0) as trap:
            port = trap.sockets[0].getsockname()[1]
            monkey = Leader("n1", f"http://127.0.0.1:{port}", 7)
            two.service.controller = lambda: monkey  # type: ignore[method-assign]
            refused = await two.call("GET", "/v1/topics", None, {"Authorization": "Bearer secret"})
            assert (refused.status, refused.json["code"]) == (503, "LEADER_NOT_AVAILABLE")
        assert connected == []

    play(2, test)


def test_a_node_that_stops_takes_no_more_connections(seen: Seen) -> None:
    async def test(found: list[Conversation]) -> None:
        await found[0].server.close()
        assert found[0].service.accept("n2") is None

    play(1, test)
