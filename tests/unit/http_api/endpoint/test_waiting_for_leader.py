"""Requests for which there is no leader at the moment: they wait for the next one, for a while."""

import asyncio

import pytest
from waiting import until

from stockade.cluster.front import front

from ..conversation import RECORDS, Conversation, nodes
from ..fake_partition import FakePartition


def test_an_unknown_leader_is_503_with_a_time_to_come_back() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic()
            node.service.shared.lead("orders", None)
            answer = await node.call("POST", RECORDS, {"records": [{}]})
            assert (answer.status, answer.json["no_side_effects"]) == (503, True)
            assert answer.headers["Retry-After"] == "1"
            node.service.shared.controller = None
            assert (await node.call("GET", "/v1/topics")).status == 503

    asyncio.run(main())


@pytest.mark.parametrize("path", [RECORDS, "/v1/topics/orders/records"])
@pytest.mark.parametrize("new_leader", ["n1", "n2"])
def test_a_request_waits_until_there_is_a_leader(path: str, new_leader: str) -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            two.server.front.leader_wait_s = 60
            shared = one.service.shared
            shared.lead("orders", None)
            waiting = asyncio.create_task(two.call("POST", path, {"records": [{"value": "x"}]}))
            await sees_requests(two, 1)
            shared.lead("orders", new_leader)
            assert (await waiting).status == 200
            assert await one.values() == ["x"]

    asyncio.run(main())


def test_a_request_waits_for_another_leader_when_the_one_it_knows_is_gone() -> None:
    async def main() -> None:
        async with nodes(3) as (one, two, three):
            await one.topic()
            two.server.front.leader_wait_s = 60
            await one.server.close()
            waiting = asyncio.create_task(two.call("POST", RECORDS, {"records": [{"value": "x"}]}))
            await sees_requests(two, 1)
            one.service.shared.lead("orders", "n3")
            assert (await waiting).headers["Stockade-Leader"] == three.url
            assert await three.values() == ["x"]

    asyncio.run(main())


def test_a_request_whose_client_gives_up_waiting_is_not_proposed_later() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic()
            node.server.front.leader_wait_s = 60
            shared = node.service.shared
            shared.lead("orders", None)
            waiting = asyncio.create_task(node.call("POST", RECORDS, {"records": [{"value": "x"}]}))
            await sees_requests(node, 1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await sees_requests(node, 0)
            shared.lead("orders", "n1")
            assert await node.values() == []

    asyncio.run(main())


async def sees_requests(node: Conversation, count: int) -> None:
    """Return when so many requests are under way on a node."""
    await until(lambda: node.server.front.in_flight.requests.used == count)


def test_many_requests_that_wait_for_a_leader_leave_the_processor_to_the_election(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front, "TRIES_PER_S", 200)

    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic()
            node.server.front.leader_wait_s = 60
            shared, service, tries = node.service.shared, node.service, 0
            shared.lead("orders", None)
            find = service.partition

            async def counted(topic: str, partition: int, topic_id: int | None) -> FakePartition:
                nonlocal tries
                tries += 1
                shared.news += 1  # other groups elect their leaders all the time
                return await find(topic, partition, topic_id)

            service.partition = counted  # type: ignore[method-assign]
            count, began = 20, asyncio.get_running_loop().time()
            waiting = [asyncio.create_task(node.call("POST", RECORDS, {"records": [{}]})) for _ in range(count)]
            await sees_requests(node, count)
            first = tries
            await until(lambda: tries >= first + 20 * count)
            elapsed = asyncio.get_running_loop().time() - began
            assert tries <= 3 * count + 2 * 200 * elapsed
            shared.lead("orders", "n1")
            assert [(await answer).status for answer in waiting] == [200] * count
            assert node.server.front.waiting_for_leader == 0

    asyncio.run(main())
