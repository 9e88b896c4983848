"""Topics, the cluster's description, and what a node serves of itself."""

import asyncio
import logging
import re
from html import escape
from typing import Any

import pytest
from msgspec import structs

from stockade.http_api.request import metrics
from stockade.http_api.routes import UNDOCUMENTED, routes
from stockade.partition.api.cluster import Unready
from stockade.partition.api.topics import TopicSummary
from stockade.partition.errors import BY_CODE
from stockade.partition.refusal_texts import BY_CODE as TEXTS
from stockade.partition.refusal_texts import BY_REASON

from ..conversation import RECORDS, TEXT, Conversation, document, nodes, run
from ..fake_service import FakeService


def test_a_topic_is_created_once() -> None:
    async def test(node: Conversation) -> None:
        body = {"name": "a.b-c_D", "partitions": 3, "replication_factor": 1, "config": {"max_producers": 5}}
        created = await node.call("POST", "/v1/topics", body)
        assert (created.status, created.headers["Location"]) == (201, "/v1/topics/a.b-c_D")
        assert created.json["config"]["max_producers"] == 5
        assert created.json["config"]["retention_ms"] == -1
        assert [partition["partition"] for partition in created.json["partitions"]] == [0, 1, 2]
        assert created.json["partitions"][0]["leader"] == node.url
        again = await node.call("POST", "/v1/topics", body)
        assert (again.status, again.json) == (200, created.json)
        assert "Location" not in again.headers
        other = await node.call("POST", "/v1/topics", body | {"partitions": 4})
        assert (other.status, other.json["topic_id"]) == (409, created.json["topic_id"])

    run(test)


def test_configuration_values_equal_to_the_defaults_are_accepted() -> None:
    async def test(node: Conversation) -> None:
        config = {
            "writer_group": None,
            "dedupe_window_ms": 0,
            "retention_ms": -1,
            "retention_bytes": -1,
            "producer_ttl_ms": 1000,
        }
        created = await node.call("POST", "/v1/topics", {"name": "t", "config": config})
        assert (created.status, created.json["config"]["producer_ttl_ms"]) == (201, 1000)

    run(test)


def test_topics_are_listed_described_and_deleted() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("apples", 2)
        listed = (await node.call("GET", "/v1/topics")).json["topics"]
        assert [(topic["name"], topic["partitions"]) for topic in listed] == [("apples", 2), ("orders", 1)]
        topic_id = listed[0]["topic_id"]
        assert (await node.call("GET", "/v1/topics/apples")).json["topic_id"] == topic_id
        refused = await node.call("DELETE", f"/v1/topics/apples?topic_id={topic_id + 1}")
        assert (refused.status, refused.json["topic_id"]) == (409, topic_id)
        assert (await node.call("DELETE", "/v1/topics/apples")).status == 204
        assert (await node.call("DELETE", "/v1/topics/apples")).status == 404

    run(test)


def test_topics_come_in_pages_by_a_part_of_their_name_and_by_whether_a_slot_is_held() -> None:
    async def test(node: Conversation) -> None:
        for name, partitions in (("Wide-a", 3), ("wide-b", 4), ("wide-c", 5)):
            await node.topic(name, partitions)
        page = (await node.call("GET", "/v1/topics?find=WIDE&first=1&n=1")).json
        assert [topic["name"] for topic in page["topics"]] == ["wide-b"]
        assert (page["total"], page["partitions"], page["held"]) == (3, 12, 0)
        assert (page["single"], page["no_majority"]) == (12, 0)
        session = (await node.call("POST", "/v1/sessions", {"client_id": "c", "ttl_ms": 10000})).json["session"]
        body = {"partitions": [1], "mode": "Exclusive", "producer_name": "w"}
        await node.call("POST", "/v1/topics/wide-c/grants", body, {"Stockade-Session": session})
        page = (await node.call("GET", "/v1/topics?held=true")).json
        assert [(topic["name"], topic["held"]) for topic in page["topics"]] == [("wide-c", 1)]
        assert (page["total"], page["partitions"], page["held"]) == (1, 5, 1)

    run(test)


def test_numbers_that_an_older_controller_does_not_tell_are_null_and_not_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """During an upgrade the list said that no partition lacks a majority, also while nodes were away."""
    listed = FakeService.list_topics

    async def older(service: FakeService) -> list[TopicSummary]:
        return [structs.replace(topic, single=None, no_majority=None) for topic in await listed(service)]

    async def test(node: Conversation) -> None:
        await node.topic("t")
        monkeypatch.setattr(FakeService, "list_topics", older)
        page = (await node.call("GET", "/v1/topics")).json
        assert (len(page["topics"]), page["single"], page["no_majority"]) == (page["total"], None, None)

    run(test)


