"""Headers of a request that is passed on: every node answers it as its leader does."""

import asyncio
import socket

import pytest

from ..conversation import ARROW, NDJSON, RECORDS, nodes
from ..fake_service import FakeService


def test_the_leader_chooses_by_all_accept_headers_of_a_request_that_is_passed_on() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            await one.call("POST", RECORDS, {"records": [{"value": "x"}]})
            accepts = [("Accept", ARROW["Content-Type"]), ("Accept", "application/json;q=0.1")]
            for node in (one, two):
                answer = await node.call("GET", RECORDS, None, accepts)
                assert answer.headers["Content-Type"] == ARROW["Content-Type"]

    asyncio.run(main())


def test_as_many_header_lines_pass_through_another_node_as_to_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    leader: FakeService | None = None

    async def open_stream(self: FakeService, node_id: str, protocol: asyncio.Protocol) -> None:
        """A connection between nodes, as real ones have them."""
        ours, theirs = socket.socketpair()
        assert leader is not None
        accepted = leader.accept(self.node_id)
        assert accepted is not None
        await asyncio.get_running_loop().connect_accepted_socket(lambda: accepted, theirs)
        await asyncio.get_running_loop().create_connection(lambda: protocol, sock=ours)

    monkeypatch.setattr(FakeService, "open_stream", open_stream)

    async def main() -> None:
        nonlocal leader
        async with nodes(2) as found:
            await found[0].topic()
            leader = found[0].service
            for node in found:
                fewer = {f"Stockade-X-{number}": "y" for number in range(509)}  # with Host, Accept, User-Agent: 512
                assert (await node.call("GET", RECORDS, None, fewer)).status == 200, node.url
                answer = await node.call("GET", RECORDS, None, fewer | {"Stockade-X": "y"}, valid=False)
                assert answer.status == 431, node.url

    asyncio.run(main())


def test_letters_beyond_ascii_in_a_header_change_no_answer_on_the_way_to_the_leader() -> None:
    async def main() -> None:
        async with nodes(2) as found:
            await found[0].topic()
            for node in found:
                stored = await node.call("POST", RECORDS, b"x", {"Content-Type": 'text/plain; from="Zoë"'})
                assert stored.status == 200
                answer = await node.call("GET", RECORDS, None, {"Accept": "é/x, application/x-ndjson"})
                assert answer.headers["Content-Type"] == NDJSON["Content-Type"]

    asyncio.run(main())
