"""Appends to many partitions in one request: each part is judged and answered by itself, and the request as a whole
before anything is proposed.
"""

import asyncio
import json
from typing import Any

import pytest
from waiting import until

from stockade.cluster.front import front
from stockade.http_api.reading.reader import BodyReader
from stockade.http_api.records import parts as limits
from stockade.partition.api.records import PARTS_MAX
from stockade.partition.errors import NotLeaderOrFollower
from stockade.partition.records.batch import STREAM_END, Batch

from ..conversation import Answer, Conversation, _validator, nodes, run
from ..fake_partition import FakePartition
from ..samples import PARTS_FORM, parts_body
from .test_append import arrow_stream

PATH = "/v1/append"
ONE = arrow_stream([b"a"])
SCHEMA = json.dumps({"$ref": "#/components/schemas/PartAnswer"})


async def append(node: Conversation, *parts: tuple[dict[str, Any], bytes], **body: Any) -> Answer:
    return await node.call("POST", PATH, parts_body(*parts, **body), PARTS_FORM)


def lines(answer: Answer) -> dict[int, Any]:
    """By part: what was stored, or the problem."""
    found = [json.loads(line) for line in answer.body.splitlines()]
    for line in found:
        _validator(SCHEMA).validate(line)
    by_part = {line["part"]: line.get("stored") or line["problem"] for line in found}
    assert len(by_part) == len(found)
    return by_part


def codes(answer: Answer) -> list[str]:
    """In the order of the request: the code of each part, or "" for what was stored."""
    assert answer.status == 200, answer
    found = lines(answer)
    return [found[part].get("code", "") for part in range(len(found))]


def test_each_part_is_answered_as_at_the_route_of_its_partition() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("many", 3)
        values = [arrow_stream([b"%d" % part] * (part + 1)) for part in range(3)]
        batches = [({"topic": "many", "partition": part}, value) for part, value in enumerate(values)]
        answer = await append(node, *batches, ({"topic": "orders"}, ONE))
        assert codes(answer) == [""] * 4
        alone = (await node.call("POST", "/v1/topics/orders/partitions/0/records", {"records": [{"value": "b"}]})).json
        stored = lines(answer)[3]
        assert stored == alone | {name: stored[name] for name in ("base_offset", "last_offset", "timestamp_ms")}
        for part in range(3):
            path = f"/v1/topics/many/partitions/{part}/records"
            assert lines(answer)[part]["last_offset"] == part
            assert await node.values(path) == [str(part)] * (part + 1)

    run(test)


