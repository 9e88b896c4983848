"""Requests that another node must answer: passed on once, and never with a wrong idea of the outcome."""

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from stockade.cluster.access.principals import Access, Principal, PrincipalToken, new_token
from stockade.cluster.api.partition import Partition
from stockade.http_api.endpoint import forwarding
from stockade.http_api.request import peers
from stockade.http_api.request.peers import Message, Peers
from stockade.partition.errors import LeaderNotAvailable, NotLeaderOrFollower

from ..conversation import NDJSON, RECORDS, TEXT, Conversation, nodes

FORWARDED = {"Stockade-Forwarded-By": "client"}


def test_any_node_answers_and_names_the_leader() -> None:
    async def main() -> None:
        async with nodes(3) as (one, two, three):
            await two.topic()
            one.service.shared.lead("orders", "n3")
            stored = await two.call("POST", RECORDS, {"records": [{"value": "x"}]})
            assert (stored.status, stored.headers["Stockade-Leader"]) == (200, three.url)
            assert stored.headers["Stockade-Leader-Term"] == "6"
            for node in (one, two, three):
                assert await node.values() == ["x"]
                assert (await node.call("GET", RECORDS.replace("records", "tail"))).status == 200
            session = await three.call("POST", "/v1/sessions", {"client_id": "c"})
            assert session.headers["Location"] == "/v1/session"
            mine = {"Stockade-Session": session.json["session"]}
            assert (await two.call("PUT", session.headers["Location"], None, mine)).status == 200
            assert (await two.call("DELETE", session.headers["Location"], None, mine)).status == 204
            assert (await two.call("PUT", session.headers["Location"], None, mine)).json["code"] == "UNKNOWN_SESSION"
            refused = await two.call("POST", RECORDS, {"records": [{}]}, {"Stockade-If-Log-End": "7"})
            assert (refused.status, refused.json["log_end"]) == (412, 1)

    asyncio.run(main())


def test_a_leader_that_does_not_know_the_client_says_how_it_may_prove_who_it_is() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            one.server.front.access = Access(principals=[Principal("p", [], [PrincipalToken(new_token().hash)])])
            answer = await two.call("GET", "/v1/topics")
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")

    asyncio.run(main())


def test_a_forwarded_request_is_answered_421_with_the_leader() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            answer = await two.call("POST", RECORDS, {"records": [{}]}, FORWARDED)
            assert (answer.status, answer.json["code"]) == (421, "NOT_LEADER_OR_FOLLOWER")
            assert (answer.json["leader"], answer.json["leader_term"]) == (one.url, 6)
            assert answer.headers["Stockade-Leader"] == one.url
            assert (await two.call("GET", "/v1/topics", None, FORWARDED)).status == 421
            assert (await one.call("GET", "/v1/topics", None, FORWARDED)).status == 200
            one.service.shared.lead("orders", None)
            unknown = await two.call("GET", RECORDS, None, FORWARDED)
            assert (unknown.json["leader"], unknown.headers["Stockade-Leader"]) == (None, "")

    asyncio.run(main())


def test_a_forwarded_append_is_judged_for_its_shape_before_421() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            for body, status in (({"records": []}, 400), ({"records": [{"value": 1}]}, 400), ({"records": [{}]}, 421)):
                assert (await two.call("POST", RECORDS, body, FORWARDED)).status == status

    asyncio.run(main())


@pytest.mark.parametrize(("method", "path"), [("GET", RECORDS), ("GET", "/v1/groups"), ("PUT", "/v1/session")])
def test_a_read_or_a_renewal_goes_from_a_leader_that_hangs_to_the_next_one(method: str, path: str) -> None:
    async def main() -> None:
        async with nodes(3) as (one, two, three), asyncio.timeout(9):
            await one.topic()
            two.server.front.leader_wait_s = 60
            session = (await one.call("POST", "/v1/sessions", {"client_id": "x"})).json["session"]
            runner = await with_leader(leader := Leader("hang"), two)
            answering = asyncio.create_task(two.call(method, path, headers={"Stockade-Session": session}))
            await leader.asked.wait()  # a session with a ttl of ten seconds would end while its client renews it
            one.service.shared.controller = "n3"
            one.service.shared.lead("orders", "n3")
            assert ((await answering).status, (await answering).headers["Stockade-Leader"]) == (200, three.url)
            leader.is_over.set()
            await runner.cleanup()

    asyncio.run(main())


