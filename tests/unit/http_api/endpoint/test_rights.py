"""Rights: without a credential nothing is done, and each caller does what its rights allow and nothing more."""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stockade.cluster.access.principals import Access, Principal, PrincipalToken, Token, new_token
from stockade.cluster.access.rights import KINDS, Right
from stockade.http_api.routes import UNDOCUMENTED, routes

from ..conversation import Answer, Conversation, document, nodes
from ..records.test_append import arrow_stream
from ..samples import GOOD, PARTS_FORM, parts_body, prepared

LEVEL_TOKENS = {"looks": "read", "writes": "write", "rules": "admin"}
TOKENS = [
    Token(token, hashlib.sha256(token.encode()).hexdigest(), level)  # type: ignore[arg-type]
    for token, level in LEVEL_TOKENS.items()
]
ROUTES = {(route.method, route.path): route for route in routes() if route.path not in UNDOCUMENTED}
RECORDS = "/v1/topics/{topic}/partitions/{partition}/records"
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
    *("list_ledger", "raise_feature_level"),
}
READERS = {
    *(
        "list_topics",
        "get_topic",
        "list_partitions",
        "fetch",
        "wait_for_news",
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


ONLY: dict[str, list[str]] = {
    "list_topics": [],
    "create_topic": ["admin topic:fresh"],
    "get_topic": ["trim topic:orders"],
    "list_partitions": ["produce topic:orders"],
    "change_topic": ["admin topic:orders"],
    "delete_topic": ["admin topic:orders"],
    "append": ["produce topic:orders"],
    "append_by_key": ["produce topic:free"],
    "append_parts": ["produce topic:free"],
    "fetch": ["read topic:orders"],
    "wait_for_news": ["read topic:orders"],
    "get_offset": ["read topic:orders"],
    "read_tail": ["read topic:orders"],
    "begin_at": ["admin topic:free"],
    "trim": ["trim topic:orders"],
    "put_stage": ["produce topic:orders"],
    "list_stages": ["read topic:orders"],
    "change_stages": ["produce topic:orders"],
    "append_stage": ["produce topic:orders"],
    "list_fences": ["read topic:orders"],
    "get_contents": ["read topic:orders"],
    "list_partition_producers": ["read topic:orders"],
    "list_tickets": ["read topic:orders"],
    "open_session": [],
    "renew_session": [],
    "renew_session_by_id": [],
    "close_session": [],
    "close_session_by_id": [],
    "list_sessions": ["admin cluster"],
    "fence_session": ["admin cluster"],
    "acquire": ["acquire topic:orders"],
    "get_ticket": ["acquire topic:orders"],
    "cancel_ticket": [],
    "release": [],
    "fence_topic": ["evict topic:orders"],
    "own": ["own resource:g/printer"],
    "disown": ["own resource:g/printer", "own resource:g/b"],
    "list_groups": ["read cluster"],
    "list_resources": ["read group:g"],
    "get_position": ["read group:g", "read topic:orders"],
    "commit_position": ["own group:g", "read topic:orders"],
    "forget_position": ["own group:g", "read topic:orders"],
    "init_producer": ["produce topic:orders", "produce producer:fresh"],
    "list_producers": ["read cluster"],
    "get_producer": ["produce producer:mirror"],
    "fence_producer": ["evict producer:mirror"],
    "get_caller": [],
    "list_principals": ["admin cluster"],
    "get_principal": ["admin cluster"],
    "put_principal": ["admin cluster"],
    "delete_principal": ["admin cluster"],
    "add_token": ["admin cluster"],
    "delete_token": ["admin cluster"],
    "get_cluster": [],
    "list_ledger": ["admin cluster"],
    "change_members": ["admin cluster"],
    "raise_feature_level": ["admin cluster"],
    "list_backups": ["read cluster"],
    "note_backup": ["admin cluster"],
    "get_balance": ["read cluster"],
    "balance": ["admin cluster"],
    "change_balance": ["admin cluster"],
    "choose_controllers": ["admin cluster"],
    "reassign": ["admin cluster"],
    "transfer_leader": ["admin cluster"],
    "list_nodes": ["read cluster"],
    "list_settings": ["admin cluster"],
    "list_refused_writes": ["read cluster"],
    "follow_events": ["read cluster"],
    "list_stalls": ["admin cluster"],
}
"""All that a caller needs for each operation, and nothing that it does not need."""
ON_ANY_NAME = {("append_parts", "produce topic:free"), ("init_producer", "produce topic:orders")}
"""Rights that let a request in on any name: which topic it is about is said later, or never."""
OF_ANY_VERB = {"get_topic", "list_partitions", "get_producer"}
"""Any right on the name will do."""


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
def test_each_route_refuses_callers_without_a_token_or_the_right(name: str) -> None:
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


def test_a_forwarded_request_keeps_its_token() -> None:
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
        yield node, bearer(made.token)


def refusals(name: str) -> list[tuple[list[str], str]]:
    """For each right that an operation needs, as many others as there are, and what a refusal says is missing."""
    found = []
    for missing in ONLY[name]:
        verb, kind, named = (*missing.replace(":", " ").split(), "")[:3]
        rest = [right for right in ONLY[name] if right != missing]
        elsewhere = [f"{verb} {kind}:{named}-2"] if named else []
        others = [
            str(Right(other, on, "", is_prefix=True))
            for other, kinds in KINDS.items()
            for on in kinds
            if (other, on) != (verb, kind) and (kind != "resource" or on != "group")
        ]
        if name in OF_ANY_VERB:
            found.append((elsewhere, f"read {kind}:{named}"))
        elif (name, missing) in ON_ANY_NAME:
            found.append((rest + others, f"{verb} {kind}:NAME, for any NAME"))
        else:
            found.append((rest + others + elsewhere, missing))
    return found


def test_every_operation_of_the_contract_says_which_rights_it_needs() -> None:
    assert ONLY.keys() == set(GUARDED)


@pytest.mark.parametrize("name", GUARDED)
def test_an_operation_is_refused_by_the_name_of_each_right_that_is_missing_and_done_with_just_its_rights(
    name: str,
) -> None:
    made, access = new_token(), Access()

    async def main() -> None:
        async with nodes(1, access) as (node,):
            wanted = GOOD[name].filled(await prepared(node))

            async def asked(index: int, rights: list[str]) -> Answer:
                access.replicate(index, [Principal("p", rights, [PrincipalToken(made.hash)])])
                headers = dict(wanted.headers) | bearer(made.token)
                return await node.call(wanted.method, wanted.path, wanted.body, headers)

            for index, (others, missing) in enumerate(refusals(name), 1):
                answer = await asked(index, others)
                assert (answer.status, answer.json["code"]) == (403, "PERMISSION_DENIED"), answer.body
                assert answer.json["detail"] == f"principal p lacks the right: {missing}"
            answer = await asked(9, ONLY[name])
            assert answer.status < 300, answer.body

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


def test_a_caller_with_read_rights_owns_free_resources_and_evicts_no_writer() -> None:
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


def test_the_log_says_who_was_refused_from_where_and_what_was_missing(caplog: pytest.LogCaptureFixture) -> None:
    """It had the route alone, so no operator could tell whose token it was that had leaked."""

    async def main() -> None:
        async with with_principal(["produce topic:orders"]) as (node, credentials):
            append = ("POST", "/v1/topics/orders/partitions/0/records", {"records": [{"value": "x"}]})
            assert (await node.call(*append, credentials)).status == 200
            own = ("POST", "/v1/groups/g/own", {"claims": [{"resource": "a\nb"}]})
            with caplog.at_level(logging.INFO, "stockade.http_api"):
                denied = await node.call("POST", "/v1/topics/orders/partitions/0/trim", {"before": 0}, credentials)
                forged = await node.call(*own, credentials | {"Stockade-Session": "s"})
                body = parts_body(*(({"topic": name}, arrow_stream([b"b"])) for name in ("other", "others")))
                parts = await node.call("POST", "/v1/append", body, credentials | PARTS_FORM)
                unknown = await node.call(*append, bearer("stk.0123456789abcdef." + "x" * 43))
            missing = ("trim topic:orders", "own resource:g/a\\nb", "produce topic:other")
            told = [f"principal p at 127.0.0.1 was refused: principal p lacks the right: {right}" for right in missing]
            told += ["a caller at 127.0.0.1 was refused: this cluster does not know the token"]
            paths = ("/v1/topics/{topic}/partitions/{partition}/trim", "/v1/groups/{group}/own", "/v1/append", RECORDS)
            lines = [each.getMessage() for each in caplog.records if each.name == "stockade.http_api.request.call"]
            problems = [denied.json, forged.json, json.loads(parts.body.splitlines()[0])["problem"], unknown.json]
            instances = [problem["instance"] for problem in problems]
            assert lines == [
                f"request {instance} (POST {route}) of {why}"
                for instance, route, why in zip(instances, paths, told, strict=True)
            ]

    asyncio.run(main())