def test_a_part_that_is_refused_leaves_the_others_alone() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("many", 12)
        await node.topic("fenced", require_fence=True)
        pid = (await node.call("POST", "/v1/producers", {})).json["producer_id"]
        stamp = {"id": pid, "epoch": 0, "seq": 0}
        given: list[tuple[dict[str, Any], bytes, str]] = [
            ({"partition": 0}, ONE, ""),
            ({"partition": 1}, ONE[:-9], "CORRUPT_MESSAGE"),
            ({"partition": 2}, ONE.removesuffix(STREAM_END), "CORRUPT_MESSAGE"),
            ({"partition": 3}, arrow_stream([]), "INVALID_RECORD"),
            ({"partition": 4}, arrow_stream([bytes(1 << 20)]), "MESSAGE_TOO_LARGE"),
            ({"partition": 5, "topic_id": 999}, ONE, "INCONSISTENT_TOPIC_ID"),
            ({"partition": 6, "if_log_end": 9}, ONE, "OFFSET_MISMATCH"),
            ({"partition": 7, "producer": stamp | {"seq": 7}}, ONE, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
            ({"partition": 8, "fence": {"grant": "x", "epoch": 9, "session": "s"}}, ONE, "INVALID_FENCING_TOKEN"),
            ({"partition": 9, "message_id": "m"}, ONE, "INVALID_REQUEST"),
            ({"partition": 10, "producer": stamp}, ONE, ""),
            ({"partition": 11, "fence_epoch": 1}, ONE, "NOT_OWNER"),
            ({"partition": 99}, ONE, "UNKNOWN_TOPIC_OR_PARTITION"),
            ({"topic": "nowhere"}, ONE, "UNKNOWN_TOPIC_OR_PARTITION"),
            ({"topic": "fenced"}, ONE, "FENCING_TOKEN_REQUIRED"),
        ]
        sent = [({"topic": "many"} | entry, stream) for entry, stream, _ in given]
        answer = await append(node, *sent)
        wanted = [code for *_, code in given]
        found = codes(answer)
        wanted[8], wanted[11] = found[8], found[11]  # the machine's: what matters is that it was asked
        assert found == wanted
        assert found[8] and lines(answer)[1]["no_side_effects"]
        assert codes(await append(node, ({"topic": "many", "partition": 10, "producer": stamp}, ONE))) == [""]
        assert len(await node.values("/v1/topics/many/partitions/10/records")) == 1, "a numbered part is stored once"
        refused = (await node.call("GET", "/v1/refused_writes")).json["refused_writes"]
        assert {row["partition"] for row in refused} >= {6, 7}, "a refused part is counted as any write"

    run(test)


def test_a_part_for_another_leader_names_it_and_is_not_forwarded() -> None:
    async def main() -> None:
        async with nodes(2) as (first, second):
            await first.topic("orders", 2)
            first.service.shared.topics["orders"].leaders[1] = "n2"
            answer = await append(first, ({"partition": 0}, ONE), ({"partition": 1}, ONE))
            assert codes(answer) == ["", "NOT_LEADER_OR_FOLLOWER"]
            problem = lines(answer)[1]
            assert problem["leader"] == second.url
            assert problem["retriable"] and problem["no_side_effects"]
            assert await second.values("/v1/topics/orders/partitions/1/records") == []
            assert codes(await append(second, ({"partition": 1}, ONE))) == [""]
            first.service.shared.topics["orders"].leaders[1] = None
            (leaderless,) = lines(await append(first, ({"partition": 1}, ONE))).values()
            assert (leaderless["code"], leaderless["leader"]) == ("NOT_LEADER_OR_FOLLOWER", None)

    asyncio.run(main())


def test_a_part_with_a_newer_topic_id_than_this_node_knows_is_not_judged_by_the_former_topic() -> None:
    """Of a topic that was deleted and created again, and that a node had not heard of, it was refused for good."""

    async def main() -> None:
        async with nodes(2) as (node, other):
            topic_id = (await node.topic())["topic_id"]
            former = node.service.held("orders", 0)
            assert former is not None
            former.topic_id = topic_id - 1
            node.service.held = lambda *_: former  # type: ignore[method-assign]

            async def elsewhere(*_: object) -> FakePartition:
                raise NotLeaderOrFollower(other.url, 1)

            node.service.partition = elsewhere  # type: ignore[assignment, method-assign]
            answer = await append(node, ({"topic_id": topic_id, "message_id": "m"}, ONE))
            assert codes(answer) == ["NOT_LEADER_OR_FOLLOWER"]
            assert lines(answer)[0]["leader"] == other.url

    asyncio.run(main())


LONG = {"grant": "g" * 250, "epoch": 1, "session": "s" * 250}
TWICE: list[tuple[dict[str, Any], bytes]] = [({}, ONE), ({}, ONE)]
WRONG: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 400, "INVALID_REQUEST"),
    "no line end": (parts_body().partition(b"\n")[0], 400, "INVALID_REQUEST"),
    "no parts": (parts_body(), 400, "INVALID_REQUEST"),
    "another version": (parts_body(({}, ONE), version=2), 400, "INVALID_REQUEST"),
    "version as text": (parts_body(({}, ONE), version="1"), 400, "INVALID_REQUEST"),
    "bytes behind": (parts_body(({}, ONE), behind=b"x"), 400, "INVALID_REQUEST"),
    "a byte missing": (parts_body(({}, ONE))[:-1], 400, "INVALID_REQUEST"),
    "a partition twice": (parts_body(*TWICE), 400, "INVALID_REQUEST"),
    "no bytes": (parts_body(({}, b"")), 400, "INVALID_REQUEST"),
    "unknown field": (parts_body(({"acks": 0}, ONE)), 400, "INVALID_REQUEST"),
    "half a stamp": (parts_body(({"producer": {"id": 1, "epoch": 0}}, ONE)), 400, "INVALID_REQUEST"),
    "half a token": (parts_body(({"fence": {"grant": "g"}}, ONE)), 400, "INVALID_REQUEST"),
    "sequence too great": (
        parts_body(({"producer": {"id": 1, "epoch": 0, "seq": 1 << 31}}, ONE)),
        400,
        "INVALID_REQUEST",
    ),
    "a name twice": (b'{"version":1,"version":1,"parts":[]}\n', 400, "INVALID_REQUEST"),
    "a long message id": (parts_body(({"message_id": "m" * 129}, ONE)), 400, "INVALID_REQUEST"),
    "a long grant": (parts_body(({"fence": LONG | {"session": "s"}}, ONE)), 400, "INVALID_REQUEST"),
    "a long session": (parts_body(({"fence": LONG | {"grant": "g"}}, ONE)), 400, "INVALID_REQUEST"),
    "deep": (b'{"version":1,"parts":' + b"[" * 100 + b"]" * 100 + b"}\n", 400, "INVALID_REQUEST"),
    "not JSON": (b"\xff\xfe\n" + ONE, 400, "INVALID_REQUEST"),
}


