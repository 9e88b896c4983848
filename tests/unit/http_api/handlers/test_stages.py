"""Stages over HTTP: stored, listed, kept, appended by reference, deleted."""

import asyncio

import msgspec

from ..conversation import TEXT, Conversation, nodes, run
from ..fake_partition import FakePartition

STAGES = "/v1/topics/orders/partitions/0/stages"


async def producer(node: Conversation) -> dict[str, int]:
    answer = await node.call("POST", "/v1/producers", {"name": "loader"})
    return {"producer_id": answer.json["producer_id"], "producer_epoch": answer.json["producer_epoch"]}


def test_a_stage_is_stored_listed_appended_once_and_deleted() -> None:
    async def test(node: Conversation) -> None:
        put = await node.call("PUT", f"{STAGES}/load~1", b"a\nb\n", TEXT)
        assert (put.status, put.json["records"]) == (201, 2)
        assert (await node.call("PUT", f"{STAGES}/load~1", b"a\nb\n", TEXT)).status == 200
        assert await node.values() == []
        appended = await node.call("POST", f"{STAGES}/load~1/append")
        again = await node.call("POST", f"{STAGES}/load~1/append")
        assert (appended.json["duplicate"], again.json["duplicate"]) == (False, True)
        assert again.headers["Stockade-Base-Offset"] == "0"
        assert await node.values() == ["a", "b"]
        pair = await producer(node)
        assert (await node.call("PATCH", STAGES, pair | {"keep": ["load~1"]})).status == 200
        (stage,) = (await node.call("GET", f"{STAGES}?prefix=load~")).json["stages"]
        assert (stage["kept"], stage["expires_in_ms"], stage["base_offset"]) == (True, None, 0)
        assert (await node.call("PATCH", STAGES, pair | {"delete": ["load~1"]})).status == 200
        assert (await node.call("GET", STAGES)).json["stages"] == []

    run(test)


def test_an_append_of_a_stage_is_counted_once() -> None:
    async def counted(node: Conversation) -> list[str]:
        lines = (await node.call("GET", "/metrics", valid=False)).body.decode().splitlines()
        return [line for line in lines if line.startswith("stockade_appended_") and "_created" not in line]

    async def test(node: Conversation) -> None:
        await node.call("POST", "/v1/topics/orders/partitions/0/records", b"a\nb\n", TEXT)
        records, size = [float(line.split()[1]) for line in await counted(node)]
        await node.call("PUT", f"{STAGES}/s", b"a\nb\n", TEXT)
        for _ in range(2):
            assert (await node.call("POST", f"{STAGES}/s/append")).status == 200
        assert [float(line.split()[1]) for line in await counted(node)] == [2 * records, 2 * size]

    run(test)


def test_the_same_bytes_in_another_form_are_other_bytes() -> None:
    async def test(node: Conversation) -> None:
        await node.call("PUT", f"{STAGES}/s", b'{"value":"a"}', {"Content-Type": "application/x-ndjson"})
        answer = await node.call("PUT", f"{STAGES}/s", b'{"value":"a"}', TEXT)
        assert (answer.status, answer.json["code"]) == (409, "STAGE_ALREADY_EXISTS")

    run(test)


def test_any_node_takes_stages_and_passes_them_on() -> None:
    async def main() -> None:
        async with nodes(2) as (leader, other):
            await leader.topic()
            assert (await other.call("PUT", f"{STAGES}/s", b"a\n", TEXT)).status == 201
            assert (await other.call("POST", f"{STAGES}/s/append")).json["base_offset"] == 0
            assert await other.values() == ["a"]

    asyncio.run(main())


def test_names_and_prefixes_that_are_none_are_refused() -> None:
    async def test(node: Conversation) -> None:
        for path in (f"{STAGES}/a%20b", f"{STAGES}/{'x' * 250}", f"{STAGES}/%2F"):
            assert (await node.call("PUT", path, b"a\n", TEXT)).status == 400
        assert (await node.call("GET", f"{STAGES}?prefix=")).status == 400
        assert (await node.call("PUT", f"{STAGES}/s?ttl_ms=0", b"a\n", TEXT)).status == 400
        assert (await node.call("PUT", f"{STAGES}/{'x' * 249}", b"a\n", TEXT)).status == 201

    run(test)


def test_a_stage_that_is_to_be_kept_and_deleted_is_neither() -> None:
    async def test(node: Conversation) -> None:
        await node.call("PUT", f"{STAGES}/s", b"a", TEXT)
        refused = await node.call("PATCH", STAGES, await producer(node) | {"keep": ["s"], "delete": ["r", "s"]})
        assert (refused.status, refused.json["reason"]) == (400, "delete: s is in keep, too")
        (stage,) = (await node.call("GET", STAGES)).json["stages"]
        assert stage["kept"] is False

    run(test)


def test_a_node_that_does_not_lead_refuses_no_message_id_by_an_old_configuration() -> None:
    async def main() -> None:
        async with nodes(2) as (leader, other):
            await leader.topic(dedupe_window_ms=60_000)
            find = other.service.partition

            async def outdated(topic: str, partition: int, topic_id: int | None) -> FakePartition:
                found = await find(topic, partition, topic_id)
                found.config = msgspec.structs.replace(found.config, dedupe_window_ms=0)
                return found

            other.service.partition = outdated  # type: ignore[method-assign]
            await leader.call("PUT", f"{STAGES}/s", b"a\n", TEXT)
            answer = await other.call("POST", f"{STAGES}/s/append", None, {"Stockade-Message-Id": "m"})
            assert (answer.status, await leader.values()) == (200, ["a"])

    asyncio.run(main())


def test_a_message_id_is_refused_where_none_is_remembered() -> None:
    async def test(node: Conversation) -> None:
        for name in ("s", "appended"):
            await node.call("PUT", f"{STAGES}/{name}", b"a\n", TEXT)
        await node.call("POST", f"{STAGES}/appended/append")
        for name in ("s", "appended", "never"):
            answer = await node.call("POST", f"{STAGES}/{name}/append", None, {"Stockade-Message-Id": "m"})
            assert (answer.status, answer.json["code"]) == (400, "INVALID_REQUEST")
        assert await node.values() == ["a"]

    run(test)
