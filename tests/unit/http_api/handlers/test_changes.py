"""Changing and trimming topics, names of batches, tickets, producers, and fences that explain themselves."""

import asyncio
from typing import Any

from ..conversation import RECORDS, TEXT, Conversation, nodes, run
from .test_grants import acquire, fence, open_session

TOPIC = "/v1/topics/orders"
TRIM = f"{TOPIC}/partitions/0/trim"
FENCES = f"{TOPIC}/partitions/0/fences"


def test_a_topic_grows_changes_and_is_sealed() -> None:
    async def test(node: Conversation) -> None:
        changed = await node.call("PATCH", TOPIC, {"partitions": 3, "config": {"retention_bytes": 5}})
        assert (changed.status, len(changed.json["partitions"])) == (200, 3)
        assert changed.json["config"]["retention_bytes"] == 5
        assert (await node.call("PATCH", TOPIC, {"partitions": 2})).status == 400
        wrong = await node.call("PATCH", f"{TOPIC}?topic_id=999", {"sealed": True})
        assert (wrong.status, wrong.json["code"]) == (409, "INCONSISTENT_TOPIC_ID")
        for _ in range(2):
            assert (await node.call("PATCH", TOPIC, {"sealed": True})).json["sealed"] is True
        refused = await node.call("POST", RECORDS, b"x\n", TEXT)
        assert (refused.status, refused.json["code"], refused.json["log_end"]) == (409, "TOPIC_SEALED", 0)

    run(test)


def test_a_change_is_passed_on_to_the_controller() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            answer = await two.call("PATCH", TOPIC, {"config": {"require_fence": True}})
            assert (answer.status, answer.json["config"]["require_fence"]) == (200, True)

    asyncio.run(main())


def test_trimming_drops_the_oldest_records() -> None:
    async def test(node: Conversation) -> None:
        await node.call("POST", RECORDS, b"a\n", TEXT)
        await node.call("POST", RECORDS, b"b\n", TEXT)
        beyond = await node.call("POST", TRIM, {"before": 3})
        assert (beyond.status, beyond.json["log_end"]) == (416, 2)
        for before, log_start in ((1, 1), (0, 1), (-1, 2), (2, 2)):
            answer = await node.call("POST", TRIM, {"before": before})
            assert answer.json == {"topic": "orders", "partition": 0, "log_start": log_start, "log_end": 2}
        gone = await node.call("GET", f"{RECORDS}?offset=0")
        assert (gone.status, gone.json["log_start"]) == (410, 2)
        session = await open_session(node)
        held = fence(session, (await acquire(node, session)).json)
        assert (await node.call("POST", TRIM, {"before": 0})).status == 423
        assert (await node.call("POST", TRIM, {"before": 0}, held)).status == 200

    run(test)


def test_a_batch_with_a_name_is_stored_once() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("named", dedupe_window_ms=60_000)
        records = "/v1/topics/named/partitions/0/records"
        name = TEXT | {"Stockade-Message-Id": "m-1"}
        first = await node.call("POST", records, b"a\n", name)
        again = await node.call("POST", records, b"a\n", name)
        assert (first.json["duplicate"], again.json["duplicate"]) == (False, True)
        assert again.json["base_offset"] == first.json["base_offset"] == 0
        conditional = await node.call("POST", records, b"a\n", name | {"Stockade-If-Log-End": "0"})
        assert (conditional.status, conditional.json["duplicate"]) == (200, True)
        assert (await node.call("POST", records, b"b\n", TEXT | {"Stockade-Message-Id": "m-2"})).json[
            "base_offset"
        ] == 1

    run(test)


def test_a_ticket_waits_and_can_be_cancelled() -> None:
    async def test(node: Conversation) -> None:
        alpha, beta = await open_session(node), await open_session(node, "beta")
        await acquire(node, alpha)
        waiting = await acquire(node, beta, mode="WaitForExclusive", wait_ms=20, ticket_ttl_ms=1000)
        assert (waiting.status, waiting.json["state"], waiting.json["position"]) == (202, "waiting", 0)
        path = waiting.headers["Location"]
        left = await node.call("DELETE", path, None, {"Stockade-Session": beta})
        assert left.json == {"ticket": waiting.json["ticket"], "state": "cancelled", "grant": None}
        again = await node.call("DELETE", path, None, {"Stockade-Session": beta})
        assert (again.status, again.json["state"]) == (200, "cancelled")

    run(test)


