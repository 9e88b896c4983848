"""Appends on the short way: what was proposed once is never proposed again, and nothing stays taken."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.cluster.model import Conditions
from stockade.http_api.codec.parameters import Parameters
from stockade.http_api.fast_path import append as appending
from stockade.http_api.fast_path import connection
from stockade.http_api.records.append import CONDITION_HEADERS, conditions_of, read_conditions
from stockade.partition.commands import Appended
from stockade.partition.errors import (
    InternalError,
    InvalidRequest,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    ProducerFenced,
    RequestTimedOut,
    StockadeError,
)

from ..conversation import RECORDS, Conversation, nodes
from ..fake_partition import FakePartition
from ..test_server import exchange

WHOLE = b"POST " + RECORDS.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"


def request(body: bytes, *headers: bytes) -> bytes:
    return WHOLE + b"".join(line + b"\r\n" for line in headers) + b"Content-Length: %d\r\n\r\n" % len(body) + body


def run(test: Callable[[Conversation], Awaitable[None]]) -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic()
            await test(node)
            in_flight = node.server.front.in_flight
            assert (in_flight.requests.used, in_flight.body_bytes.used) == (0, 0)

    asyncio.run(main())


@pytest.fixture
def proposed(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Refusals that the next appends meet; what is left of them was not proposed."""
    refusals: list[BaseException] = []
    append = FakePartition.append

    async def refused(self: FakePartition, *batch: Any, **conditions: Any) -> Any:
        if refusals:
            raise refusals.pop(0)
        return await append(self, *batch, **conditions)

    monkeypatch.setattr(FakePartition, "append", refused)
    return refusals


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (RequestTimedOut(), 504, "REQUEST_TIMED_OUT"),
        (InternalError(), 500, "INTERNAL_ERROR"),
        (ZeroDivisionError(), 500, "INTERNAL_ERROR"),
        (ProducerFenced(current_epoch=2, reason="superseded"), 403, "PRODUCER_FENCED"),
    ],
)
def test_an_append_that_may_have_been_proposed_is_not_proposed_again(
    proposed: list[BaseException], refusal: BaseException, status: int, code: str
) -> None:
    async def test(node: Conversation) -> None:
        proposed.extend([refusal, ZeroDivisionError()])
        answer = await exchange(node, request(b"a"))
        assert (answer.status, answer.json["code"], len(proposed)) == (status, code, 1)
        assert answer.headers["Stockade-Leader"] == node.url
        proposed.clear()
        assert await node.values() == []
        counted = (await node.call("GET", "/v1/refused_writes")).json
        assert len(counted["refused_writes"]) == (code == "PRODUCER_FENCED")

    run(test)


@pytest.mark.parametrize("refusal", [NotLeaderOrFollower(None, None), LeaderNotAvailable("nobody leads")])
def test_an_append_that_was_surely_not_proposed_is_given_to_the_general_handler(
    proposed: list[BaseException], refusal: StockadeError
) -> None:
    async def test(node: Conversation) -> None:
        node.server.front.leader_wait_s = 60
        proposed.append(refusal)
        assert (await exchange(node, request(b"a"))).status == 200
        assert await node.values() == ["a"]

    run(test)