def test_partitions_are_paged_and_searched() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("wide", 25)
        page = (await node.call("GET", "/v1/topics/wide/partitions?first=20&n=10")).json
        assert (page["total"], [each["partition"] for each in page["partitions"]]) == (25, [20, 21, 22, 23, 24])
        found = (await node.call("GET", "/v1/topics/wide/partitions?find=2&first=1&n=2")).json
        assert (found["total"], [each["partition"] for each in found["partitions"]]) == (7, [12, 20])
        assert (await node.call("GET", "/v1/topics/wide/partitions?n=1001")).status == 400

    run(test)


def test_the_cluster_is_described_as_the_node_sees_it() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            answer = await two.call("GET", "/v1/cluster", None, {"Stockade-Forwarded-By": "client"})
            assert (answer.json["node_id"], answer.json["controller"]["leader_node"]) == ("n2", "n1")
            assert [node["url"] for node in answer.json["nodes"]] == [one.url, two.url]
            assert answer.headers["Stockade-Leader"] == one.url

    asyncio.run(main())


def test_health_is_the_process_and_readiness_is_the_service() -> None:
    async def test(node: Conversation) -> None:
        assert (await node.call("GET", "/healthz")).json == {"status": "ok"}
        assert (await node.call("GET", "/readyz")).json == {"status": "ok"}
        node.service.missing = [Unready("data", "loading", "loading 2 partitions")]
        assert (await node.call("GET", "/healthz")).status == 200
        starting = await node.call("GET", "/readyz")
        assert (starting.status, starting.json["detail"]) == (503, "loading 2 partitions")

    run(test)


@pytest.mark.parametrize(
    ("part", "refused"),
    [
        ("node", ["/readyz", "/readyz/data", "/readyz/control"]),
        ("data", ["/readyz", "/readyz/data"]),
        ("control", ["/readyz", "/readyz/control"]),
        ("partition", ["/readyz"]),
    ],
)
def test_each_question_of_readiness_has_the_reasons_that_concern_it(part: Any, refused: list[str]) -> None:
    async def test(node: Conversation) -> None:
        node.service.missing = [Unready(part, "loading", "it waits")]
        for path in ("/readyz", "/readyz/data", "/readyz/control"):
            answer = await node.call("GET", path)
            if path in refused:
                assert (answer.status, answer.json["code"]) == (503, "LEADER_NOT_AVAILABLE")
                assert answer.json["reasons"] == [{"part": part, "reason": "loading", "detail": "it waits"}]
                assert answer.headers["Retry-After"] == "1"
            else:
                assert (answer.status, answer.json) == (200, {"status": "ok"})

    run(test)


def test_an_answer_that_a_node_is_not_ready_counts_as_no_refusal() -> None:
    """It would fire StockadeNoLeader: load balancers ask a node that starts several times a second."""

    async def test(node: Conversation) -> None:
        node.service.missing = [Unready("node", "starting", "it waits")]
        for path in ("/readyz", "/readyz/data", "/readyz/control", "/readyz", "/readyz"):
            assert (await node.call("GET", path)).status == 503
        text = (await node.call("GET", "/metrics")).body
        assert b"LEADER_NOT_AVAILABLE" not in text
        assert b'stockade_http_requests_total{method="GET",route="/readyz",status="503"} 3.0' in text

    run(test)


def test_a_node_that_leaves_is_ready_for_nothing() -> None:
    async def test(node: Conversation) -> None:
        node.server.leave()
        for path in ("/readyz", "/readyz/data", "/readyz/control"):
            answer = await node.call("GET", path)
            assert (answer.status, answer.json["reasons"][0]["reason"]) == (503, "stopping")

    run(test)


def test_routes_and_document_agree() -> None:
    served = {(route.method, route.path) for route in routes() if route.path not in UNDOCUMENTED}
    documented = {(method.upper(), path) for path, methods in document()["paths"].items() for method in methods}
    assert served == documented


def test_the_query_parameters_of_each_route_are_the_documented_ones() -> None:
    components = document()["components"]["parameters"]
    for route in routes():
        if route.path in UNDOCUMENTED:
            continue
        operation = document()["paths"][route.path][route.method.lower()]
        named = [components[p["$ref"].rpartition("/")[2]] for p in operation.get("parameters", ())]
        assert {*route.query, *route.repeated} == {p["name"] for p in named if p["in"] == "query"}, route.path


def test_every_reference_of_the_document_leads_somewhere() -> None:
    text = repr(document())
    for kind, name in re.findall(r"#/components/(\w+)/(\w+)", text):
        assert name in document()["components"][kind]


