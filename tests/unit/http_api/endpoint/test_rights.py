"""Rights: without a credential nothing is done, and each caller does what its rights allow and nothing more."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stockade.cluster.access.principals import Access, Principal, PrincipalToken, Token, new_token
from stockade.cluster.access.rights import KINDS, Right
from stockade.http_api.routes import UNDOCUMENTED, routes
from stockade.partition.api.ledger import session_handle

from ..conversation import Answer, Conversation, document, nodes
from ..records.test_append import arrow_stream
from ..samples import GOOD, PARTS_FORM, parts_body

LEVEL_TOKENS = {"looks": "read", "writes": "write", "rules": "admin"}
TOKENS = [
    Token(token, hashlib.sha256(token.encode()).hexdigest(), level)  # type: ignore[arg-type]
    for token, level in LEVEL_TOKENS.items()
]
ROUTES = {(route.method, route.path): route for route in routes() if route.path not in UNDOCUMENTED}
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in document()["paths"].items()
    for method, operation in methods.items()
}
GUARDED = [name for name, (_, _, operation) in OPERATIONS.items() if operation.get("security") != []]
OPEN = [name for name in OPERATIONS if name not in GUARDED]
ONLY_ADMINS = {
    *("create_topic", "change_topic", "delete_topic", "fence_topic", "fence_producer"),
    *("change_members", "reassign", "transfer_leader", "list_sessions", "list_settings", "list_stalls"),
    *("list_principals", "get_principal", "put_principal", "delete_principal", "add_token", "delete_token"),
    *("balance", "change_balance", "choose_controllers", "note_backup", "fence_session"),
}
READERS = {
    *(
        "list_topics",
        "get_topic",
        "list_partitions",
        "fetch",
        "get_offset",
        "read_tail",
        "list_stages",
        "list_fences",
        "list_groups",
    ),
    *("list_partition_producers", "get_contents", "list_tickets", "list_nodes", "follow_events"),
    *("list_producers", "get_producer", "open_session", "renew_session", "close_session", "get_ticket"),
    *("cancel_ticket", "release"),
    *("renew_session_by_id", "close_session_by_id"),
    *("own", "disown", "list_resources", "get_position", "commit_position", "forget_position"),
    *("get_cluster", "list_refused_writes"),
    *("get_balance", "get_caller", "list_backups"),
}


ONLY = {
    "list_topics": [],
    "create_topic": ["admin topic:fresh"],
    "get_topic": ["trim topic:orders"],
    "change_topic": ["admin topic:orders"],
    "append": ["produce topic:orders"],
    "append_by_key": ["produce topic:free"],
    "fetch": ["read topic:orders"],
    "begin_at": ["admin topic:free"],
    "trim": ["trim topic:orders"],
    "acquire": ["acquire topic:orders"],
    "fence_topic": ["evict topic:orders"],
    "own": ["own resource:g/orders/0"],
    "list_resources": ["read group:g"],
    "get_position": ["read group:g", "read topic:orders"],
    "commit_position": ["own group:g", "read topic:orders"],
    "forget_position": ["own group:g", "read topic:orders"],
    "init_producer": ["produce topic:orders", "produce producer:fresh"],
    "get_producer": ["produce producer:mirror"],
    "fence_producer": ["evict producer:mirror"],
    "fence_session": ["admin cluster"],
    "reassign": ["admin cluster"],
    "list_backups": ["read cluster"],
    "note_backup": ["admin cluster"],
    "get_balance": ["read cluster"],
    "balance": ["admin cluster"],
    "change_balance": ["admin cluster"],
    "choose_controllers": ["admin cluster"],
    "list_refused_writes": ["read cluster"],
    "get_caller": [],
    "put_principal": ["admin cluster"],
    "list_settings": ["admin cluster"],
    "list_stalls": ["admin cluster"],
}
"""All that a caller needs for an operation, and the last of which it cannot do without."""


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def guarded(count: int = 1) -> AsyncIterator[list[Conversation]]:
    """Nodes that want tokens, and the topic ``orders``."""
    async with nodes(count, Access(TOKENS)) as found:
        created = await found[0].call("POST", "/v1/topics", {"name": "orders"}, bearer("rules"))
        assert created.status == 201
        yield found


@pytest.mark.parametrize("name", GUARDED)
def test_nothing_is_done_without_a_token_or_with_one_that_may_not(name: str) -> None:
    weaker = ["looks", "writes"] if name in ONLY_ADMINS else [] if name in READERS else ["looks"]

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
                assert f"the token {token} lacks the right: " in answer.json["detail"]

    asyncio.run(main())


@pytest.mark.parametrize("name", OPEN)
def test_health_metrics_and_pages_need_no_token(name: str) -> None:
    async def main() -> None:
        async with guarded() as (node,):
            assert (await node.call(GOOD[name].method, GOOD[name].path)).status in (200, 503)

    asyncio.run(main())


@pytest.mark.parametrize("name", ["list_topics", "append_by_key", "create_topic"])
def test_a_principal_with_the_right_gets_the_answer_of_a_cluster_without_tokens(name: str) -> None:
    enough = {"list_topics": ["looks", "writes", "rules"], "append_by_key": ["writes", "rules"]}.get(name, ["rules"])

    async def main() -> None:
        for token in enough:
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
    evicting = {"fence_topic", "fence_producer"}
    for name in ONLY_ADMINS - evicting:
        assert [need.verb for need in ROUTES[OPERATIONS[name][:2]].needs or ()] == ["admin"]
    assert {ROUTES[OPERATIONS[name][:2]].needs for name in OPEN} == {None}
    assert all(ROUTES[OPERATIONS[name][:2]].needs is not None for name in GUARDED)


@asynccontextmanager
async def with_principal(rights: list[str]) -> AsyncIterator[tuple[Conversation, dict[str, str]]]:
    """A node with the topic ``orders``, and the header of a principal that has these rights."""
    admin, made = new_token(), new_token()
    principals = [
        Principal("root", ["all"], [PrincipalToken(admin.hash)]),
        Principal("p", rights, [PrincipalToken(made.hash)]),
    ]
    async with nodes(1, Access((), principals)) as (node,):
        assert (await node.call("POST", "/v1/topics", {"name": "orders"}, bearer(admin.token))).status == 201
        assert (await node.call("POST", "/v1/producers", {"name": "mirror"}, bearer(admin.token))).status == 200
        yield node, bearer(made.token)


async def asked(node: Conversation, name: str, credentials: dict[str, str]) -> Answer:
    """The answer to a good request for an operation, in a session of the caller's own."""
    opened = await node.call("POST", "/v1/sessions", {"client_id": "c"}, credentials)
    session = opened.json["session"]
    wanted = GOOD[name].filled({"pid": "1", "session": session, "handle": session_handle(session)})
    if name == "own":
        wanted = wanted._replace(body={"claims": [{"resource": "orders/0"}]})
    return await node.call(wanted.method, wanted.path, wanted.body, dict(wanted.headers) | credentials)