@pytest.mark.parametrize(("body", "status", "code"), WRONG.values(), ids=WRONG)
def test_a_request_that_is_wrong_as_a_whole_stores_nothing(body: bytes, status: int, code: str) -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("POST", PATH, body, PARTS_FORM)
        assert (answer.status, answer.json["code"]) == (status, code)
        assert await node.values() == []

    run(test)


def test_a_request_has_256_parts_and_not_one_more() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("wide", PARTS_MAX + 1)
        given = [({"topic": "wide", "partition": part}, ONE) for part in range(PARTS_MAX + 1)]
        assert codes(await append(node, *given[:-1])) == [""] * PARTS_MAX
        answer = await append(node, *given)
        assert (answer.status, answer.json["code"]) == (413, "MESSAGE_TOO_LARGE")
        assert (answer.json["limit"], answer.json["unit"]) == (PARTS_MAX, "parts")
        assert await node.values(f"/v1/topics/wide/partitions/{PARTS_MAX}/records") == []

    run(test)


def test_the_list_of_parts_ends_within_its_bytes() -> None:
    def listed(size: int) -> bytes:
        line, rest = parts_body(({}, ONE)).split(b"\n", 1)
        return line + b" " * (size - len(line) - 1) + b"\n" + rest

    async def test(node: Conversation) -> None:
        for size, status in ((limits.LIST_BYTES_MAX, 200), (limits.LIST_BYTES_MAX + 1, 400)):
            assert (await node.call("POST", PATH, listed(size), PARTS_FORM)).status == status

    run(test)


