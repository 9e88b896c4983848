"""Quotas of principals over HTTP: what is counted, what never is, and what a refusal says."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from waiting import until

from stockade.cluster.access.principals import Access, Principal, PrincipalToken, new_token
from stockade.cluster.access.quotas import Quota, Spending
from stockade.http_api.request.call import Call
from stockade.http_api.request.peers import FORWARDED_BY
from stockade.partition.errors import LeaderNotAvailable, NotLeaderOrFollower

from ..conversation import JSON, Answer, Conversation, nodes
from ..fake_partition import FakePartition
from ..records.test_append import arrow_stream
from ..request.test_slow_clients import Connection, connect, hang_up
from ..samples import PARTS_FORM, parts_body
from ..test_server import exchange

ROOT, METERED = new_token(), new_token()
RECORDS = "/v1/topics/orders/partitions/0/records"
KEYED = "/v1/topics/orders/records"
TEXT = {"Content-Type": "text/plain"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def run(
    quota: Quota, test: Callable[[Conversation, Access], Awaitable[None]], all_nodes: list[Conversation] | None = None
) -> None:
    """A node with the topic ``orders``, and a principal ``metered`` whose clock stands still. ``all_nodes`` gets the
    node and a second one; None: there is none.
    """
    access = Access(
        (),
        [
            Principal("root", ["all"], [PrincipalToken(ROOT.hash)]),
            Principal("metered", ["all"], [PrincipalToken(METERED.hash)], quota=quota),
        ],
    )

    async def main() -> None:
        async with nodes(1 if all_nodes is None else 2, access) as found:
            node = found[0]
            if all_nodes is not None:
                all_nodes.extend(found)
            now_s = time.monotonic()
            access.caller(f"Bearer {METERED.token}", None).spending._now_s = lambda: now_s
            created = await node.call("POST", "/v1/topics", {"name": "orders"}, bearer(ROOT.token))
            assert created.status == 201
            await test(node, access)

    asyncio.run(main())


async def append(node: Conversation, body: bytes = b"x", token: str = METERED.token, path: str = RECORDS) -> Answer:
    return await node.call("POST", path, body, bearer(token) | TEXT)


def use_of(access: Access) -> Spending:
    return access.caller(f"Bearer {METERED.token}", None).spending


def held(access: Access) -> int:
    return use_of(access).held_requests


@pytest.mark.parametrize("path", [RECORDS, KEYED])
def test_requests_beyond_the_quota_are_429_with_the_time_to_come_again_and_others_go_on(path: str) -> None:
    async def test(node: Conversation, access: Access) -> None:
        statuses = [(await append(node, path=path)).status for _ in range(3)]
        assert statuses == [200, 200, 429]
        refused = await append(node, path=path)
        assert refused.json["code"] == "THROTTLING_QUOTA_EXCEEDED"
        assert "principal metered has used its quota of 2 requests/s of this node" in refused.json["detail"]
        assert int(refused.headers["Retry-After"]) >= 1
        assert [(await append(node, path=path, token=ROOT.token)).status for _ in range(5)] == [200] * 5
        assert held(access) == 0

    run(Quota(requests_per_s=2), test)


def test_bytes_that_were_sent_and_records_that_were_read_are_counted() -> None:
    async def test(node: Conversation, access: Access) -> None:
        assert (await append(node, b"y" * 3000, ROOT.token)).status == 200
        assert (await append(node, b"x" * 3000)).status == 200
        refused = await append(node)
        assert (refused.status, "quota of 1000 bytes/s" in refused.json["detail"]) == (429, True)
        assert 1000 <= refused.json["retry_after_ms"] <= 2100

    run(Quota(bytes_per_s=1000), test)

    async def read(node: Conversation, access: Access) -> None:
        assert (await append(node, b"y" * 3000, ROOT.token)).status == 200
        assert (await node.call("GET", RECORDS, None, bearer(METERED.token))).status == 200
        assert (await node.call("GET", RECORDS, None, bearer(METERED.token))).status == 429

    run(Quota(bytes_per_s=1000), read)


@pytest.mark.parametrize("path", [RECORDS, RECORDS.removesuffix("records") + "tail"])
@pytest.mark.parametrize("of", [0, 1], ids=["the leader", "a node that passes it on"])
def test_records_that_are_read_are_counted_once_at_whatever_node(path: str, of: int) -> None:
    async def test(node: Conversation, access: Access) -> None:
        reader = others[of]
        assert (await append(node, b"y" * 3000, ROOT.token)).status == 200
        # The nodes of these tests speak over plain connections, which prove no node.
        of_node = property(lambda call: "n2" if FORWARDED_BY in call.request.headers else None)
        monkeypatch.setattr(Call, "peer_node", of_node)
        counted: list[int] = []
        monkeypatch.setattr(Spending, "spend_bytes", lambda _, count: counted.append(count))
        assert (await reader.call("GET", path, None, bearer(METERED.token))).status == 200
        assert [count > 3000 for count in counted] == [True]

    others: list[Conversation] = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        run(Quota(bytes_per_s=1000), test, others)


def test_renewals_and_releases_are_allowed_beyond_the_quota() -> None:
    async def test(node: Conversation, access: Access) -> None:
        mine = bearer(METERED.token)
        session = (await node.call("POST", "/v1/sessions", {"client_id": "c"}, mine)).json["session"]
        assert (await node.call("POST", "/v1/sessions", {"client_id": "c"}, mine)).status == 429
        named = mine | {"Stockade-Session": session}
        for _ in range(5):
            assert (await node.call("PUT", f"/v1/sessions/{session}", None, mine)).status == 200
            assert (await node.call("PUT", "/v1/session", None, named)).status == 200
        assert (await node.call("DELETE", "/v1/session", None, named)).status == 204
        assert (await node.call("DELETE", f"/v1/sessions/{session}", None, mine)).status == 204
        assert held(access) == 0

    run(Quota(requests_per_s=1), test)


def test_a_stranger_uses_up_nothing_of_a_principals_quota() -> None:
    async def test(node: Conversation, access: Access) -> None:
        for _ in range(5):
            assert (await append(node, token=METERED.token[:-1] + "?")).status == 401
        assert (await append(node)).status == 200

    run(Quota(requests_per_s=1), test)


def test_requests_in_flight_leave_room_for_others() -> None:
    async def test(node: Conversation, access: Access) -> None:
        node.server.front.in_flight.requests.limit = 8
        waits = f"{RECORDS}?offset=latest&min_bytes=1&max_wait_ms=60000"
        waiting = [
            asyncio.ensure_future(node.call("GET", waits, None, bearer(METERED.token), valid=False)) for _ in range(8)
        ]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 4:
            done, _ = await asyncio.wait(waiting, timeout=0.05)
        assert {each.result().status for each in done} == {429}
        assert held(access) == 4
        assert (await append(node, token=ROOT.token)).status == 200, "which ends the waits"
        assert sorted([(await each).status for each in waiting]) == [200] * 4 + [429] * 4
        assert held(access) == 0

    run(Quota(), test)


async def begin_body(node: Conversation, token: str, arrived: int) -> Connection:
    """A connection with an append of which so many bytes have come, and the last one has not."""
    head = f"POST {RECORDS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: text/plain\r\n"
    return await connect(node, f"{head}Content-Length: {arrived + 1}\r\n\r\n".encode() + bytes(arrived))


async def status(connection: Connection) -> bytes:
    return (await connection[0].readuntil(b"\r\n\r\n"))[:12]


def test_bodies_that_do_not_end_leave_room_for_those_of_others() -> None:
    """Seven bodies of 33 MB without their last byte held all of a node's 256 MiB, for 30 s, and then the next ones."""

    async def test(node: Conversation, access: Access) -> None:
        budget = node.server.front.in_flight.body_bytes
        budget.limit = 8_000
        slow = [await begin_body(node, METERED.token, 3_000)]
        await until(lambda: budget.used == 3_000)
        refused = await begin_body(node, METERED.token, 3_000)
        assert await status(refused) == b"HTTP/1.1 429"
        whole = await append(node, b"x" * 3_000)
        assert (whole.status, "3000 bytes of bodies in memory" in whole.json["detail"]) == (429, True)
        assert (await append(node, b"x" * 4_000, ROOT.token)).status == 200
        slow[0][1].write(b"x")
        assert await status(slow[0]) == b"HTTP/1.1 200"
        assert (await append(node, b"x" * 5_000)).status == 200
        assert (await append(node, b"x" * 5_000, path=f"{KEYED}?acks=0")).status == 202
        await until(lambda: budget.used == 0)
        assert use_of(access).held_body_bytes == 0
        await hang_up([*slow, refused])

    run(Quota(), test)


