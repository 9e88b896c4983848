"""The ledger over HTTP: pages, choices, the wait for more; that every other way into its topic is closed; and what acts
of partitions leave there.
"""

import asyncio
import hashlib
import json
from typing import Any

import pytest

from stockade.cluster.access.principals import Access, Principal, PrincipalToken, new_token
from stockade.cluster.controller.ledger import Ledger
from stockade.cluster.model import By, Conditions
from stockade.http_api.routes import routes
from stockade.partition.api.topics import TopicConfig
from stockade.partition.internal_names import LEDGER_TOPIC
from stockade.partition.records.batch import batch_from_columns

from ..conversation import TEXT, Conversation, nodes, run
from ..records.test_append import arrow_stream
from ..samples import PARTS_FORM, parts_body
from .test_grants import open_session

PATH = "/v1/ledger"
TOPIC = f"/v1/topics/{LEDGER_TOPIC}"


class Kept:
    """A ledger that grows in a fake cluster."""

    def __init__(self, node: Conversation) -> None:
        self.node = node
        self.ledger = Ledger()
        self.ledger.begin()

    async def begin(self) -> None:
        await self.node.service.create_topic(LEDGER_TOPIC, 1, None, TopicConfig())
        await self.copy()

    async def copy(self) -> list[bytes]:
        first, entries = self.ledger.oldest(10_000, 1 << 30)
        batch = batch_from_columns([None] * len(entries), entries, None, None, now_ms=1, batch_bytes_max=1 << 24)
        partition = self.node.service.held(LEDGER_TOPIC, 0)
        assert partition is not None
        await partition.append(batch, Conditions(if_log_end=first - 1))
        self.ledger.copied(self.ledger.next - 1)
        return entries

    def record(self, act: str, principal: str = "", topic: str | None = None, **more: Any) -> None:
        self.ledger.record(act, by=By(principal, request="r", client="::1"), topic=topic, **more)


async def kept(node: Conversation, acts: int = 5) -> Kept:
    found = Kept(node)
    for number in range(acts):
        found.record("topic.create", principal=f"p{number % 2}", topic=f"t{number}")
    await found.begin()
    return found


async def numbers(node: Conversation, query: str = "") -> tuple[list[int], int]:
    answer = (await node.call("GET", f"{PATH}?{query}")).json
    return [entry["number"] for entry in answer["entries"]], answer["next"]


def test_pages_follow_one_another_and_each_entry_comes_with_the_hash_of_its_bytes() -> None:
    async def test(node: Conversation) -> None:
        await kept(node)
        answer = (await node.call("GET", PATH)).json
        assert (answer["first"], answer["end"], answer["next"]) == (1, 7, 7)
        assert [entry["previous"] for entry in answer["entries"][1:]] == [e["hash"] for e in answer["entries"][:-1]]
        assert await numbers(node, "n=4") == ([1, 2, 3, 4], 5)
        assert await numbers(node, "n=4&from=5") == ([5, 6], 7)
        assert await numbers(node, "from=7") == ([], 7)
        assert await numbers(node, "from=99") == ([], 7), "there are no more"

    run(test)


def test_the_hash_is_that_of_the_bytes_that_the_topic_has() -> None:
    async def test(node: Conversation) -> None:
        found = Kept(node)
        found.record("principal.put", principal="é\u2028", name='"x"', after={"a": [1, {"b": None}]})
        await node.service.create_topic(LEDGER_TOPIC, 1, None, TopicConfig())
        stored = await found.copy()
        answer = (await node.call("GET", PATH)).json
        assert [entry["hash"] for entry in answer["entries"]] == [hashlib.sha256(each).hexdigest() for each in stored]
        records = (await node.call("GET", f"{TOPIC}/partitions/0/records")).json["records"]
        assert [each["value"].encode() for each in records] == stored

    run(test)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("topic=t3", [5]),
        ("principal=p0", [2, 4, 6]),
        ("act=ledger.begin", [1]),
        ("act=topic.create&principal=p1", [3, 5]),
        ("topic=none", []),
    ],
)
def test_ledger_entries_are_filtered_by_topic_principal_and_act(query: str, wanted: list[int]) -> None:
    async def test(node: Conversation) -> None:
        await kept(node)
        assert await numbers(node, query) == (wanted, 7)

    run(test)


def test_an_answer_looks_at_a_bounded_number_of_entries_and_has_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.http_api.handlers.ledger.SCANNED_MAX", 2)
    monkeypatch.setattr("stockade.http_api.handlers.ledger.READ_BYTES", 1)

    async def test(node: Conversation) -> None:
        found = Kept(node)
        await node.service.create_topic(LEDGER_TOPIC, 1, None, TopicConfig())
        for number in range(5):
            await found.copy()
            found.record("topic.create", topic=f"t{number}")
        await found.copy()
        assert await numbers(node, "topic=t4") == ([], 3)
        assert await numbers(node, "topic=t4&from=5") == ([6], 7)
        monkeypatch.setattr("stockade.http_api.handlers.ledger.ANSWER_BYTES_MAX", 1)
        assert await numbers(node) == ([1], 2), "one entry at least"

    run(test)