@pytest.mark.parametrize("name", ONLY)
def test_a_principal_with_just_the_rights_is_served(name: str) -> None:
    async def main() -> None:
        async with with_principal(ONLY[name]) as (node, credentials):
            answer = await asked(node, name, credentials)
            assert answer.status not in (401, 403), answer.body

    asyncio.run(main())


@pytest.mark.parametrize("name", [name for name, rights in ONLY.items() if rights])
def test_a_principal_with_every_right_but_one_is_refused_with_its_name(name: str) -> None:
    missing = ONLY[name][-1]
    verb, kind, named = (*missing.replace(":", " ").split(), "")[:3]
    others = [f"{verb} {kind}:{named}-2", *ONLY[name][:-1]] if named else []
    others += [
        str(Right(other, on, "", is_prefix=True))
        for other, kinds in KINDS.items()
        for on in kinds
        if (other, on) != (verb, kind) and (other, on) != ("own", "group")
    ]
    if name in ("get_topic", "get_producer"):  # any right on the name will do
        others = [f"{verb} {kind}:{named}-2"]
        missing = f"read {kind}:{named}"

    async def main() -> None:
        async with with_principal(others) as (node, credentials):
            answer = await asked(node, name, credentials)
            assert (answer.status, answer.json["code"]) == (403, "PERMISSION_DENIED"), answer.body
            assert f"principal p lacks the right: {missing}" in answer.json["detail"]

    asyncio.run(main())


def test_a_list_of_topics_has_those_that_the_caller_has_a_right_on() -> None:
    async def main() -> None:
        async with with_principal(["admin topic:log-*", "read topic:orders"]) as (node, credentials):
            for topic in ("log-a", "log-b"):
                assert (await node.call("POST", "/v1/topics", {"name": topic}, credentials)).status == 201
            assert (await node.call("POST", "/v1/topics", {"name": "other"}, credentials)).status == 403
            listed = (await node.call("GET", "/v1/topics", None, credentials)).json["topics"]
            assert [topic["name"] for topic in listed] == ["log-a", "log-b", "orders"]
        async with with_principal(["read topic:elsewhere"]) as (node, credentials):
            assert (await node.call("GET", "/v1/topics", None, credentials)).json["topics"] == []

    asyncio.run(main())


def test_a_part_that_its_caller_may_not_append_is_refused_and_the_others_are_stored() -> None:
    async def main() -> None:
        async with with_principal(["produce topic:orders"]) as (node, credentials):
            body = parts_body(({}, arrow_stream([b"a"])), ({"topic": "other"}, arrow_stream([b"b"])))
            answer = await node.call("POST", "/v1/append", body, credentials | PARTS_FORM)
            verdicts = {line["part"]: line for line in map(json.loads, answer.body.splitlines())}
            assert verdicts[0]["stored"]["base_offset"] == 0
            assert verdicts[1]["problem"]["code"] == "PERMISSION_DENIED"
            assert verdicts[1]["problem"]["detail"] == "principal p lacks the right: produce topic:other"
        async with with_principal(["read topic:orders"]) as (node, credentials):
            answer = await node.call("POST", "/v1/append", body, credentials | PARTS_FORM)
            assert (answer.status, answer.json["code"]) == (403, "PERMISSION_DENIED")

    asyncio.run(main())


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
