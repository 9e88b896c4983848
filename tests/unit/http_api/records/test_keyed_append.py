"""Appends by key: where records go, and what is told of the parts."""

import asyncio
import json

import pytest
from aiohttp import web
from msgspec import structs
from waiting import until

from stockade.partition.api.topics import Topic
from stockade.partition.errors import NotLeaderOrFollower
from stockade.partition.partitioner import partition_for_key

from ..conversation import ARROW, NDJSON, TEXT, Conversation, nodes
from ..endpoint.test_forwarding import Leader, with_leader
from ..fake_partition import FakePartition
from .test_append import arrow_stream

KEYED = "/v1/topics/orders/records"


def partition(number: int) -> str:
    return f"/v1/topics/orders/partitions/{number}/records"


def test_a_topic_id_that_this_node_does_not_know_is_not_refused_before_the_controller_was_asked() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            new = (await node.topic(partitions=2))["topic_id"]
            described = node.service.get_topic

            async def lagging(name: str, topic_id: int | None = None) -> Topic:
                found = await described(name)
                return found if topic_id == new else structs.replace(found, topic_id=new - 1)

            node.service.get_topic = lagging  # type: ignore[method-assign]
            answers = [
                await node.call("POST", f"{KEYED}?topic_id={wanted}", {"records": [{"value": "x"}]})
                for wanted in (new, new + 1)
            ]
            assert [answer.status for answer in answers] == [200, 409]

    asyncio.run(main())


def test_a_record_with_a_key_goes_to_the_partition_that_kafka_chooses() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic(partitions=4)
            records = [{"key": f"k{number}", "value": str(number)} for number in range(20)]
            answer = await node.call("POST", KEYED, {"records": records})
            assert (answer.status, answer.json["partial"]) == (200, False)
            numbers = [result["partition"] for result in answer.json["results"]]
            assert numbers == sorted(numbers)
            for result in answer.json["results"]:
                expected = [str(place) for place in result["records"]]
                assert await node.values(partition(result["partition"])) == expected
                assert result["last_offset"] - result["base_offset"] + 1 == len(expected)
                for place in result["records"]:
                    assert partition_for_key(b"k%d" % place, 4) == result["partition"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"a\nb\n", TEXT),
        (b'{"value":"a"}\n{"value":"b"}\n', NDJSON),
        (json.dumps({"records": [{"value": "a"}, {"value": "b"}]}).encode(), {"Content-Type": "application/json"}),
        (arrow_stream([b"a", b"b"]), ARROW),
    ],
    ids=["text", "ndjson", "json", "arrow"],
)
def test_keyless_records_go_together_to_another_partition_each_time(body: bytes, headers: dict[str, str]) -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic(partitions=3)
            found = []
            for _ in range(6):
                answer = await node.call("POST", KEYED, body, headers)
                (result,) = answer.json["results"]
                assert result["records"] == [0, 1]
                found.append(result["partition"])
            assert sorted(found[:3]) == sorted(found[3:]) == [0, 1, 2]
            assert (await node.values(partition(0)))[:2] == ["a", "b"]

    asyncio.run(main())


async def exclusive(node: Conversation, *partitions: int) -> dict[str, str]:
    """Give a session these partitions; returns the headers under which it may write."""
    session = (await node.call("POST", "/v1/sessions", {"client_id": "c"})).json["session"]
    body = {"partitions": partitions, "mode": "Exclusive", "producer_name": "p"}
    grant = await node.call("POST", "/v1/topics/orders/grants", body, {"Stockade-Session": session})
    assert grant.status == 201
    return {
        "Stockade-Session": session,
        "Stockade-Fence-Grant": grant.json["grant"],
        "Stockade-Fence-Epoch": str(grant.json["epoch"]),
    }


def key_for(number: int, partitions: int = 2) -> str:
    return next(str(key) for key in range(100) if partition_for_key(str(key).encode(), partitions) == number)


def test_parts_are_refused_each_by_itself() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic(partitions=2)
            await exclusive(node, 1)
            records = [{"key": key_for(1)}, {"key": key_for(0)}, {"key": key_for(1)}]
            answer = await node.call("POST", KEYED, {"records": records})
            assert (answer.status, answer.json["partial"]) == (200, True)
            stored, refused = answer.json["results"]
            assert (stored["partition"], stored["records"], stored["base_offset"]) == (0, [1], 0)
            assert (refused["partition"], refused["records"]) == (1, [0, 2])
            assert refused["problem"]["code"] == "PRODUCER_BUSY"

    asyncio.run(main())


def test_the_refusals_of_single_parts_are_counted_with_acks_0_too() -> None:
    """Only a request all of whose parts were refused was counted: no alert told of the parts of unknown outcome."""

    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic(partitions=2)
            await exclusive(node, 1)
            records = {"records": [{"key": key_for(1)}, {"key": key_for(0)}]}
            assert (await node.call("POST", KEYED, records)).json["partial"] is True
            assert (await node.call("POST", KEYED + "?acks=0", records)).status == 202
            await until(lambda: node.server.front.unacked.budget.used == 0)
            text = (await node.server.metrics.text(names=True)).decode()
            assert 'stockade_http_refusals_total{code="PRODUCER_BUSY"} 2.0' in text

    asyncio.run(main())


