"""A client with some rights tries to get more: by how it spells names, by headers of nodes, by asking what there is."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from unittest.mock import AsyncMock

import pytest
from msgspec import structs

from stockade.cluster.access.principals import Access, Principal, PrincipalToken, new_token
from stockade.partition.api.cluster import Reassignment

from ..conversation import Answer, Conversation, nodes
from ..records.test_append import arrow_stream
from ..samples import PARTS_FORM, parts_body

ROOT, CLIENT, NUMBERED = new_token(), new_token(), new_token()
RIGHTS = ["read topic:log-*", "produce topic:log-*", "acquire topic:log-1", "own group:g", "own resource:h/mine*"]
RIGHTS += ["read group:g", "produce producer:mirror"]
MANY = {"records": [{"value": "x"}]}
NODES_WORD = {"Stockade-Forwarded-By": "n2", "Stockade-Client-Certificate": '["00",["CN:root"],"root"]'}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def run(test: Callable[[Conversation], Awaitable[None]]) -> None:
    """A node with the topics log-1 and secret, a principal that may write and read the first, and one with rights on
    producers whose names begin with a digit.
    """
    principals = [
        Principal("root", ["all"], [PrincipalToken(ROOT.hash)], ["CN:root"]),
        Principal("client", RIGHTS, [PrincipalToken(CLIENT.hash)]),
        Principal("numbered", [f"produce producer:{digit}*" for digit in range(10)], [PrincipalToken(NUMBERED.hash)]),
    ]

    async def main() -> None:
        async with nodes(1, Access((), principals)) as (node,):
            for name in ("log-1", "secret"):
                made = await node.call("POST", "/v1/topics", {"name": name}, bearer(ROOT.token))
                assert made.status == 201
            await test(node)

    asyncio.run(main())


async def asked(
    node: Conversation, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> Answer:
    return await node.call(method, path, body, bearer(CLIENT.token) | (headers or {}), valid=False)


SPELLINGS = [
    *("secret", "%73ecret", "s%65cret", "Secret", "SECRET", "secret.", "%20secret", "secret%00", "secret%0a"),
    *("log-1%2F..%2Fsecret", "log-1%2Fsecret", "log-%2e%2e%2fsecret", "log-*", "%2A", "*", "log%2D%00secret"),
    *("lo%67-\uff0esecret", "%EF%BD%93ecret", "%C5%BFecret", "%FF%FE", "%ED%A0%80", "log-" + "x" * 400, "%2e%2e", "%"),
    *("LOG-1", "\u2113og-1", "%6C%6F%67%2D%31%2F", "..;/secret", "secret;log-1", "secret?topic=log-1", "__audit", "_"),
]


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_no_spelling_of_a_name_gets_at_another_topic(spelled: str) -> None:
    """What is checked is what is used: a name is decoded once, before both."""

    async def test(node: Conversation) -> None:
        for method, path, body in (
            ("POST", f"/v1/topics/{spelled}/partitions/0/records", MANY),
            ("POST", f"/v1/topics/{spelled}/records", MANY),
            ("GET", f"/v1/topics/{spelled}/partitions/0/records", None),
            ("GET", f"/v1/topics/{spelled}", None),
        ):
            answer = await asked(node, method, path, body)
            assert answer.status in (400, 403, 404, 405), (method, path, answer)
        found = await node.call("GET", "/v1/topics/secret/partitions/0/records", None, bearer(ROOT.token))
        assert found.json["records"] == []

    run(test)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/topics/{}/partitions/0/records", MANY),
        ("POST", "/v1/topics/{}/partitions/99/records", MANY),
        ("POST", "/v1/topics/{}/records", MANY),
        ("GET", "/v1/topics/{}", None),
        ("GET", "/v1/topics/{}/partitions?find=0", None),
        ("GET", "/v1/topics/{}/partitions/0/contents", None),
        ("GET", "/v1/topics/{}/partitions/0/fences", None),
        ("GET", "/v1/topics/{}/tickets", None),
        ("POST", "/v1/topics/{}/grants", {"partitions": "all", "mode": "Shared", "producer_name": "p"}),
        ("POST", "/v1/topics/{}/fence", {"partitions": "all"}),
        ("POST", "/v1/topics/{}/partitions/0/trim", {"before": 1}),
        ("PUT", "/v1/groups/g/positions/{}/0", {"offset": 1}),
        ("GET", "/v1/groups/g/positions/{}/0", None),
        ("GET", "/v1/groups/g/positions/{}/99", None),
        ("PATCH", "/v1/topics/{}", {"sealed": True}),
        ("DELETE", "/v1/topics/{}", None),
    ],
)
def test_a_refusal_does_not_say_whether_a_topic_exists(method: str, path: str, body: object) -> None:
    async def test(node: Conversation) -> None:
        told = []
        for name in ("secret", "absent"):
            answer = await asked(node, method, path.format(name), body, {"Stockade-Session": "s-1"})
            assert (answer.status, answer.json["code"]) == (403, "PERMISSION_DENIED"), answer
            leader = answer.headers.get("Stockade-Leader"), answer.headers.get("Stockade-Leader-Term")
            told.append((answer.json["detail"].replace(name, "NAME"), leader))
        assert told[0] == told[1]

    run(test)


def test_a_request_with_many_parts_writes_only_those_that_its_principal_may() -> None:
    async def test(node: Conversation) -> None:
        one = arrow_stream([b"x"])
        sent = parts_body(*(({"topic": name}, one) for name in ("log-1", "secret", "absent", "log-9")))
        answer = await asked(node, "POST", "/v1/append", sent, PARTS_FORM)
        lines = sorted(map(json.loads, answer.body.splitlines()), key=lambda line: int(line["part"]))
        assert "stored" in lines[0]
        assert [line["problem"]["code"] for line in lines[1:]] == [
            *["PERMISSION_DENIED"] * 2,
            "UNKNOWN_TOPIC_OR_PARTITION",
        ]

    run(test)


def test_a_producers_status_lists_only_topics_that_the_caller_may_see() -> None:
    async def test(node: Conversation) -> None:
        pair = (await node.call("POST", "/v1/producers", {"name": "mirror"}, bearer(ROOT.token))).json
        trio = {
            "Stockade-Producer-Id": str(pair["producer_id"]),
            "Stockade-Producer-Epoch": str(pair["producer_epoch"]),
        }
        for topic in ("log-1", "secret"):
            path = f"/v1/topics/{topic}/partitions/0/records"
            stored = await node.call("POST", path, MANY, bearer(ROOT.token) | trio | {"Stockade-Producer-Seq": "0"})
            assert stored.status == 200
        for token, topics in ((ROOT, ["log-1", "secret"]), (CLIENT, ["log-1"])):
            found = await node.call("GET", "/v1/producers/mirror", None, bearer(token.token))
            assert [each["topic"] for each in found.json["partitions"]] == topics

    run(test)


def test_the_digits_of_a_producers_id_are_no_name_on_which_there_is_a_right() -> None:
    """Rights on ``1*`` to ``9*`` told of every producer, and its owner was refused its own id."""

    async def test(node: Conversation) -> None:
        root = bearer(ROOT.token)
        pair = (await node.call("POST", "/v1/producers", {"name": "mirror"}, root)).json
        path = f"/v1/producers/{pair['producer_id']}"
        refused = await node.call("GET", path, None, bearer(NUMBERED.token))
        assert (refused.status, "mirror" in str(refused.json)) == (403, False)
        assert (await node.call("GET", path, None, bearer(CLIENT.token))).json["name"] == "mirror"

    run(test)


def test_the_positions_that_a_caller_may_see_are_chosen_before_they_are_counted() -> None:
    async def test(node: Conversation) -> None:
        for group, offset in (("a", 0), ("g", 1)):
            path = f"/v1/groups/{group}/positions/log-1/0"
            await node.call("POST", "/v1/topics/log-1/partitions/0/records", MANY, bearer(ROOT.token))
            assert (await node.call("PUT", path, {"offset": offset}, bearer(ROOT.token))).status == 200
        found = await node.call("GET", "/v1/topics/log-1/partitions/0/contents?n=1", None, bearer(CLIENT.token))
        assert [each["group"] for each in found.json["positions"]] == ["g"]

    run(test)


def test_a_client_that_sends_the_headers_of_a_forwarding_node_gains_no_right() -> None:
    async def test(node: Conversation) -> None:
        for headers in (NODES_WORD, NODES_WORD | bearer(CLIENT.token), NODES_WORD | {"Authorization": "Bearer "}):
            answer = await node.call("GET", "/v1/topics/secret", None, headers, valid=False)
            assert answer.status in (401, 403)

    run(test)


@pytest.mark.parametrize(
    ("resources", "status"),
    [(["mine-1"], 200), (["other"], 403), (["mine-1", "other"], 403), (["Mine-1"], 403), (["\uff4dine"], 403)],
)
def test_a_claim_is_made_of_resources_that_the_principal_may_own_and_no_other(
    resources: list[str], status: int
) -> None:
    async def test(node: Conversation) -> None:
        session = (await asked(node, "POST", "/v1/sessions", {"client_id": "c"})).json["session"]
        body = {"claims": [{"resource": name} for name in resources]}
        answer = await asked(node, "POST", "/v1/groups/h/own", body, {"Stockade-Session": session})
        assert answer.status == status, answer

    run(test)


def test_a_node_tells_a_client_of_no_topic_that_it_may_not_know() -> None:
    """In lists, in the cluster, in metrics, in events of all kinds, and beside a stranger's request."""

    async def test(node: Conversation) -> None:
        await node.call("POST", "/v1/topics/secret/partitions/0/records", MANY, bearer(ROOT.token))
        moving = [Reassignment(name, 0, ["n1"]) for name in ("secret", "log-1")]
        measures = await node.service.measures()
        measures.log.quotas = {"secret": 0.85}
        node.service.measures = AsyncMock(return_value=measures)  # type: ignore[method-assign]
        seen = structs.replace(node.service.cluster(), reassignments=moving)
        node.service.cluster = lambda: seen  # type: ignore[method-assign]
        for path in (
            *("/v1/topics", "/v1/topics?internal=true", "/v1/cluster", "/v1/nodes?everywhere=true", "/v1/events?n=1"),
            *("/v1/refused_writes?everywhere=true", "/v1/groups", "/v1/producers", "/v1/sessions", "/v1/principals"),
            *("/metrics", "/readyz", "/v1/caller", "/v1/stalls"),
        ):
            for headers in (bearer(CLIENT.token), {}):
                answer = await node.call("GET", path, None, headers, valid=False)
                assert b"secret" not in answer.body, path
        assert b"log-1" in (await asked(node, "GET", "/v1/cluster")).body
        for path in ("/v1/cluster", "/metrics"):
            assert b"secret" in (await node.call("GET", path, None, bearer(ROOT.token))).body

    run(test)