def test_every_refusal_is_documented_with_its_policy() -> None:
    schemas = document()["components"]["schemas"]
    examples = {
        schema["examples"][0]["code"]: schema["examples"][0]
        for name, schema in schemas.items()
        if name.startswith("Problem") and name != "Problem"
    }
    assert set(BY_CODE) - set(examples) <= {"GENERATION_FENCED"}, "of a route that is not served yet"
    for code in set(BY_CODE) & set(examples):
        refusal, example = BY_CODE[code], examples[code]
        assert refusal.title == example["title"]
        assert (refusal.retriable, refusal.no_side_effects) == (example["retriable"], example["no_side_effects"])


def test_pages_need_nothing_from_elsewhere() -> None:
    async def test(node: Conversation) -> None:
        for path in ("/", "/docs"):
            page = await node.call("GET", path, None, {"Accept": "text/html"})
            assert page.headers["Content-Type"] == "text/html; charset=utf-8"
            assert not re.search(rb"(src|href)=.?(https?:)?//", page.body)
        assert (await node.call("GET", "/openapi.json")).json == document()
        problems = await node.call("GET", "/docs/problems", valid=False)
        for code in set(BY_CODE) - {"GENERATION_FENCED"}:
            assert f'id="{code}"'.encode() in problems.body

    run(test)


def test_requests_records_and_refusals_are_counted() -> None:
    async def test(node: Conversation) -> None:
        await node.call("POST", RECORDS, b"a\nb\n", TEXT)
        await node.call("GET", "/v1/topics/nowhere")
        await node.call("GET", "/nothing")
        answer = await node.call("GET", "/metrics")
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.body.decode()
        template = "/v1/topics/{topic}/partitions/{partition}/records"
        assert f'stockade_http_requests_total{{method="POST",route="{template}",status="200"}} 1.0' in text
        assert 'stockade_http_requests_total{method="GET",route="none",status="404"} 1.0' in text
        assert 'stockade_http_refusals_total{code="UNKNOWN_TOPIC_OR_PARTITION"} 1.0' in text
        assert "stockade_appended_records_total 2.0" in text
        assert f'stockade_http_request_seconds_count{{method="POST",route="{template}"}} 1.0' in text

    run(test)


def test_the_log_line_has_the_route_and_no_session(caplog: pytest.LogCaptureFixture) -> None:
    async def test(node: Conversation) -> None:
        session = (await node.call("POST", "/v1/sessions", {"client_id": "c"})).json["session"]
        with caplog.at_level(logging.DEBUG):
            await node.call("PUT", "/v1/session", None, {"Stockade-Session": session})
            await node.call("PUT", f"/v1/sessions/{session}")
            await node.call("GET", "/healthz")
        assert session not in caplog.text
        lines = access_lines(caplog)
        assert lines[0].startswith("PUT /v1/session 200 ")
        assert lines[1].startswith("PUT /v1/sessions/{session} 200 ")
        assert re.fullmatch(r"GET /healthz 200 [0-9.]+ ms [0-9]+ bytes", lines[2])

    run(test)


def test_only_refused_and_slow_requests_are_logged_at_info(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(node: Conversation) -> None:
        with caplog.at_level(logging.INFO):
            await node.call("GET", "/healthz")
            await node.call("GET", "/nothing")
            monkeypatch.setattr(metrics, "LONG_S", -1.0)
            await node.call("GET", "/readyz")
        assert [line.split()[1:3] for line in access_lines(caplog)] == [["none", "404"], ["/readyz", "200"]]

    run(test)


def access_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "stockade.http.access"]


def test_topics_that_stockade_made_for_itself_are_listed_when_asked_for() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("stockade-sink.orders")
        await node.topic("stockade-mine")
        for query, hidden in (("", True), ("?internal=false", True), ("?internal=true", False)):
            names = [topic["name"] for topic in (await node.call("GET", "/v1/topics" + query)).json["topics"]]
            assert "stockade-mine" in names
            assert ("stockade-sink.orders" not in names) is hidden
        await node.call("POST", "/v1/producers", {"name": "producer-0123456789abcdef"})
        for query, hidden in (("", True), ("?internal=true", False)):
            found = (await node.call("GET", "/v1/producers" + query)).json["producers"]
            assert ("producer-0123456789abcdef" not in [each["name"] for each in found]) is hidden

    run(test)


def test_the_page_of_problems_has_the_hint_of_each_code_and_reason() -> None:
    async def test(node: Conversation) -> None:
        page = (await node.call("GET", "/docs/problems", valid=False)).body.decode()
        texts = [*TEXTS.items(), *((code, text) for (code, _), text in BY_REASON.items())]
        for code, text in texts:
            if f'id="{code}"' in page:
                assert escape(text.hint).replace("`", "") in page.replace("<code>", "").replace("</code>", "")
        assert "`" not in page
        assert "<code>wrong_epoch</code>: Send the epoch that the grant has" in page

    run(test)