def test_when_nothing_was_stored_the_problem_of_the_lowest_partition_is_the_answer() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic(partitions=2)
            held = await exclusive(node, 0, 1)
            records = {"records": [{"key": key_for(1)}, {"key": key_for(0)}]}
            answer = await node.call("POST", KEYED, records)
            assert (answer.status, answer.json["code"]) == (423, "PRODUCER_BUSY")
            assert [result["partition"] for result in answer.json["results"]] == [0, 1]
            assert (await node.call("POST", KEYED, records, held)).json["partial"] is False

    asyncio.run(main())


def test_parts_led_elsewhere_are_passed_on() -> None:
    async def main() -> None:
        async with nodes(3) as (one, two, three):
            await one.topic(partitions=2)
            one.service.shared.topics["orders"].leaders[:] = ["n2", "n3"]
            held = await exclusive(one, 0, 1)
            records = {"records": [{"key": key_for(1), "value": "b"}, {"key": key_for(0), "value": "a"}]}
            for node in (one, two, three):
                answer = await node.call("POST", KEYED, records, held)
                assert (answer.status, answer.json["partial"]) == (200, False), answer.body
                assert answer.headers["Stockade-Leader"] == two.url
            assert await three.values(partition(1)) == ["b"] * 3
            refused = await one.call("POST", KEYED, records)
            assert (refused.status, refused.json["code"]) == (423, "PRODUCER_BUSY")
            not_passed = await one.call("POST", KEYED, records, {"Stockade-Forwarded-By": "client"})
            assert (not_passed.status, not_passed.json["leader"]) == (421, two.url)

    asyncio.run(main())


def test_an_unknown_part_makes_the_whole_unknown_when_nothing_is_known_to_be_stored() -> None:
    async def main() -> None:
        async with nodes(2) as (one, _):
            await one.topic(partitions=2)
            await exclusive(one, 0)

            async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.read(1)
                writer.close()

            server = await asyncio.start_server(swallow, "127.0.0.1", 0)
            one.service.shared.urls["n2"] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            one.service.shared.topics["orders"].leaders[1] = "n2"
            both = {"records": [{"key": key_for(0)}, {"key": key_for(1)}]}
            answer = await one.call("POST", KEYED, both)
            assert (answer.status, answer.json["code"]) == (504, "REQUEST_TIMED_OUT")
            codes = [result["problem"]["code"] for result in answer.json["results"]]
            assert codes == ["PRODUCER_BUSY", "REQUEST_TIMED_OUT"]
            server.close()
            await server.wait_closed()

    asyncio.run(main())


@pytest.mark.parametrize("answer", [web.Response(text="<p>no"), web.json_response({"code": "NEW"}, status=418)])
def test_an_answer_of_the_controller_that_this_node_does_not_understand_is_no_internal_error(
    answer: web.Response,
) -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            runner = await with_leader(Leader(answer), two)

            async def elsewhere(name: str, topic_id: int | None = None) -> Topic:
                raise NotLeaderOrFollower(leader=two.service.shared.urls["n1"], leader_term=1)

            two.service.get_topic = elsewhere  # type: ignore[method-assign]
            refused = await two.call("POST", KEYED, {"records": [{"value": "x"}]})
            assert (refused.status, refused.json["code"]) == (503, "LEADER_NOT_AVAILABLE")
            await runner.cleanup()

    asyncio.run(main())


def test_acks_0_stores_in_the_background() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic(partitions=1)
            answer = await node.call("POST", KEYED + "?acks=0", b"x\n", TEXT)
            assert (answer.status, answer.json) == (202, {"topic": "orders", "partition": None, "accepted": True})
            waited = await node.call("GET", partition(0) + "?max_wait_ms=5000")
            assert len(waited.json["records"]) == 1

    asyncio.run(main())


def test_parts_of_an_answered_request_wait_for_a_leader_when_the_client_has_gone() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic()
            node.server.front.leader_wait_s = 60
            service, tries = node.service, 0
            service.shared.lead("orders", None)
            find = service.partition

            async def counted(topic: str, partition: int, topic_id: int | None) -> FakePartition:
                nonlocal tries
                tries += 1
                return await find(topic, partition, topic_id)

            service.partition = counted  # type: ignore[method-assign]
            body = b'{"records":[{"key":"k","value":"x"}]}'
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            head = f"POST {KEYED}?acks=0 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert (await reader.readline()).startswith(b"HTTP/1.1 202 ")
            writer.transport.abort()
            server = node.server._runner.server
            assert server is not None
            await until(lambda: len(server.connections) <= 1)
            before = tries
            await until(lambda: tries >= before + 3)
            service.shared.lead("orders", "n1")
            found = await node.call("GET", f"{partition(0)}?offset=0&max_wait_ms=30000")
            assert [record["value"] for record in found.json["records"]] == ["x"]

    asyncio.run(main())