def test_a_ledger_page_begins_after_the_entries_that_retention_dropped() -> None:
    async def test(node: Conversation) -> None:
        await kept(node)
        partition = node.service.held(LEDGER_TOPIC, 0)
        assert partition is not None
        partition.machine.log.trim(3)
        assert await numbers(node) == ([4, 5, 6], 7)
        assert (await node.call("GET", PATH)).json["first"] == 4

    run(test)


def test_a_reader_waits_for_the_next_entry() -> None:
    async def test(node: Conversation) -> None:
        found = await kept(node)
        waiting = asyncio.ensure_future(numbers(node, "from=7&wait_ms=60000"))
        await node.service.shared.reader_came.wait()
        found.record("topic.delete", topic="t0")
        await found.copy()
        assert await waiting == ([7], 8)

    run(test)


def test_a_reader_waits_for_the_entry_that_it_asks_from() -> None:
    async def test(node: Conversation) -> None:
        found, came = await kept(node), node.service.shared.reader_came
        waiting = asyncio.ensure_future(numbers(node, "from=8&wait_ms=60000"))
        for number in (7, 8):
            again = asyncio.ensure_future(came.wait())
            await asyncio.wait([waiting, again], return_when=asyncio.FIRST_COMPLETED)
            assert not waiting.done(), f"answered before entry {number} was there"
            came.clear()
            found.record("topic.delete", topic="t0")
            await found.copy()
        assert await waiting == ([8], 9)

    run(test)


def test_an_administrator_whose_token_was_deleted_while_it_waited_gets_no_entry() -> None:
    token = new_token()
    access = Access([], [])
    access.replicate(1, [Principal("leaving", ["admin cluster"], [PrincipalToken(token.hash)])])

    async def main() -> None:
        async with nodes(1, access) as (node,):
            found = await kept(node)
            asked = node.call("GET", PATH + "?from=7&wait_ms=60000", headers=bearer(token.token))
            waiting = asyncio.ensure_future(asked)
            await node.service.shared.reader_came.wait()
            access.replicate(2, [Principal("other", ["admin cluster"], [PrincipalToken(new_token().hash)])])
            found.record("principal.delete", name="leaving")
            await found.copy()
            answer = await waiting
            assert (answer.status, answer.json["code"]) == (401, "UNAUTHENTICATED")

    asyncio.run(main())