def test_bodies_on_their_way_leave_room_for_those_of_others() -> None:
    async def test(node: Conversation, access: Access) -> None:
        budget = node.server.front.in_flight.arriving
        budget.limit = 4
        slow = [await begin_body(node, METERED.token, 10) for _ in range(2)]
        await until(lambda: budget.used == 2)
        refused = await begin_body(node, METERED.token, 10)
        assert await status(refused) == b"HTTP/1.1 429"
        slow.append(await begin_body(node, ROOT.token, 10))
        await until(lambda: budget.used == 3)
        await hang_up([*slow, refused])
        await until(lambda: budget.used == 0)
        assert use_of(access).held_arriving == 0

    run(Quota(), test)


def test_answers_that_are_not_taken_leave_room_for_those_of_others() -> None:
    async def test(node: Conversation, access: Access) -> None:
        assert (await append(node, b"x" * 3_000, ROOT.token)).status == 200
        budget = node.server.front.in_flight.answer_bytes
        budget.limit = 12_000
        node.server.front.in_flight.take(answer_bytes=5_000)
        use_of(access).held_answer_bytes += 5_000  # of answers that its clients do not read
        refused = await node.call("GET", RECORDS, None, bearer(METERED.token))
        assert (refused.status, "5000 bytes of answers in memory" in refused.json["detail"]) == (429, True)
        assert (await node.call("GET", RECORDS, None, bearer(ROOT.token))).status == 200
        node.server.front.in_flight.give_back(answer_bytes=5_000)
        use_of(access).held_answer_bytes -= 5_000
        assert (await node.call("GET", RECORDS, None, bearer(METERED.token))).status == 200
        assert (use_of(access).held_answer_bytes, budget.used) == (0, 0)

    run(Quota(), test)


