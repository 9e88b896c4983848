"""What a client began with a credential, or a right, that was taken from it before it was done: nothing comes of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from waiting import until

from stockade.cluster.access.principals import Access, Principal, PrincipalToken, new_token
from stockade.cluster.model import NO_PRINCIPAL, By
from stockade.http_api.request import pulse
from stockade.partition.api.ownership import Grant, Ticket

from ..conversation import RECORDS, TEXT, Conversation, nodes

ROOT, LEAVING = new_token(), new_token()
RIGHTS = ["read topic:orders", "produce topic:orders", "read cluster", "own group:g", "admin topic:mine-*"]


class House:
    """A node with principals: ``root`` of the configuration, ``leaving`` as the controller tells it."""

    def __init__(self, node: Conversation, access: Access) -> None:
        self.node = node
        self._access = access
        self._index = 0
        self.may(RIGHTS)

    def may(self, rights: list[str]) -> None:
        self._index += 1
        self._access.replicate(self._index, [Principal("leaving", rights, [PrincipalToken(LEAVING.hash)])])

    def delete(self) -> None:
        self._index += 1
        self._access.replicate(self._index, [])

    async def by_root(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> int:
        answer = await self.node.call(method, path, body, bearer(ROOT.token) | (headers or {}))
        return answer.status

    @asynccontextmanager
    async def begun(self, request: str, body: bytes = b"") -> AsyncIterator["Begun"]:
        """A request of ``leaving`` of which the node has the head and half the body."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.node.port)
        half = len(body) // 2
        lines = [f"{request} HTTP/1.1", "Host: n1", f"Authorization: Bearer {LEAVING.token}"]
        lines += ["Connection: close", "Content-Type: application/json"]
        writer.write("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body[:half])
        await until(lambda: self.node.server.front.in_flight.requests.used)
        try:
            yield Begun(reader, writer, body[half:])
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


class Begun:
    """The rest of a request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rest: bytes) -> None:
        self.reader, self._writer, self._rest = reader, writer, rest

    async def end(self) -> tuple[int, bytes]:
        """Send it; the status and the rest of the answer."""
        self._writer.write(self._rest)
        whole = await self.reader.read()
        return int(whole[9:12]), whole


def run(test: Callable[[House], Awaitable[None]]) -> None:
    async def main() -> None:
        access = Access((), [Principal("root", ["all"], [PrincipalToken(ROOT.hash)])])
        async with nodes(1, access) as (node,), asyncio.timeout(20):
            house = House(node, access)
            assert await house.by_root("POST", "/v1/topics", {"name": "orders"}) == 201
            await test(house)

    asyncio.run(main())


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_body_that_comes_after_its_token_was_deleted_is_not_appended() -> None:
    """5,000 bodies that are on their way for 30 s would be 5,000 appends by a token that is known to have leaked."""

    async def test(house: House) -> None:
        async with house.begun(f"POST {RECORDS}", b'{"records": [{"value": "late"}]}') as request:
            house.delete()
            status, answer = await request.end()
        assert (status, b"UNAUTHENTICATED" in answer) == (401, True)
        found = await house.node.call("GET", RECORDS, None, bearer(ROOT.token))
        assert found.json["records"] == []

    run(test)


@pytest.mark.parametrize(
    ("request_line", "body", "left"),
    [
        (f"POST {RECORDS}", {"records": [{"value": "late"}]}, ["read topic:orders"]),
        ("POST /v1/topics", {"name": "mine-too"}, ["admin topic:other"]),
    ],
    ids=["of the path", "of the body"],
)
def test_a_body_that_comes_after_its_right_was_taken_changes_nothing(
    request_line: str, body: object, left: list[str]
) -> None:
    async def test(house: House) -> None:
        async with house.begun(request_line, json.dumps(body).encode()) as request:
            house.may(left)
            status, answer = await request.end()
        assert (status, b"PERMISSION_DENIED" in answer) == (403, True)

    run(test)


@pytest.mark.parametrize("how", ["max_wait_ms=60000&offset=latest", "follow=true&offset=latest"])
def test_a_reader_whose_token_was_deleted_while_it_waited_gets_no_record(how: str) -> None:
    async def test(house: House) -> None:
        async with house.begun(f"GET {RECORDS}?{how}") as request:
            if "follow" in how:
                await request.reader.readuntil(b"\r\n\r\n")
            house.delete()
            assert await house.by_root("POST", RECORDS, b"secret", TEXT) == 200
            answer = await request.reader.read()
        assert b"UNAUTHENTICATED" in answer
        assert b"secret" not in answer

    run(test)


GRANTS = "/v1/topics/orders/grants"
WAITING = {"partitions": [0], "mode": "WaitForExclusive", "producer_name": "p"}
MAY_ACQUIRE = [*RIGHTS, "acquire topic:orders"]


async def wait_in_line(house: House) -> tuple[str, str]:
    """``root`` has the slot; a session of ``leaving``, and its ticket."""
    house.may(MAY_ACQUIRE)
    leaving = bearer(LEAVING.token)
    opened = await house.node.call("POST", "/v1/sessions", {"client_id": "root"}, bearer(ROOT.token))
    root = {"Stockade-Session": opened.json["session"]}
    assert await house.by_root("POST", GRANTS, WAITING, root) == 201
    opened = await house.node.call("POST", "/v1/sessions", {"client_id": "leaving"}, leaving)
    session = opened.json["session"]
    asked = await house.node.call("POST", GRANTS, WAITING, leaving | {"Stockade-Session": session})
    assert asked.status == 202
    return session, asked.json["ticket"]


def granted(ticket: str) -> Ticket:
    grant = Grant("g" + ticket[1:], "orders", 1, "WaitForExclusive", "p", [0], 2, {"0": 2})
    return Ticket(ticket, "granted", None, "orders", [0], grant)


def test_a_ticket_whose_right_to_acquire_was_taken_answers_no_grant() -> None:
    async def test(house: House) -> None:
        session, ticket = await wait_in_line(house)
        house.node.service.shared.tickets[ticket] = granted(ticket)
        named = bearer(LEAVING.token) | {"Stockade-Session": session}
        path = f"/v1/tickets/{ticket}"
        assert (await house.node.call("GET", path, None, named)).json["state"] == "granted"
        house.may(["acquire topic:other"])
        refused = await house.node.call("GET", path, None, named)
        assert (refused.status, refused.json["code"]) == (403, "PERMISSION_DENIED")
        assert "acquire topic:orders" in refused.json["detail"]

    run(test)


@pytest.mark.parametrize("is_in_force", [True, False])
@pytest.mark.parametrize("left", [["acquire topic:other"], []])
def test_a_ticket_whose_right_to_acquire_was_taken_is_given_up_with_its_grant(
    left: list[str], is_in_force: bool
) -> None:
    """A session that may neither use its grant nor give it up would hold the slot for as long as it is renewed."""

    async def test(house: House) -> None:
        session, ticket = await wait_in_line(house)
        found = granted(ticket)
        assert found.grant is not None
        installing = Ticket(ticket, "installing", None, "orders", [0], None)
        house.node.service.shared.tickets[ticket] = found if is_in_force else installing
        house.node.service.shared.grants[found.grant.grant] = found.grant
        house.node.service.shared.holders[found.grant.grant] = session
        house.may(left)
        named = bearer(LEAVING.token) | {"Stockade-Session": session}
        answer = await house.node.call("DELETE", f"/v1/tickets/{ticket}", None, named)
        assert (answer.status, answer.json) == (200, {"ticket": ticket, "state": "cancelled", "grant": None})
        assert found.grant.grant not in house.node.service.shared.grants

    run(test)


def test_a_grant_is_released_without_the_right_that_it_took() -> None:
    async def test(house: House) -> None:
        house.may(MAY_ACQUIRE)
        leaving = bearer(LEAVING.token)
        opened = await house.node.call("POST", "/v1/sessions", {"client_id": "leaving"}, leaving)
        named = leaving | {"Stockade-Session": opened.json["session"]}
        acquired = await house.node.call("POST", GRANTS, WAITING, named)
        house.may([])
        released = await house.node.call("DELETE", f"/v1/grants/{acquired.json['grant']}", None, named)
        assert (acquired.status, released.status) == (201, 204)
        assert house.node.service.shared.grants == {}

    run(test)


@pytest.mark.parametrize("is_free", [True, False])
def test_an_acquire_that_was_decided_after_its_right_was_taken_leaves_nothing(is_free: bool) -> None:
    """It had been let in before: the controllers had no leader, or both were under way."""

    async def test(house: House) -> None:
        house.may(MAY_ACQUIRE)
        leaving = bearer(LEAVING.token)
        if not is_free:
            await wait_in_line(house)
        opened = await house.node.call("POST", "/v1/sessions", {"client_id": "leaving"}, leaving)
        shared, acquire = house.node.service.shared, house.node.service.acquire
        before = dict(shared.grants), dict(shared.tickets)

        async def late(*request: Any, **rest: Any) -> Grant | Ticket:
            house.may(RIGHTS)
            return await acquire(*request, **rest)

        house.node.service.acquire = late  # type: ignore[method-assign]
        named = leaving | {"Stockade-Session": opened.json["session"]}
        refused = await house.node.call("POST", GRANTS, WAITING, named)
        assert (refused.status, refused.json["code"]) == (403, "PERMISSION_DENIED")
        assert not refused.json["no_side_effects"]
        assert (shared.grants, shared.tickets) == before

    run(test)


def test_an_acquire_whose_right_was_taken_while_it_waited_answers_no_grant_and_says_that_it_had_effects() -> None:
    async def test(house: House) -> None:
        session, _ = await wait_in_line(house)

        async def promoted(ticket: str, session: str, wait_ms: int, by: By = NO_PRINCIPAL) -> Ticket:
            house.may(RIGHTS)
            return granted(ticket)

        house.node.service.get_ticket = promoted  # type: ignore[method-assign]
        named = bearer(LEAVING.token) | {"Stockade-Session": session}
        refused = await house.node.call("POST", GRANTS, WAITING | {"wait_ms": 1000}, named)
        assert (refused.status, refused.json["code"]) == (403, "PERMISSION_DENIED")
        assert not refused.json["no_side_effects"]
        assert "acquire topic:orders" in refused.json["detail"]

    run(test)


def test_events_end_for_a_client_whose_token_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "EVERY_S", 0.01)

    async def test(house: House) -> None:
        async with house.begun("GET /v1/events") as request:
            await request.reader.readuntil(b"event: state")
            house.delete()
            assert b"UNAUTHENTICATED" in await request.reader.read()
            assert house.node.server.front.in_flight.requests.used == 0

    run(test)