def test_a_cluster_without_a_ledger_says_so() -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("GET", PATH)
        assert (answer.status, answer.json["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")

    run(test)


CLOSED = [
    ("POST", "/v1/topics", {"name": LEDGER_TOPIC, "partitions": 1}),
    ("PATCH", TOPIC, {"config": {"retention_ms": 1}}),
    ("DELETE", TOPIC, None),
    ("POST", f"{TOPIC}/partitions/0/records", b"x\n"),
    ("POST", f"{TOPIC}/records", b"x\n"),
    ("POST", f"{TOPIC}/partitions/0/trim", {"before": -1}),
    ("POST", f"{TOPIC}/partitions/0/begin", {"offset": 7}),
    ("PUT", f"{TOPIC}/partitions/0/stages/s", b"x\n"),
    ("PATCH", f"{TOPIC}/partitions/0/stages", {"keep": [], "delete": [], "producer_id": 1, "producer_epoch": 0}),
    ("POST", f"{TOPIC}/partitions/0/stages/s/append", None),
    ("POST", f"{TOPIC}/fence", {"partitions": "all"}),
    ("POST", f"{TOPIC}/grants", {"partitions": "all", "mode": "Exclusive", "producer_name": "p"}),
]


@pytest.mark.parametrize(("method", "path", "body"), CLOSED, ids=[f"{m} {p}" for m, p, _ in CLOSED])
def test_no_request_changes_the_ledgers_topic_whatever_its_rights(method: str, path: str, body: Any) -> None:
    async def test(node: Conversation) -> None:
        await kept(node)
        session = {"Stockade-Session": await open_session(node, "a")}
        headers = session | (TEXT if isinstance(body, bytes) else {})
        answer = await node.call(method, path, body, headers)
        assert (answer.status, answer.json["code"]) == (403, "PERMISSION_DENIED")
        assert "keeps the ledger" in answer.json["detail"]
        assert await numbers(node) == ([1, 2, 3, 4, 5, 6], 7)

    run(test)


def test_a_topic_that_had_the_ledgers_name_before_is_deleted_by_administrators_of_the_cluster() -> None:
    """It keeps the feature level from being raised, and the refusal says to delete it: upgraded nodes refused that."""
    names = {"root": ["all"], "operators": ["admin cluster", "admin topic:x"], "owner": [f"admin topic:{LEDGER_TOPIC}"]}
    tokens = {name: new_token() for name in names}
    principals = [Principal(name, rights, [PrincipalToken(tokens[name].hash)]) for name, rights in names.items()]

    async def main() -> None:
        async with nodes(1, Access((), principals)) as (node,):
            bearer = {name: {"Authorization": f"Bearer {made.token}"} for name, made in tokens.items()}
            for name in ("root", "operators"):
                await kept(node)
                node.service.ledger.level = 1
                refused = await node.call("DELETE", TOPIC, None, bearer["owner"])
                assert (refused.status, "the right: admin cluster" in refused.json["detail"]) == (403, True)
                assert (await node.call("DELETE", TOPIC, None, bearer[name])).status == 204
                node.service.ledger.level = 2
                refused = await node.call("DELETE", TOPIC, None, bearer[name])
                assert (refused.status, "keeps the ledger" in refused.json["detail"]) == (403, True)

    asyncio.run(main())


def test_before_its_feature_level_the_ledger_is_said_to_need_that_and_no_topic_passes_for_it() -> None:
    """A topic of that name was read as the ledger: 500, entry 1 cannot be read; or there is no such topic, for 404."""

    async def test(node: Conversation) -> None:
        node.service.ledger.level = 1
        for _ in range(2):
            answer = await node.call("GET", PATH)
            assert (answer.status, answer.json["code"]) == (409, "FEATURE_LEVEL_TOO_LOW")
            assert (answer.json["feature_level"], answer.json["needed"]) == (1, 2)
            await node.service.create_topic(LEDGER_TOPIC, 1, None, TopicConfig())

    run(test)


def test_every_route_that_could_change_it_is_tried() -> None:
    written = {
        (route.method, route.path.format(topic=LEDGER_TOPIC, partition=0, stage="s", group="g"))
        for route in routes()
        if route.method != "GET" and "{topic}" in route.path
    }
    of_readers = f"/v1/groups/g/positions/{LEDGER_TOPIC}/0"  # where a reader is: no record, and no bound of it
    reads = {*((method, of_readers) for method in ("PUT", "DELETE")), ("POST", f"/v1/topics/{LEDGER_TOPIC}/news")}
    assert written - reads == {(method, path) for method, path, _ in CLOSED} - {("POST", "/v1/topics")}


def test_a_part_of_a_request_that_appends_to_many_topics_is_refused_there_too() -> None:
    async def test(node: Conversation) -> None:
        await kept(node)
        parts = parts_body(({"topic": LEDGER_TOPIC, "partition": 0}, arrow_stream([b"a"])))
        answer = await node.call("POST", "/v1/append", parts, PARTS_FORM)
        assert json.loads(answer.body)["problem"]["code"] == "PERMISSION_DENIED"
        assert await numbers(node) == ([1, 2, 3, 4, 5, 6], 7)

    run(test)


def test_the_ledger_needs_admin_cluster_and_no_right_on_topics_is_enough() -> None:
    made = {"root": new_token(), "reader": new_token(), "sees": new_token()}
    rights = {"root": ["admin cluster"], "reader": ["read topic:*", "admin topic:*"], "sees": ["read cluster"]}
    access = Access([], [Principal(name, rights[name], [PrincipalToken(made[name].hash)]) for name in made])
    paths = (PATH, TOPIC, f"{TOPIC}/partitions", f"{TOPIC}/partitions/0/records", f"{TOPIC}/partitions/0/tail")

    async def main() -> None:
        async with nodes(1, access) as (node,):
            await kept(node)
            for name, token in made.items():
                for path in paths:
                    answer = await node.call("GET", path, headers={"Authorization": f"Bearer {token.token}"})
                    assert answer.status == (200 if name == "root" else 403), (name, path, answer.body)
                    assert answer.status == 200 or "admin cluster" in answer.json["detail"]
            listed = await node.call("GET", "/v1/topics?internal=true", headers=bearer(made["reader"].token))
            assert LEDGER_TOPIC not in [each["name"] for each in listed.json["topics"]]

    asyncio.run(main())


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_trim_is_in_the_ledger_before_and_after_it_is_done() -> None:
    async def test(node: Conversation) -> None:
        acts = node.service.shared.acts
        await node.call("POST", "/v1/topics/orders/partitions/0/records", b"x\n", TEXT)
        await node.call("POST", "/v1/topics/orders/partitions/0/trim", {"before": 1})
        trimmed = {"log_start": 1, "log_end": 1}
        assert acts == [("records.trim", "orders", 0, {"before": 1}, "", True, "done", trimmed)]
        await node.call("POST", "/v1/topics/orders/partitions/0/trim", {"before": 9})
        assert acts[1][-2:] == ("OFFSET_OUT_OF_RANGE", {})

    run(test)


def test_a_forwarded_trim_is_recorded_by_the_leader_alone() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic("orders")
            await two.call("POST", "/v1/topics/orders/partitions/0/trim", {"before": -1})
            assert len(one.service.shared.acts) == 1

    asyncio.run(main())
