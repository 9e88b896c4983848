"""Bearer tokens: without one nobody does anything, and each does what it may and nothing more."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stockade.cluster.front.front import Right, Rights
from stockade.http_api.routes import UNDOCUMENTED, routes

from ..conversation import Conversation, document, nodes
from ..samples import GOOD

RIGHTS: dict[str, Right] = {"looks": "read", "writes": "write", "rules": "admin"}
TOKENS = Rights({hashlib.sha256(token.encode()).hexdigest(): right for token, right in RIGHTS.items()})
NEEDS = {(route.method, route.path): route.needs for route in routes() if route.path not in UNDOCUMENTED}
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in document()["paths"].items()
    for method, operation in methods.items()
}
GUARDED = [name for name, (_, _, operation) in OPERATIONS.items() if operation.get("security") != []]
OPEN = [name for name in OPERATIONS if name not in GUARDED]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def guarded(count: int = 1) -> AsyncIterator[list[Conversation]]:
    """Nodes that want tokens, and the topic ``orders``."""
    async with nodes(count, TOKENS) as found:
        created = await found[0].call("POST", "/v1/topics", {"name": "orders"}, bearer("rules"))
        assert created.status == 201
        yield found


@pytest.mark.parametrize("name", GUARDED)
def test_nothing_is_done_without_a_token_or_with_one_that_may_not(name: str) -> None:
    method, path, _ = OPERATIONS[name]
    needed = NEEDS[method, path]
    weaker = {"read": [], "write": ["looks"], "admin": ["looks", "writes"]}[needed or ""]

    async def main() -> None:
        async with guarded() as (node,):
            wanted = GOOD[name].filled({"pid": "1"})
            for headers in ({}, {"Authorization": "Basic bG9va3M6"}, bearer("guessed"), bearer("")):
                answer = await node.call(wanted.method, wanted.path, wanted.body, headers)
                assert (answer.status, answer.json["code"]) == (401, "UNAUTHENTICATED")
                assert answer.headers["WWW-Authenticate"] == "Bearer"
            for token in weaker:
                answer = await node.call(wanted.method, wanted.path, wanted.body, bearer(token))
                assert (answer.status, answer.json["code"]) == (403, "PERMISSION_DENIED")
                assert needed is not None
                assert needed in answer.json["detail"]

    asyncio.run(main())


@pytest.mark.parametrize("name", OPEN)
def test_health_metrics_and_pages_need_no_token(name: str) -> None:
    async def main() -> None:
        async with guarded() as (node,):
            assert (await node.call(GOOD[name].method, GOOD[name].path)).status in (200, 503)

    asyncio.run(main())


@pytest.mark.parametrize("name", ["list_topics", "append_by_key", "create_topic"])
def test_whoever_may_gets_the_answer_of_a_cluster_without_tokens(name: str) -> None:
    method, path, _ = OPERATIONS[name]
    enough = {"read": RIGHTS, "write": ["writes", "rules"], "admin": ["rules"]}[NEEDS[method, path] or ""]

    async def main() -> None:
        for token in list(enough):
            async with guarded() as (node,):
                await node.call("POST", "/v1/topics", {"name": "free"}, bearer("rules"))
                wanted = GOOD[name].filled({"pid": "1"})
                answer = await node.call(wanted.method, wanted.path, wanted.body, bearer(token) | dict(wanted.headers))
                assert answer.status in (200, 201), answer.body

    asyncio.run(main())


def test_what_a_node_passes_on_keeps_its_token() -> None:
    async def main() -> None:
        async with guarded(2) as (_, follower):
            body = {"records": [{"key": "k", "value": "x"}]}
            for path in ("/v1/topics/orders/partitions/0/records", "/v1/topics/orders/records"):
                assert (await follower.call("POST", path, body, bearer("writes"))).status == 200
                assert (await follower.call("POST", path, body, bearer("looks"))).status == 403

    asyncio.run(main())


def test_every_route_that_changes_the_cluster_or_throws_out_is_for_admins() -> None:
    admins = {name for name, (method, path, _) in OPERATIONS.items() if NEEDS[method, path] == "admin"}
    assert admins == {
        *("create_topic", "change_topic", "delete_topic", "fence_topic", "fence_producer"),
        *("change_members", "reassign", "transfer_leader", "list_sessions"),
    }
    assert {NEEDS[OPERATIONS[name][:2]] for name in OPEN} == {None}


def test_a_reader_takes_what_is_free_and_throws_no_writer_out() -> None:
    async def main() -> None:
        async with guarded() as (node,):
            writer, reader = [
                (await node.call("POST", "/v1/sessions", {"client_id": token}, bearer(token))).json["session"]
                for token in ("writes", "looks")
            ]

            async def own(
                token: str, session: str, generation: int | None, sever: str = "session", resource: str = "x"
            ) -> int:
                claim = {"resource": resource} | ({} if generation is None else {"generation": generation})
                headers = bearer(token) | {"Stockade-Session": session}
                body = {"claims": [claim], "sever": sever}
                return (await node.call("POST", "/v1/groups/g/own", body, headers)).status

            assert await own("writes", writer, None) == 200
            assert await own("looks", reader, None) == 409
            assert [await own("looks", reader, generation) for generation in (0, 9)] == [403, 403]
            assert await own("looks", reader, 9, "resource") == 200
            assert await own("writes", writer, 10) == 200
            for name, writers in (("written", "g"), ("read", "others")):
                topic = {"name": name, "config": {"writer_group": writers}}
                assert (await node.call("POST", "/v1/topics", topic, bearer("rules"))).status == 201
            for free in ("written/0", "written/9"):
                assert await own("looks", reader, None, resource=free) == 403, "it guards writes"
                assert await own("looks", reader, 1, "resource", resource=free) == 403
                assert await own("writes", writer, None, resource=free) == 200
            for harmless in ("read/0", "nowhere/0", "written/0/x", "written"):
                assert await own("looks", reader, None, resource=harmless) == 200

    asyncio.run(main())