def test_each_part_counts_as_a_request_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "REQUESTS_MAX", 3)

    async def test(node: Conversation) -> None:
        await node.topic("many", 4)
        given = [({"topic": "many", "partition": part}, ONE) for part in range(4)]
        assert codes(await append(node, *given[:3])) == [""] * 3
        answer = await append(node, *given)
        assert (answer.status, answer.json["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        in_flight = node.server.front.in_flight
        assert (in_flight.requests.used, in_flight.body_bytes.used) == (0, 0)
        assert await node.values("/v1/topics/many/partitions/3/records") == []

    run(test)


def test_a_bug_in_one_part_is_the_answer_of_that_part() -> None:
    async def test(node: Conversation) -> None:
        node.service.bug = ZeroDivisionError()
        answer = await append(node, ({}, ONE))
        assert codes(answer) == ["INTERNAL_ERROR"]
        assert not lines(answer)[0]["no_side_effects"]

    run(test)


def test_a_bug_behind_the_verdict_on_one_part_is_the_answer_of_that_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raft, whose callback it is, would log it, and the request would have no end."""

    async def test(node: Conversation) -> None:
        def bug(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(node.server.front.writes, "stored", bug)
        async with asyncio.timeout(30):
            assert codes(await append(node, ({}, ONE))) == ["INTERNAL_ERROR"]

    run(test)


def test_a_partition_that_is_slow_to_answer_holds_up_no_other_part(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(node: Conversation) -> None:
        await node.topic("many", 2)
        shared = node.service.shared
        made = node.service.held
        slow = asyncio.Event()

        def held(topic: str, partition: int) -> Any:
            found: Any = made(topic, partition)
            append = found.append

            async def late(*given: Any) -> Any:
                await slow.wait()
                return await append(*given)

            if partition == 0:
                found.append = late
            return found

        monkeypatch.setattr(node.service, "held", held)
        body = parts_body(*(({"topic": "many", "partition": part}, ONE) for part in range(2)))
        async with node.session.post(node.url + PATH, data=body, headers=PARTS_FORM) as response:
            first = json.loads(await response.content.readline())
            assert first["part"] == 1, "the second part is answered while the first is open"
            assert shared.topics["many"].machines[0].log_end == 0
            slow.set()
            assert json.loads(await response.content.readline())["part"] == 0
            assert await response.content.read() == b""

    run(test)


def test_a_part_that_unpacks_to_much_is_not_read_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    batch = BodyReader.batch

    async def noted(self: BodyReader, form: str, body: bytes, **given: Any) -> Batch:
        read.append(len(body))
        return await batch(self, form, body, **given)

    monkeypatch.setattr(BodyReader, "batch", noted)

    async def test(node: Conversation) -> None:
        await node.topic("wide", 2, max_batch_bytes=16 << 20)
        light, heavy = arrow_stream([b"a"]), arrow_stream([bytes(5 << 20)])
        parts = enumerate((light, heavy))
        answer = await append(node, *(({"topic": "wide", "partition": number}, stream) for number, stream in parts))
        assert codes(answer) == ["", ""]
        assert read == [len(heavy)]

    run(test)


def test_parts_whose_leader_is_not_known_are_read_one_by_one_with_a_turn_for_others_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They come here all at once, while an election runs in the same loop."""
    turns: list[int] = []
    batch = BodyReader.batch

    async def noted(self: BodyReader, form: str, body: bytes, **given: Any) -> Batch:
        turns.append(turn)
        return await batch(self, form, body, **given)

    monkeypatch.setattr(BodyReader, "batch", noted)
    turn = 0

    async def test(node: Conversation) -> None:
        async def count() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        await node.topic("many", 20)
        counting = asyncio.ensure_future(count())
        monkeypatch.setattr(node.service, "held", lambda topic, partition: None)
        answer = await append(node, *(({"topic": "many", "partition": number}, ONE) for number in range(20)))
        counting.cancel()
        assert codes(answer) == [""] * 20
        assert len(turns) == 20
        assert len(set(turns)) == 20, "two parts in one turn"

    run(test)


def test_parts_go_on_when_their_client_is_gone() -> None:
    async def test(node: Conversation) -> None:
        shared = node.service.shared
        shared.may_store.clear()
        sending = asyncio.ensure_future(append(node, ({}, ONE)))
        await shared.writer_came.wait()
        sending.cancel()
        await asyncio.wait([sending])
        shared.may_store.set()
        await until(lambda: not node.server.front.in_flight.requests.used)
        assert await node.values() == ["a"]

    run(test)


def test_the_answer_comes_as_lines_or_not_at_all() -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("POST", PATH, parts_body(({}, ONE)), PARTS_FORM | {"Accept": "application/json"})
        assert (answer.status, answer.json["code"]) == (406, "NOT_ACCEPTABLE")
        assert await node.values() == []

    run(test)