def test_shape_is_refused_without_asking_the_leader_where_it_can_be() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            await one.server.close()
            assert (await two.call("POST", "/v1/topics", {"x": 1})).status == 400
            assert (await two.call("POST", RECORDS, {"records": [{}]}, {"Stockade-If-Log-End": "x"})).status == 400
            assert (await two.call("POST", RECORDS, b"x", {"Content-Type": "image/png"})).status == 415

    asyncio.run(main())


def test_a_leader_that_refuses_the_connection_leaves_no_unknown_outcome() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            await one.server.close()
            for method, body in (("POST", {"records": [{}]}), ("GET", None)):
                answer = await two.call(method, RECORDS, body)
                assert (answer.status, answer.json["code"]) == (503, "LEADER_NOT_AVAILABLE")

    asyncio.run(main())


class Leader:
    """A node that does something odd with the requests that it gets."""

    def __init__(self, *answers: web.Response | str) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.asked, self.is_over = asyncio.Event(), asyncio.Event()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.seen.append((request.path_qs, dict(request.headers), await request.read()))
        self.asked.set()
        answer = self.answers.pop(0)
        if isinstance(answer, web.Response):
            return answer
        if answer == "hang":
            await self.is_over.wait()
        assert request.transport is not None
        if answer == "break in the body":
            response = web.StreamResponse()
            response.content_length = 5_000_000
            await response.prepare(request)
            await response.write(b"x" * 100_000)
        request.transport.close()
        return web.Response()


def elsewhere(url: str | None) -> web.Response:
    return web.json_response({"code": "NOT_LEADER_OR_FOLLOWER", "leader": url, "leader_term": 7}, status=421)