def test_a_producer_is_found_by_name_and_by_id() -> None:
    async def test(node: Conversation) -> None:
        pair = (await node.call("POST", "/v1/producers", {"name": "mirror one"})).json
        stamp = {"Stockade-Producer-Epoch": "0", "Stockade-Producer-Seq": "0"}
        stamp["Stockade-Producer-Id"] = str(pair["producer_id"])
        assert (await node.call("POST", RECORDS, b"a\n", TEXT | stamp)).status == 200
        by_name = await node.call("GET", "/v1/producers/mirror%20one")
        by_id = await node.call("GET", f"/v1/producers/{pair['producer_id']}")
        assert by_name.json == by_id.json
        assert (by_name.json["producer_epoch"], by_name.json["name"]) == (0, "mirror one")
        (known,) = by_name.json["partitions"]
        assert (known["topic"], known["partition"], known["last_seq"]) == ("orders", 0, 0)
        fenced = await node.call("POST", "/v1/cluster/producer_fences", {"name": "mirror one"})
        assert (fenced.status, fenced.json["producer_epoch"]) == (200, 1)

    run(test)


def test_the_problem_of_a_fenced_writer_names_the_holder_and_the_end_of_its_own_grant() -> None:
    async def test(node: Conversation) -> None:
        alpha, beta = await open_session(node), await open_session(node, "beta")
        old = (await acquire(node, alpha)).json
        new = (await acquire(node, beta, mode="ExclusiveWithFencing", producer_name="beta")).json
        refused = await node.call("POST", RECORDS, b"x\n", TEXT | fence(alpha, old))
        assert (refused.status, refused.json["code"]) == (403, "PRODUCER_FENCED")
        assert refused.json["holder"]["grant"] == new["grant"]
        assert refused.json["holder"]["producer_name"] == "beta"
        assert refused.json["ended"]["end"] == "superseded"

    run(test)


def test_the_history_of_a_slot_counts_the_zombies_writes() -> None:
    async def test(node: Conversation) -> None:
        alpha, beta = await open_session(node), await open_session(node, "beta")
        old = (await acquire(node, alpha)).json
        new = (await acquire(node, beta, mode="ExclusiveWithFencing", producer_name="beta")).json
        for _ in range(3):
            await node.call("POST", RECORDS, b"x\n", TEXT | fence(alpha, old))
        history = (await node.call("GET", FENCES)).json["fences"]
        assert [(one["grant"], one["end"], one["refused"]) for one in history] == [
            (new["grant"], None, 0),
            (old["grant"], "superseded", 3),
        ]

    run(test)


def test_an_operator_evicts_the_present_writer() -> None:
    async def test(node: Conversation) -> None:
        session = await open_session(node)
        grant = (await acquire(node, session)).json
        fenced = await node.call("POST", f"{TOPIC}/fence", {"partitions": "all", "reason": "drill"})
        assert fenced.json == {
            "topic": "orders",
            "partitions": [{"partition": 0, "epoch": 2, "grants": [grant["grant"]]}],
        }
        refused = await node.call("POST", RECORDS, b"x\n", TEXT | fence(session, grant))
        assert (refused.json["reason"], refused.json["ended"]["end"]) == ("superseded", "fenced")
        assert (await node.call("POST", RECORDS, b"x\n", TEXT)).status == 200

    run(test)


def test_refused_writes_are_counted_and_remembered_without_the_session() -> None:
    async def test(node: Conversation) -> None:
        session = await open_session(node)
        grant = (await acquire(node, session)).json
        stamp = {"Stockade-Producer-Id": "2", "Stockade-Producer-Epoch": "0", "Stockade-Producer-Seq": "5"}
        busy = await node.call("POST", RECORDS, b"x\n", TEXT)
        gap = await node.call("POST", RECORDS, b"x\n", TEXT | fence(session, grant) | stamp)
        assert (busy.status, gap.status) == (423, 409)
        answer = await node.call("GET", "/v1/refused_writes")
        assert session.encode() not in answer.body
        latest: list[dict[str, Any]] = answer.json["refused_writes"]
        assert [(one["code"], one["reason"]) for one in latest] == [
            ("OUT_OF_ORDER_SEQUENCE_NUMBER", "no_state"),
            ("PRODUCER_BUSY", "exclusive_present"),
        ]
        assert (latest[0]["request"], latest[0]["grant"], latest[0]["sequence"]) == (
            gap.json["instance"],
            grant["grant"],
            5,
        )
        assert len((await node.call("GET", "/v1/refused_writes?n=1")).json["refused_writes"]) == 1
        text = (await node.call("GET", "/metrics")).body.decode()
        assert 'stockade_refused_writes_total{code="PRODUCER_BUSY",reason="exclusive_present"} 1.0' in text

    run(test)