def test_an_append_of_an_unknown_producer_is_given_to_the_general_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that the partition does not know yet: nothing was stored, and it has to be enrolled first."""

    def submit(self: FakePartition, batch: Any, conditions: Any, settle: Callable[[None], None]) -> bool:
        settle(None)
        return True

    async def test(node: Conversation) -> None:
        monkeypatch.setattr(FakePartition, "submit", submit)
        assert (await exchange(node, request(b"a"))).status == 200
        assert await node.values() == ["a"]

    run(test)


@pytest.mark.parametrize("broken", ["answer", "submit"])
def test_a_bug_after_the_proposal_is_answered_and_nothing_is_proposed_again(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def bug(*_: Any) -> Any:
        raise ZeroDivisionError

    async def test(node: Conversation) -> None:
        if broken == "submit":
            monkeypatch.setattr(FakePartition, "submit", bug)
        else:
            monkeypatch.setattr(appending, "answer_to", bug)
        answer = await exchange(node, request(b"a"))
        assert (answer.status, answer.json["code"]) == (500, "INTERNAL_ERROR")
        assert await node.values() == ([] if broken == "submit" else ["a"])

    run(test)


def test_a_bug_in_sending_the_answer_ends_the_connection_and_gives_the_room_back_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def submit(self: FakePartition, batch: Any, conditions: Any, settle: Callable[[Any], None]) -> bool:
        settle(Appended(0, 0, False, 0, 1))
        return True

    def bug(*_: Any) -> Any:
        raise ZeroDivisionError

    async def test(node: Conversation) -> None:
        monkeypatch.setattr(FakePartition, "submit", submit)
        monkeypatch.setattr(connection, "serialized", bug)
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(request(b"a"))
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()

    run(test)


@pytest.mark.parametrize("budget", ["requests", "body_bytes"])
def test_a_full_node_refuses_and_takes_nothing(budget: str) -> None:
    async def test(node: Conversation) -> None:
        full = getattr(node.server.front.in_flight, budget)
        full.limit = 0
        answer = await exchange(node, request(b"a"))
        assert (answer.status, answer.json["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        full.limit = 1 << 20

    run(test)


def test_only_plain_appends_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    short: list[bytes] = []
    propose = appending.FastAppend.propose

    def noted(append: appending.FastAppend) -> bool:
        short.append(append._batch.message)
        return propose(append)

    monkeypatch.setattr(appending.FastAppend, "propose", noted)

    async def test(node: Conversation) -> None:
        for header in (b"X: y", b"Stockade-Forwarded-By: client", b"Accept: application/*"):
            assert (await exchange(node, request(b"a", header))).status == 200
        assert short == []
        for header in (b"Stockade-If-Log-End: 3", b"Accept: application/json", b"User-Agent: me"):
            assert (await exchange(node, request(b"a", header))).status == 200
        assert len(short) == 3

    run(test)


@pytest.mark.parametrize(
    "header",
    [b"Stockade-Producer-Seq: 0", b"Stockade-Fence-Epoch: 1", b"Stockade-If-Log-End: x", b"stockade-session: a"],
)
def test_wrong_guards_get_the_same_refusal_on_both_paths(header: bytes) -> None:
    async def test(node: Conversation) -> None:
        short = await exchange(node, request(b"a", header))
        long = await exchange(node, request(b"a", header, b"X: y"))
        assert (short.status, long.status) == (400, 400)
        assert short.json["reason"] == long.json["reason"]

    run(test)


def test_a_bug_before_the_proposal_is_logged_and_counted_and_the_general_handler_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def bug(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("in the fast path")

    async def test(node: Conversation) -> None:
        monkeypatch.setattr(appending, "read_batch", bug)
        assert (await exchange(node, request(b"a"))).status == 200
        assert await node.values() == ["a"]
        assert node.server.metrics.fast_path_bugs == 1
        assert b"stockade_http_fast_path_bugs_total 1.0" in (await node.call("GET", "/metrics", valid=False)).body

    run(test)
    (record,) = [record for record in caplog.records if "the fast path of" in record.message]
    assert record.levelname == "ERROR"
    assert RECORDS.replace("orders", "{topic}").replace("/0/", "/{partition}/") in record.message
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "in the fast path"


@pytest.mark.parametrize("header", [b"Stockade-Producer-Seq: 0", b"Stockade-If-Log-End: x", b"Content-Encoding: gzip"])
def test_a_refused_request_is_no_bug_of_the_fast_path(header: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def test(node: Conversation) -> None:
        assert (await exchange(node, request(b"a", header))).status in (400, 415)
        assert node.server.metrics.fast_path_bugs == 0

    run(test)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


VALUES = st.sampled_from(["0", "1", "007", "-1", "x", "", str(1 << 31), str(1 << 15), str(1 << 63), "g-1-1"])


@given(st.dictionaries(st.sampled_from([name.lower() for name in CONDITION_HEADERS]), VALUES))
def test_guards_are_read_alike_on_both_paths(headers: dict[str, str]) -> None:
    def read(conditions: Callable[[], Conditions]) -> Conditions | str:
        try:
            return conditions()
        except InvalidRequest as refusal:
            return str(refusal)

    given = Parameters({}, (), headers.items(), ())
    assert read(lambda: conditions_of(headers)) == read(lambda: read_conditions(given, ""))


def test_guards_of_a_fenced_idempotent_writer_are_read_alike_on_both_paths() -> None:
    headers = dict(zip(map(str.lower, CONDITION_HEADERS), ["5", "1", "9", "3", "m", "g-1-1", "7", "s"], strict=True))
    for rare in ([], ["stockade-if-log-end"], ["stockade-if-log-end", "stockade-message-id"]):
        some = {name: value for name, value in headers.items() if name not in rare}
        assert conditions_of(some) == read_conditions(Parameters({}, (), some.items(), ()), "")
