"""Ownership of resources, guarded reads and writes, positions."""

import asyncio
from typing import Any

import pytest

from stockade.http_api.handlers import groups

from ..conversation import NDJSON, RECORDS, TEXT, Conversation, nodes, run

OWN = "/v1/groups/plant/own"
POSITION = "/v1/groups/plant/positions/orders/0"


def test_many_resources_of_a_group_are_answered_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "RESOURCES_PER_TURN", 2)

    async def test(node: Conversation) -> None:
        owner = await session(node)
        for number in range(5):
            await own(node, owner, f'"{number}"')
            answer = await node.call("GET", "/v1/groups/plant/resources")
            assert [each["resource"] for each in answer.json["resources"]] == [f'"{at}"' for at in range(number + 1)]
            assert answer.json["resources"][-1]["client_id"] == "alpha"
            assert answer.json["group"] == "plant"

    run(test)


async def session(node: Conversation, client_id: str = "alpha") -> dict[str, str]:
    return {"Stockade-Session": (await node.call("POST", "/v1/sessions", {"client_id": client_id})).json["session"]}


async def own(node: Conversation, holder: dict[str, str], resource: str, **more: Any) -> Any:
    answer = await node.call("POST", OWN, {"claims": [{"resource": resource, **more}], "sever": "resource"}, holder)
    return answer.json


def test_a_resource_has_one_owner_and_a_generation() -> None:
    async def test(node: Conversation) -> None:
        alpha, beta = await session(node), await session(node, "beta")
        mine = await own(node, alpha, "printer", generation=1)
        assert mine == {
            "group": "plant",
            "results": [{"resource": "printer", "granted": True, "generation": 1, "fence_epoch": 1}],
        }
        taken = await own(node, beta, "printer", generation=1)
        assert taken["results"][0]["fence_epoch"] == 2
        refused = await own(node, alpha, "printer", generation=1)
        assert (refused["code"], refused["generation"], refused["fence_epoch"]) == ("GENERATION_FENCED", 2, 2)
        assert refused["results"][0]["granted"] is False
        listed = (await node.call("GET", "/v1/groups/plant/resources")).json["resources"]
        assert listed == [
            {"resource": "printer", "owned": True, "client_id": "beta", "generation": 2, "fence_epoch": 2}
        ]

    run(test)


def test_claims_may_be_granted_each_by_itself() -> None:
    async def test(node: Conversation) -> None:
        alpha, beta = await session(node), await session(node, "beta")
        await own(node, alpha, "a", generation=7)
        body = {"claims": [{"resource": "a"}, {"resource": "b"}], "atomic": False}
        answer = await node.call("POST", OWN, body, beta)
        assert [result["granted"] for result in answer.json["results"]] == [False, True]
        assert answer.json["results"][0]["code"] == "GENERATION_FENCED"

    run(test)


def test_a_disowned_resource_keeps_its_generation() -> None:
    async def test(node: Conversation) -> None:
        alpha, beta = await session(node), await session(node, "beta")
        await own(node, alpha, "a b/ä\ufffd")
        path = OWN + "?resource=a+b%2F%C3%A4%EF%BF%BD&resource=never"
        refused = await node.call("DELETE", path, None, beta)
        assert (refused.status, refused.json["code"], refused.json["fence_epoch"]) == (403, "NOT_OWNER", 1)
        given = (await node.call("DELETE", path, None, alpha)).json["results"]
        assert [(one["resource"], one["granted"], one["fence_epoch"]) for one in given] == [
            ("a b/ä\ufffd", False, 1),
            ("never", False, 0),
        ]

    run(test)


def test_a_read_under_guard_is_the_owners_alone() -> None:
    async def test(node: Conversation) -> None:
        alpha, beta = await session(node), await session(node, "beta")
        await node.call("POST", RECORDS, b"a\nb\n", TEXT)
        await own(node, alpha, "orders/0")
        guarded = f"{RECORDS}?group=plant&fence_epoch="
        assert len((await node.call("GET", guarded + "1")).json["records"]) == 2
        await own(node, beta, "orders/0", generation=2)
        refused = await node.call("GET", guarded + "1")
        assert (refused.status, refused.json["code"], refused.json["fence_epoch"]) == (403, "NOT_OWNER", 2)
        assert (await node.call("GET", guarded + "2")).status == 200

    run(test)


def test_a_followed_read_ends_when_its_owner_loses_the_partition() -> None:
    async def test(node: Conversation) -> None:
        alpha, beta = await session(node), await session(node, "beta")
        await own(node, alpha, "orders/0")
        await node.call("POST", RECORDS, b"a\n", TEXT)
        url = f"{node.url}{RECORDS}?group=plant&fence_epoch=1&follow=true"
        async with node.session.get(url, headers={"Accept": NDJSON["Content-Type"]}) as followed:
            assert b'"value":"a"' in await followed.content.readline()
            await own(node, beta, "orders/0", generation=2)
            await node.call("POST", RECORDS, b"b\n", TEXT)
            last = await followed.content.readline()
            assert b'"code":"NOT_OWNER"' in last
            assert await followed.content.readline() == b""

    run(test)


def test_positions_are_committed_by_the_owner() -> None:
    async def test(node: Conversation) -> None:
        nothing = await node.call("GET", POSITION)
        assert nothing.json == {
            "group": "plant",
            "topic": "orders",
            "partition": 0,
            "offset": None,
            "metadata": None,
        }
        await node.call("POST", RECORDS, b"a\nb\n", TEXT)
        free = await node.call("PUT", POSITION, {"offset": 1, "metadata": "here"})
        assert (free.status, free.json["offset"]) == (200, 1)
        assert (await node.call("GET", POSITION)).json == free.json
        beyond = await node.call("PUT", POSITION, {"offset": 3})
        assert (beyond.status, beyond.json["log_end"]) == (416, 2)
        await own(node, await session(node), "orders/0")
        stale = await node.call("PUT", POSITION, {"offset": 2})
        assert (stale.status, stale.json["fence_epoch"]) == (403, 1)
        assert (await node.call("PUT", POSITION, {"offset": 0, "fence_epoch": 1})).json["offset"] == 0

    run(test)


def test_a_topic_with_a_writer_group_takes_the_owners_writes_alone() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("guarded", writer_group="plant")
        records = "/v1/topics/guarded/partitions/0/records"
        assert (await node.call("POST", records, b"x\n", TEXT)).json["code"] == "NOT_OWNER"
        await own(node, await session(node), "guarded/0")
        assert (await node.call("POST", records + "?fence_epoch=1", b"x\n", TEXT)).status == 200
        assert (await node.call("POST", records + "?fence_epoch=0", b"x\n", TEXT)).status == 403
        keyed = await node.call("POST", "/v1/topics/guarded/records", b"x\n", TEXT)
        assert (keyed.status, keyed.json["code"]) == (403, "NOT_OWNER")
        assert (await node.call("POST", "/v1/topics/guarded/records?fence_epoch=1", b"x\n", TEXT)).status == 400

    run(test)


def test_groups_are_served_by_any_node() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            holder = await session(two)
            assert (await own(two, holder, "orders/0"))["results"][0]["granted"]
            answer = await two.call("PUT", POSITION, {"offset": 0, "fence_epoch": 1})
            assert (answer.status, answer.headers["Stockade-Leader"]) == (200, one.url)
            given = await two.call("DELETE", OWN + "?resource=a&resource=b", None, holder)
            assert [one["resource"] for one in given.json["results"]] == ["a", "b"]

    asyncio.run(main())
