"""What an operator asks of a cluster over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ..conversation import Conversation, nodes
from ..samples import BACKUP

ADD = {"action": "add", "node_id": "n4", "url": "http://127.0.0.1:7304", "raft_address": "127.0.0.1:7404"}
MOVE = {"topic": "orders", "partition": 0, "replicas": ["n2", "n3", "n4"]}
LEADER = {"topic": "orders", "partition": 0, "node_id": "n2"}


def run_two(test: Callable[[Conversation, Conversation], Awaitable[None]]) -> None:
    """Two nodes, the first leads the controller and the partition of ``orders``."""

    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            await test(one, two)

    asyncio.run(main())


def test_any_node_takes_an_operators_orders() -> None:
    async def test(one: Conversation, two: Conversation) -> None:
        for node in (one, two):
            orders = node.service.shared.orders
            orders.clear()
            answer = await node.call("POST", "/v1/cluster/members", ADD | {"zone": None})
            assert (answer.status, answer.json["cluster_id"]) == (202, "c-1")
            assert (await node.call("POST", "/v1/cluster/members", {"action": "remove", "node_id": "n3"})).status == 202
            assert (await node.call("POST", "/v1/cluster/members", {"action": "remove", "zone": "a"})).status == 202
            moved = await node.call("POST", "/v1/cluster/reassignments", MOVE)
            assert (moved.status, moved.json) == (202, MOVE)
            led = await node.call("POST", "/v1/cluster/leaders", LEADER)
            assert (led.status, led.json["leader_node"], led.json["leader_term"]) == (200, "n2", 9)
            assert led.headers["Stockade-Leader-Term"] == "9"
            await node.call("POST", "/v1/cluster/leaders", {"topic": None, "partition": None})
            assert orders == [
                ("add", "n4", "http://127.0.0.1:7304", "127.0.0.1:7404", None),
                ("remove", "n3"),
                ("remove_zone", "a"),
                ("reassign", "n2", "n3", "n4"),
                ("transfer", "orders", 0, "n2"),
                ("transfer", None, None, None),
            ]

    run_two(test)


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("members", ADD | {"action": "drop"}, "action"),
        ("members", ADD | {"node_id": "n 4"}, "node_id"),
        ("members", ADD | {"url": "127.0.0.1:7304"}, "url"),
        ("members", ADD | {"url": "http://127.0.0.1:73040"}, "url"),
        ("members", {"action": "add", "node_id": "n4", "raft_address": "h:1"}, "url"),
        ("members", ADD | {"raft_address": "127.0.0.1"}, "raft_address"),
        ("members", {"action": "add", "node_id": "n4", "url": "http://h:1"}, "raft_address"),
        ("members", {"action": "remove", "node_id": "n4", "zone": None}, "node_id, zone"),
        ("members", {"action": "remove", "node_id": "n4", "zone": "a"}, "node_id, zone"),
        ("members", {"action": "remove"}, "node_id, zone"),
        ("members", {"action": "remove", "zone": None}, "node_id, zone"),
        ("members", ADD | {"force": True}, "body"),
        ("reassignments", MOVE | {"replicas": []}, "replicas"),
        ("reassignments", MOVE | {"replicas": ["n1", "n2"]}, "replicas"),
        ("reassignments", MOVE | {"replicas": ["n1", "n1", "n2"]}, "replicas"),
        ("reassignments", MOVE | {"replicas": [f"n{number}" for number in range(9)]}, "replicas"),
        ("reassignments", MOVE | {"partition": -1}, "partition"),
        ("leaders", LEADER | {"topic": None}, "topic, partition"),
        ("leaders", LEADER | {"partition": None}, "topic, partition"),
        ("leaders", {"node_id": "n2"}, "body"),
    ],
)
def test_an_order_that_is_not_well_formed_is_refused(path: str, body: Any, reason: str) -> None:
    async def test(one: Conversation, two: Conversation) -> None:
        answer = await one.call("POST", f"/v1/cluster/{path}", body)
        assert (answer.status, answer.json["code"]) == (400, "INVALID_REQUEST")
        assert answer.json["reason"].startswith(reason)
        assert one.service.shared.orders == []

    run_two(test)


def test_removals_and_transfers_of_unknown_objects_are_not_found() -> None:
    async def test(one: Conversation, two: Conversation) -> None:
        gone = await one.call("POST", "/v1/cluster/members", {"action": "remove", "node_id": "x1"})
        assert (gone.status, gone.json["code"], gone.json["what"]) == (404, "NOT_FOUND", "node")
        unknown = await one.call("POST", "/v1/cluster/leaders", LEADER | {"topic": "other"})
        assert (unknown.status, unknown.json["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")

    run_two(test)


def test_balance_and_controllers_are_planned_ordered_and_set_at_any_node() -> None:
    async def test(one: Conversation, two: Conversation) -> None:
        for node in (one, two):
            orders = node.service.shared.orders
            orders.clear()
            plan = await node.call("GET", "/v1/cluster/balance")
            assert (plan.status, plan.json["plan"], plan.json["moves"][0]["why"]) == (200, "planned", "spread")
            begun = await node.call("POST", "/v1/cluster/balance", {"if_plan": "planned"})
            assert (begun.status, begun.json["leaders"][0]["home"]) == (202, "n2")
            stale = await node.call("POST", "/v1/cluster/balance", {"if_plan": "other"})
            assert (stale.status, stale.json["code"]) == (412, "PLAN_CHANGED")
            changed = await node.call("PATCH", "/v1/cluster/balance", {"mode": "leaders", "stable_ms": 1000})
            assert (changed.status, changed.json["mode"]) == (200, "leaders")
            seen = await node.call("POST", "/v1/cluster/controllers", {"node_ids": ["n2"], "dry_run": True})
            assert (seen.status, seen.json["target"]) == (200, ["n2"])
            assert (await node.call("POST", "/v1/cluster/controllers", {"node_ids": None})).status == 202
            assert [order[0] for order in orders] == [
                *("balance_plan", "balance", "balance_plan", "balance", "change_balance"),
                *("controllers_plan", "choose_controllers"),
            ]

    run_two(test)


@pytest.mark.parametrize(
    ("method", "path", "body", "reason"),
    [
        ("POST", "backups", {**BACKUP, "place": ""}, "place"),
        ("POST", "backups", {**BACKUP, "place": "x" * 501}, "place"),
        ("POST", "backups", {**BACKUP, "place": "s3://user:pass@b/orders"}, "place: no credentials"),
        ("POST", "backups", {**BACKUP, "place": "s3://b/orders?secret_key=x"}, "place: no credentials"),
        ("POST", "backups", {**BACKUP, "records": -1}, "records"),
        ("POST", "backups", {**BACKUP, "principal": "another"}, "body"),
        ("POST", "balance", {}, "body"),
        ("POST", "balance", {"if_plan": ""}, "if_plan"),
        ("PATCH", "balance", {}, "body"),
        ("PATCH", "balance", {"mode": "sometimes"}, "mode"),
        ("PATCH", "balance", {"moves_at_once": 0}, "moves_at_once"),
        ("PATCH", "balance", {"moves_at_once": 65}, "moves_at_once"),
        ("PATCH", "balance", {"copy_bytes_per_s": -1}, "copy_bytes_per_s"),
        ("PATCH", "balance", {"stable_ms": 999}, "stable_ms"),
        ("PATCH", "balance", {"disk_used_percent_max": 100}, "disk_used_percent_max"),
        ("PATCH", "balance", {"pace": 1}, "body"),
        ("POST", "controllers", {}, "body"),
        ("POST", "controllers", {"node_ids": []}, "node_ids"),
        ("POST", "controllers", {"node_ids": ["n 1"]}, "node_ids"),
        ("POST", "controllers", {"node_ids": None, "dry_run": True, "if_plan": "0"}, "dry_run"),
    ],
)
def test_an_order_of_balance_that_is_not_well_formed_is_refused(method: str, path: str, body: Any, reason: str) -> None:
    async def test(one: Conversation, two: Conversation) -> None:
        answer = await one.call(method, f"/v1/cluster/{path}", body)
        assert (answer.status, answer.json["code"]) == (400, "INVALID_REQUEST")
        assert reason in answer.json["detail"]

    run_two(test)