async def with_leader(leader: Leader, two: Conversation) -> web.ServerRunner:
    """Let ``leader`` stand where n1 was."""
    runner = web.ServerRunner(web.Server(leader.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    two.service.shared.urls["n1"] = f"http://127.0.0.1:{site.port}"
    return runner


@pytest.mark.parametrize(("method", "path"), [("DELETE", "/v1/topics/orders"), ("PUT", "/v1/principals/p")])
def test_a_mutating_request_of_unknown_outcome_is_not_forwarded_again(method: str, path: str) -> None:
    """404 with ``no_side_effects``, say, for the topic that the first request deleted."""

    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            leader = Leader("break", web.json_response({"code": "UNKNOWN_TOPIC_OR_PARTITION"}, status=404))
            runner = await with_leader(leader, two)
            answer = await two.call(method, path, {"rights": ["read topic:*"]} if method == "PUT" else None)
            assert (answer.status, answer.json["code"], len(leader.seen)) == (504, "REQUEST_TIMED_OUT", 1)
            await runner.cleanup()

    asyncio.run(main())


@pytest.mark.parametrize(("method", "code"), [("POST", "REQUEST_TIMED_OUT"), ("GET", "LEADER_NOT_AVAILABLE")])
def test_a_connection_that_breaks_after_sending_is_an_unknown_outcome_only_if_something_could_change(
    method: str, code: str
) -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            leader = Leader("break", "break")
            runner = await with_leader(leader, two)
            answer = await two.call(method, RECORDS, None if method == "GET" else {"records": [{}]})
            assert (answer.json["code"], answer.json["no_side_effects"]) == (code, method == "GET")
            await runner.cleanup()

    asyncio.run(main())


@pytest.mark.parametrize(
    "hints",
    [["nobody"], ["itself"], ["three", "nobody"], ["three", "three"]],
)
def test_hints_are_followed_for_some_hops_and_then_given_up(hints: list[str]) -> None:
    async def main() -> None:
        async with nodes(3) as (one, two, three):
            await one.topic()
            leader = Leader()
            runner = await with_leader(leader, two)
            urls = {"nobody": None, "itself": two.service.shared.urls["n1"], "three": three.url}
            leader.answers = [elsewhere(urls[hint]) for hint in hints]  # and n3 names n1
            refused = await two.call("POST", RECORDS, {"records": [{}]})
            assert (refused.status, refused.json["code"]) == (503, "LEADER_NOT_AVAILABLE")
            assert len(leader.seen) == len(hints)
            await runner.cleanup()

    asyncio.run(main())


def test_a_hint_leads_to_the_answer() -> None:
    async def main() -> None:
        async with nodes(3) as (one, two, three):
            await one.topic()
            leader = Leader(elsewhere(three.url))
            runner = await with_leader(leader, two)
            ours = two.service.shared.topics["orders"]
            moved = asyncio.create_task(two.call("POST", RECORDS, {"records": [{"value": "x"}]}))
            await leader.asked.wait()
            ours.leaders[0] = "n3"
            assert ((await moved).status, await three.values()) == (200, ["x"])
            path, headers, body = leader.seen[0]
            assert (path, headers["Stockade-Forwarded-By"]) == (RECORDS, "n2")
            assert json.loads(body) == {"records": [{"value": "x"}]}
            await runner.cleanup()

    asyncio.run(main())


def test_query_and_guards_are_passed_on_and_other_headers_are_not() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            leader = Leader(elsewhere(None))
            runner = await with_leader(leader, two)
            sent = {"Stockade-If-Log-End": "3", "Cookie": "a=b", "Accept": "application/json"}
            await two.call("POST", RECORDS + "?acks=all&topic_id=1", b"x\n", TEXT | sent)
            path, headers, body = leader.seen[0]
            assert (path, body) == (RECORDS + "?acks=all&topic_id=1", b"x\n")
            assert (headers["Stockade-If-Log-End"], headers["Content-Type"]) == ("3", "text/plain")
            assert "Cookie" not in headers
            await runner.cleanup()

    asyncio.run(main())


def test_a_stream_is_passed_through_as_it_comes() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two), asyncio.timeout(60):
            await one.topic()
            url = two.url + RECORDS + "?follow=true"
            async with two.session.get(url, headers={"Accept": NDJSON["Content-Type"]}) as response:
                assert response.headers["Stockade-Leader"] == one.url
                for value in ("a", "b"):
                    await one.call("POST", RECORDS, {"records": [{"value": value}]})
                    assert json.loads(await response.content.readline())["value"] == value
                one.service.shared.topics["orders"].leaders[0] = None
                one.service.shared.wake()
                last = json.loads(await response.content.readline())
                assert last["problem"]["code"] == "NOT_LEADER_OR_FOLLOWER"
                assert await response.content.read() == b""

    asyncio.run(main())


def test_an_answer_that_breaks_off_is_not_taken_for_whole() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            runner = await with_leader(Leader("break in the body"), two)
            with pytest.raises(aiohttp.ClientPayloadError):
                await two.call("GET", RECORDS, valid=False)
            await runner.cleanup()

    asyncio.run(main())


@pytest.mark.parametrize("form", ["application/x-ndjson", "text/event-stream"])
@pytest.mark.parametrize("is_between", [True, False])
def test_a_stream_whose_leader_dies_ends_with_a_problem_if_it_was_between_two_records(
    form: str, is_between: bool
) -> None:
    async def main() -> None:
        async with nodes(2) as (one, two), asyncio.timeout(60):
            await one.topic()
            gone = asyncio.Event()

            async def die(request: web.BaseRequest) -> web.StreamResponse:
                response = web.StreamResponse(headers={"Content-Type": form})
                await response.prepare(request)
                await response.write(b"{}\n\n" if is_between else b'{"offs')
                await gone.wait()
                assert request.transport is not None
                request.transport.close()
                return response

            leader = Leader()
            leader.handle = die  # type: ignore[method-assign]
            runner = await with_leader(leader, two)
            async with two.session.get(two.url + RECORDS + "?follow=true", headers={"Accept": form}) as response:
                received = await response.content.readany()
                gone.set()
                if is_between:
                    received += await response.content.read()
                    assert b"LEADER_NOT_AVAILABLE" in received
                else:
                    with pytest.raises(aiohttp.ClientPayloadError):
                        await response.content.read()
            await runner.cleanup()

    asyncio.run(main())


@pytest.mark.parametrize("form", ["application/x-ndjson", "text/event-stream"])
def test_a_followed_stream_ends_with_a_problem_when_its_leader_stalls_and_not_when_it_is_silent(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed open without a byte for as long as the node stood still: its client never asked the next leader."""
    monkeypatch.setattr(forwarding, "SILENT_S", 0.01)
    monkeypatch.setattr(peers, "PROOF_S", 1.0)

    async def main() -> None:
        async with nodes(2) as (one, two), asyncio.timeout(60):
            await one.topic()
            stands_still, is_over, is_asked = asyncio.Event(), asyncio.Event(), asyncio.Semaphore(0)

            async def handle(request: web.BaseRequest) -> web.StreamResponse:
                if request.path != "/healthz":
                    response = web.StreamResponse(headers={"Content-Type": form})
                    await response.prepare(request)
                    await response.write(b"{}\n\n")
                    await is_over.wait()
                    return response
                if stands_still.is_set():
                    await is_over.wait()
                is_asked.release()
                return web.Response()

            leader = Leader()
            leader.handle = handle  # type: ignore[method-assign]
            runner = await with_leader(leader, two)
            async with two.session.get(two.url + RECORDS + "?follow=true", headers={"Accept": form}) as response:
                assert await response.content.readany() == b"{}\n\n"
                for _ in range(2):
                    await is_asked.acquire()
                assert not response.content.at_eof()
                stands_still.set()
                assert b"LEADER_NOT_AVAILABLE" in await response.content.read()
            is_over.set()
            await runner.cleanup()

    asyncio.run(main())


def test_streams_share_the_question_whether_their_node_is_alive() -> None:
    asked = 0

    async def main() -> None:
        async with nodes(2) as (one, two):

            async def count(node_id: str, protocol: asyncio.Protocol) -> None:
                nonlocal asked
                asked += 1
                await open_stream(node_id, protocol)

            open_stream, two.service.open_stream = two.service.open_stream, count  # type: ignore[method-assign]
            asking = Peers(two.service)
            await asking.open()
            await asyncio.gather(*(asking.prove("n1") for _ in range(100)))
            assert asked == 1
            await asking.close()
            await one.server.close()
            asking = Peers(two.service)
            await asking.open()
            with pytest.raises(LeaderNotAvailable):
                await asking.prove("n1")
            await asking.close()

    asyncio.run(main())


def test_large_bodies_and_answers_pass() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic("large", max_batch_bytes=16_777_216)
            path = "/v1/topics/large/partitions/0/records"
            value = b"x" * 5_000_000
            assert (await two.call("POST", path, value, TEXT)).status == 200
            answer = await two.call("GET", path, valid=False)
            assert answer.json["records"][0]["value"] == value.decode()

    asyncio.run(main())


def test_a_long_wait_is_waited_for() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two), asyncio.timeout(60):
            await one.topic()
            waiting = asyncio.create_task(two.call("GET", RECORDS + "?max_wait_ms=20000"))
            await one.service.shared.reader_came.wait()
            await one.call("POST", RECORDS, {"records": [{"value": "x"}]})
            assert len((await waiting).json["records"]) == 1

    asyncio.run(main())


def test_a_node_without_a_replica_gives_a_long_poll_its_whole_time_at_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_s: list[float] = []
    reach = Peers.reach

    async def noted(self: Peers, leader: str | None, message: Message, deadline_s: float) -> aiohttp.ClientResponse:
        given_s.append(deadline_s)
        return await reach(self, leader, message, deadline_s)

    monkeypatch.setattr(Peers, "reach", noted)

    async def main() -> None:
        async with nodes(2) as (one, two), asyncio.timeout(60):
            await one.topic()

            async def elsewhere(*_: object) -> Partition:
                raise NotLeaderOrFollower(leader=two.service.shared.urls["n1"], leader_term=1)

            monkeypatch.setattr(two.service, "partition", elsewhere)
            waiting = asyncio.create_task(two.call("GET", RECORDS + "?max_wait_ms=20000"))
            await one.service.shared.reader_came.wait()
            await one.call("POST", RECORDS, {"records": [{"value": "x"}]})
            assert len((await waiting).json["records"]) == 1
            assert given_s[0] > 20

    asyncio.run(main())


def test_a_long_poll_that_was_passed_on_ends_with_its_client() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two), asyncio.timeout(60):
            await one.topic()
            begun, ended = asyncio.Event(), asyncio.Event()

            async def wait(request: web.BaseRequest) -> web.StreamResponse:
                begun.set()
                try:
                    await request.content.wait_eof()
                    while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                finally:
                    ended.set()
                return web.Response()

            leader = Leader()
            leader.handle = wait  # type: ignore[method-assign]
            runner = await with_leader(leader, two)
            asking = asyncio.create_task(two.call("GET", RECORDS + "?offset=0&max_wait_ms=60000"))
            await begun.wait()
            asking.cancel()
            await ended.wait()
            await runner.cleanup()

    asyncio.run(main())


def test_a_request_that_waited_in_vain_is_refused_with_a_time_to_come_back() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            two.server.front.leader_wait_s = 0.5
            leader = Leader(*(elsewhere(None) for _ in range(100)))
            runner = await with_leader(leader, two)
            answer = await two.call("POST", RECORDS, {"records": [{}]})
            assert (answer.status, answer.json["no_side_effects"]) == (503, True)
            assert answer.headers["Retry-After"] == "1"
            assert len(leader.seen) > 1
            await runner.cleanup()

    asyncio.run(main())