def test_an_answer_of_as_many_records_as_there_is_room_for_is_not_refused_once_it_is_rendered() -> None:
    """It was counted a second time, and found no room for what did not fit before either."""

    async def test(node: Conversation, access: Access) -> None:
        arrow = bearer(ROOT.token) | {"Content-Type": "application/vnd.apache.arrow.stream"}
        for _ in range(10):
            body = arrow_stream([b"\xff" * 60_000])  # a third longer as text
            assert (await node.call("POST", RECORDS, body, arrow)).status == 200
        in_flight = node.server.front.in_flight
        in_flight.answer_bytes.limit = 900_000
        in_flight.take(answer_bytes=100_000)
        use_of(access).held_answer_bytes += 100_000  # of answers that its clients do not read
        answer = await node.call("GET", RECORDS, None, bearer(METERED.token))
        assert (answer.status, 0 < answer.json["next_offset"] < 10) == (200, True)
        in_flight.give_back(answer_bytes=100_000)
        use_of(access).held_answer_bytes -= 100_000
        assert (use_of(access).held_answer_bytes, in_flight.answer_bytes.used) == (0, 0)

    run(Quota(), test)


@pytest.mark.parametrize("path", [RECORDS, KEYED])
@pytest.mark.parametrize("is_forwarded", [False, True])
def test_appends_without_acknowledgement_leave_room_for_those_of_others(path: str, is_forwarded: bool) -> None:
    """A thousand of one principal kept those of all others out, also where another node had forwarded them."""
    found: list[Conversation] = []

    async def test(node: Conversation, access: Access) -> None:
        asked, store = found[int(is_forwarded)], node.service.shared.may_store
        for each in found:
            each.server.front.unacked.budget.limit = 4
        store.clear()
        answers = [await append(asked, path=f"{path}?acks=0") for _ in range(4)]
        assert [answer.status for answer in answers] == [202, 202, 202, 429]
        assert "principal metered has 3 unacknowledged appends" in answers[3].json["detail"]
        assert (await append(asked, token=ROOT.token, path=f"{path}?acks=0")).status == 202
        store.set()
        await until(lambda: use_of(access).held_unacked == 0)
        assert (await append(asked, path=f"{path}?acks=0")).status == 202

    run(Quota(), test, found)


def to_partitions(count: int) -> bytes:
    """A body for the topic ``many``, of which each partition gets an append."""
    return parts_body(*(({"topic": "many", "partition": part}, arrow_stream([b"x"])) for part in range(count)))


def to_keys(count: int) -> bytes:
    """Records with so many keys."""
    return json.dumps({"records": [{"key": f"k{key}", "value": "x"} for key in range(count)]}).encode()


@pytest.mark.parametrize(
    ("path", "body", "form"),
    [("/v1/append", to_partitions(5), PARTS_FORM), ("/v1/topics/many/records", to_keys(100), JSON)],
    ids=["parts", "keys"],
)
def test_each_append_of_a_request_with_many_is_counted(path: str, body: bytes, form: dict[str, str]) -> None:
    """A request with 256 parts, or keys of a thousand partitions, is no way round a quota of one request a second."""

    async def test(node: Conversation, access: Access) -> None:
        made = await node.call("POST", "/v1/topics", {"name": "many", "partitions": 5}, bearer(ROOT.token))
        assert made.status == 201
        answer = await node.call("POST", path, body, bearer(METERED.token) | form)
        assert answer.status == 200
        refused = await append(node)
        assert (refused.status, refused.headers["Retry-After"]) == (429, "3"), (
            "as many seconds as three appends beyond it take"
        )
        assert held(access) == 0

    run(Quota(requests_per_s=2), test)


