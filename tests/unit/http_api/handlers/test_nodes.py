"""What each node knows alone is asked of all of them through one: states, refused writes, events."""

import asyncio
import json
from typing import Any

import pytest

from stockade.http_api.request import pulse

from ..conversation import RECORDS, TEXT, Conversation, document, nodes, run
from ..conversation import _validator as validator
from .test_grants import acquire, fence, open_session

EVENTS = "/v1/events"


async def zombie(node: Conversation) -> dict[str, str]:
    """The headers of a writer whose slot was taken over."""
    alpha, beta = await open_session(node, "alpha"), await open_session(node, "beta")
    old = (await acquire(node, alpha, producer_name="alpha")).json
    await acquire(node, beta, producer_name="beta", mode="ExclusiveWithFencing")
    return fence(alpha, old)


def test_a_refused_write_is_shown_with_the_holder_and_whether_its_batch_is_stored() -> None:
    async def test(node: Conversation) -> None:
        headers = await zombie(node)
        stamp = {"Stockade-Producer-Id": "7", "Stockade-Producer-Epoch": "0", "Stockade-Producer-Seq": "3"}
        refused = await node.call("POST", RECORDS, b"x\n", TEXT | headers | stamp)
        (write,) = (await node.call("GET", "/v1/refused_writes")).json["refused_writes"]
        assert write["holder"] == refused.json["holder"]
        assert write["outcome"] == refused.json["outcome"]
        assert write["current_epoch"] == refused.json["current_epoch"] == 2

    run(test)


def test_refused_writes_of_all_nodes_are_asked_of_one() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic("orders")
            await one.topic("other")
            headers = await zombie(one)
            await one.call("POST", RECORDS, b"x\n", TEXT | headers)
            assert (await two.call("GET", "/v1/refused_writes")).json["refused_writes"] == []
            (write,) = await refused_at(two, "everywhere=true")
            assert (write["topic"], write["partition"]) == ("orders", 0)
            assert await refused_at(two, "everywhere=true&topic=orders&partition=0") == [write]
            assert await refused_at(two, "everywhere=true&topic=orders&partition=1") == []
            assert await refused_at(two, "everywhere=true&topic=other") == []

    asyncio.run(main())


async def refused_at(node: Conversation, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await node.call("GET", f"/v1/refused_writes?{query}")).json["refused_writes"]
    return found


def test_the_latest_refused_writes_of_all_nodes_come_first_and_no_more_than_asked_for() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic("orders")
            headers = await zombie(one)
            for _ in range(3):
                await one.call("POST", RECORDS, b"x\n", TEXT | headers)
            found = await refused_at(two, "everywhere=true&n=2")
            assert len(found) == 2
            assert found == (await refused_at(two, "everywhere=true&n=3"))[:2]

    asyncio.run(main())


def test_states_of_all_nodes_are_asked_of_one_and_a_silent_one_is_named() -> None:
    async def main() -> None:
        async with nodes(3) as (one, two, three):
            await one.topic("orders", 2)
            answer = (await two.call("GET", "/v1/nodes?everywhere=true")).json
            assert ([state["node_id"] for state in answer["nodes"]], answer["missing"]) == (["n1", "n2", "n3"], [])
            assert answer["nodes"][0]["partitions"]["led"] == 2
            assert len((await two.call("GET", "/v1/nodes")).json["nodes"]) == 1
            await three.server.close()
            answer = (await two.call("GET", "/v1/nodes?everywhere=true")).json
            assert ([state["node_id"] for state in answer["nodes"]], answer["missing"]) == (["n1", "n2"], ["n3"])

    asyncio.run(main())


def test_settings_of_all_nodes_are_asked_of_one_and_a_silent_one_is_named() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            answer = (await two.call("GET", "/v1/settings?everywhere=true")).json
            assert ([each["node_id"] for each in answer["nodes"]], answer["missing"]) == (["n1", "n2"], [])
            assert {"name": "node_id", "value": "n1", "default": None} in answer["nodes"][0]["settings"]
            await one.server.close()
            answer = (await two.call("GET", "/v1/settings?everywhere=true")).json
            assert ([each["node_id"] for each in answer["nodes"]], answer["missing"]) == (["n2"], ["n1"])

    asyncio.run(main())


def test_appends_are_counted_by_how_long_they_took() -> None:
    async def test(node: Conversation) -> None:
        for _ in range(3):
            await node.call("POST", RECORDS, b"x\n", TEXT)
        (state,) = (await node.call("GET", "/v1/nodes")).json["nodes"]
        assert (state["appended_records"], sum(state["appends"]["counts"])) == (3, 3)
        assert len(state["appends"]["counts"]) == len(state["appends"]["up_to_us"]) + 1

    run(test)


def test_events_tell_the_state_of_the_cluster_until_as_many_have_come_as_were_asked_for() -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("GET", f"{EVENTS}?n=2")
        assert answer.headers["Content-Type"] == "text/event-stream"
        events = answer.body.decode().split("\n\n")[:-1]
        assert len(events) == 2
        for event in events:
            name, data = event.split("\n")
            assert name == "event: state"
            schema = json.dumps({"$ref": "#/components/schemas/ClusterState"})
            validator(schema).validate(json.loads(data.removeprefix("data: ")))
        assert "ClusterState" in document()["components"]["schemas"]

    run(test)


def test_followers_of_events_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "STREAMS_MAX", 1)

    async def test(node: Conversation) -> None:
        async with node.session.get(node.url + EVENTS) as first:
            assert first.status == 200
            assert await first.content.readline() == b"event: state\n"
            refused = await node.call("GET", EVENTS)
            assert (refused.status, refused.json["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        while (await node.call("GET", f"{EVENTS}?n=1")).status == 429:
            pass  # the place is free when the node has noticed that the client is gone

    run(test)


def test_followers_share_a_reading() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            asked = 0
            counts = two.service.counts

            def counted() -> Any:
                nonlocal asked
                asked += 1
                return counts()

            two.service.counts = counted  # type: ignore[method-assign]
            answers = await asyncio.gather(*(one.call("GET", f"{EVENTS}?n=1") for _ in range(20)))
            assert {answer.status for answer in answers} == {200}
            assert asked == 1

    asyncio.run(main())


def test_the_first_event_of_a_follower_is_no_reading_from_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """It got the last reading that any follower had, perhaps of the day before."""

    async def test(node: Conversation) -> None:
        first = await node.call("GET", f"{EVENTS}?n=1")
        assert (await node.call("GET", f"{EVENTS}?n=1")).body == first.body
        monkeypatch.setattr(pulse, "EVERY_S", -1.0)  # every reading is too old
        await node.topic("later")
        assert (await node.call("GET", f"{EVENTS}?n=1")).body != first.body

    run(test)


def test_events_end_with_a_problem_when_the_node_stops() -> None:
    async def test(node: Conversation) -> None:
        async with node.session.get(node.url + EVENTS) as stream:
            assert await stream.content.readline() == b"event: state\n"
            stopping = asyncio.ensure_future(node.server.close())
            text = await stream.content.read()
            assert text.splitlines()[-3].startswith(b"event: problem")
            await stopping

    run(test)