@pytest.mark.parametrize("partitions", [32, 33])
def test_an_append_by_key_holds_places_for_the_parts_that_are_under_way_at_a_time(partitions: int) -> None:
    """One to ten thousand partitions would never get through otherwise."""
    seen: list[int] = []

    async def test(node: Conversation, access: Access) -> None:
        topic = {"name": "many", "partitions": partitions}
        assert (await node.call("POST", "/v1/topics", topic, bearer(ROOT.token))).status == 201
        spending = use_of(access)
        spend = spending.spend_requests

        def tell(_: Spending, count: int) -> None:
            seen.extend((count, spending.held_requests, node.server.front.in_flight.requests.used))
            spend(count)

        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(Spending, "spend_requests", tell)
            path, sent = "/v1/topics/many/records", to_keys(1000)
            assert (await node.call("POST", path, sent, bearer(METERED.token) | JSON)).status == 200
        assert held(access) == node.server.front.in_flight.requests.used == 0

    run(Quota(), test)
    assert seen == [partitions - 1, 32, 32]


def test_a_principal_with_many_appends_a_request_takes_no_more_than_its_share() -> None:
    """The others would have 16 of 10,000 places otherwise: 39 requests of 256 parts count as 39."""

    async def test(node: Conversation, access: Access) -> None:
        made = await node.call("POST", "/v1/topics", {"name": "many", "partitions": 5}, bearer(ROOT.token))
        assert made.status == 201
        node.server.front.in_flight.requests.limit = 12
        sent = to_partitions(5)
        assert (await node.call("POST", "/v1/append", sent, bearer(METERED.token) | PARTS_FORM)).status == 200
        spending = use_of(access)
        spending.held_requests += 3  # so many of its requests are on their way
        node.server.front.in_flight.take(requests=3)
        refused = await node.call("POST", "/v1/append", sent, bearer(METERED.token) | PARTS_FORM)
        assert (refused.status, "which are for others" in refused.json["detail"]) == (429, True)
        node.server.front.in_flight.give_back(requests=3)
        assert held(access) == 3

    run(Quota(), test)


def later(settle: Callable[[Any], None], verdict: Any) -> bool:
    asyncio.get_running_loop().call_soon(settle, verdict)
    return True


LEFT: dict[str, Callable[[Callable[[Any], None]], bool]] = {
    "nothing was begun": lambda _: False,
    "the producer has to be enrolled": lambda settle: later(settle, None),
    "another node leads": lambda settle: later(settle, NotLeaderOrFollower(None, None)),
    "no node leads": lambda settle: later(settle, LeaderNotAvailable("no node leads")),
}


@pytest.mark.parametrize("leave", LEFT.values(), ids=LEFT)
@pytest.mark.parametrize(
    "quota", [Quota(requests_per_s=2), Quota(bytes_per_s=1000), Quota(requests_per_s=1000, bytes_per_s=1000)]
)
def test_an_append_that_the_fast_path_leaves_to_the_long_way_is_counted_once(
    monkeypatch: pytest.MonkeyPatch, leave: Callable[[Callable[[Any], None]], bool], quota: Quota
) -> None:
    left: list[object] = []

    def submit(self: FakePartition, batch: Any, conditions: Any, settle: Callable[[Any], None]) -> bool:
        left.append(batch)
        return leave(settle)

    head = (
        f"POST {RECORDS} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nAuthorization: Bearer {METERED.token}\r\n"
    )
    whole = f"{head}Content-Length: 600\r\n\r\n{'x' * 600}".encode()

    async def test(node: Conversation, access: Access) -> None:
        monkeypatch.setattr(FakePartition, "submit", submit)
        assert [(await exchange(node, whole)).status for _ in range(3)] == [200, 200, 429]
        assert len(left) == 2, "the fast path had begun both"
        assert held(access) == 0

    run(quota, test)


@pytest.mark.parametrize("is_plain", [True, False])
def test_an_append_for_which_the_others_need_the_room_is_not_counted(is_plain: bool) -> None:
    """It may come again as soon as there is room."""
    more = "" if is_plain else "X: y\r\n"
    head = (
        f"POST {RECORDS} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nAuthorization: Bearer {METERED.token}\r\n"
    )
    whole = f"{head}{more}Content-Length: 1\r\n\r\nx".encode()

    async def test(node: Conversation, access: Access) -> None:
        in_flight = node.server.front.in_flight
        limit, in_flight.requests.limit = in_flight.requests.limit, 4
        spending = use_of(access)
        spending.held_requests += 3  # so many of its requests are on their way
        in_flight.take(requests=3)
        for _ in range(5):
            refused = await exchange(node, whole)
            assert (refused.status, "which are for others" in refused.json["detail"]) == (429, True)
        spending.held_requests -= 3
        in_flight.give_back(requests=3)
        in_flight.requests.limit = limit
        assert [(await exchange(node, whole)).status for _ in range(2)] == [200, 429]

    run(Quota(requests_per_s=1), test)
