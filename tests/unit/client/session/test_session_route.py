"""The requests of a session: its id is in no path, unless nodes of an older release want it there; late answers."""

import asyncio
import time

import pytest

from stockade.client.api.client import Client
from stockade.client.api.session_route import REMEMBERED_S, SessionRoute
from stockade.client.config import ClientConfig
from stockade.client.session.session import Session
from stockade.partition.errors import InvalidRequest, NotFound, StockadeError, UnknownSession

from ..fake_cluster import FakeCluster, Fault

NEW, OLD = "/v1/session", "/v1/sessions/{session}"


def asked(cluster: FakeCluster, session: str) -> list[str]:
    """Requests to renew or close the session, with its template for the path."""
    paths = [(method, path.replace(session, "{session}")) for method, path in cluster.requests]
    return [f"{method} {path}" for method, path in paths if path in (NEW, OLD)]


async def live(cluster: FakeCluster) -> str:
    """The life of a session with three renewals."""
    async with Client(ClientConfig(bootstrap=tuple(cluster.nodes))) as client:
        session = (await client.open_session("c", 10_000)).session
        for _ in range(3):
            assert (await client.renew_session(session, 10_000)).session == session
        await client.close_session(session)
        assert session not in cluster.sessions
        with pytest.raises(UnknownSession):
            await client.renew_session(session, 10_000)
        return session


def test_the_id_of_a_session_is_in_no_path(cluster: FakeCluster) -> None:
    session = asyncio.run(live(cluster))
    assert asked(cluster, session) == [f"PUT {NEW}"] * 3 + [f"DELETE {NEW}", f"PUT {NEW}"]
    assert not [path for _, path in cluster.requests if session in path]


def test_a_cluster_of_the_release_before_is_asked_as_it_was_and_costs_one_request(cluster: FakeCluster) -> None:
    cluster.unknown_routes = {NEW}
    session = asyncio.run(live(cluster))
    assert asked(cluster, session) == [f"PUT {NEW}", *[f"PUT {OLD}"] * 3, f"DELETE {OLD}", f"PUT {OLD}"]


@pytest.mark.parametrize("method", ["renew_session", "close_session"])
def test_each_request_finds_the_route_by_itself(cluster: FakeCluster, method: str) -> None:
    cluster.unknown_routes = {NEW}

    async def run() -> None:
        async with Client(ClientConfig(bootstrap=tuple(cluster.nodes))) as client:
            session = (await client.open_session("c", 10_000)).session
            await (
                client.renew_session(session, 10_000) if method == "renew_session" else client.close_session(session)
            )
            verb = "PUT" if method == "renew_session" else "DELETE"
            assert asked(cluster, session) == [f"{verb} {NEW}", f"{verb} {OLD}"]

    asyncio.run(run())


def test_a_session_lives_on_while_its_cluster_is_upgraded_and_rolled_back(cluster: FakeCluster) -> None:
    async def run() -> None:
        async with Client(ClientConfig(bootstrap=tuple(cluster.nodes))) as client:
            session = (await client.open_session("c", 10_000)).session
            for unknown in (NEW, OLD, NEW):
                cluster.unknown_routes = {unknown}
                for _ in range(2):
                    assert (await client.renew_session(session, 10_000)).session == session
            assert asked(cluster, session) == [f"PUT {path}" for path in (NEW, OLD, OLD, OLD, NEW, NEW, NEW, OLD, OLD)]

    asyncio.run(run())


class Nodes:
    """What they know; each attempt is noted."""

    def __init__(self, *known: str) -> None:
        self.known = known
        self.asked: list[str] = []

    async def attempt(self, path: str, headers: dict[str, str]) -> str:
        assert (headers == {"Stockade-Session": "s-1"}) == (path == NEW)
        template = path.replace("s-1", "{session}")
        self.asked.append(template)
        if template not in self.known:
            raise NotFound("no such route", what="route")
        return template


def ask(route: SessionRoute, nodes: Nodes) -> list[str]:
    """The paths that one request tries."""
    nodes.asked.clear()
    asyncio.run(_asked(route, nodes))
    return list(nodes.asked)


async def _asked(route: SessionRoute, nodes: Nodes) -> None:
    assert await route.ask("s-1", nodes.attempt) in nodes.known


def test_the_route_without_an_id_is_tried_again_when_the_upgrade_may_be_over() -> None:
    now_s = [5.0]
    route, nodes = SessionRoute(lambda: now_s[0]), Nodes(OLD)
    assert ask(route, nodes) == [NEW, OLD]
    now_s[0] += REMEMBERED_S - 1
    assert ask(route, nodes) == [OLD]
    now_s[0] += 2
    assert ask(route, nodes) == [NEW, OLD]
    nodes.known = (NEW, OLD)
    now_s[0] += REMEMBERED_S + 1
    assert ask(route, nodes) == [NEW]
    assert ask(route, nodes) == [NEW]


def test_a_release_without_the_deprecated_route_is_found_at_once() -> None:
    route, nodes = SessionRoute(), Nodes(OLD)
    assert ask(route, nodes) == [NEW, OLD]
    nodes.known = (NEW,)
    assert ask(route, nodes) == [OLD, NEW]
    assert ask(route, nodes) == [NEW]


@pytest.mark.parametrize("refusal", [UnknownSession(), NotFound("No such node", what="node")])
def test_another_refusal_is_the_answer(refusal: StockadeError) -> None:
    asked: list[str] = []

    async def attempt(path: str, headers: dict[str, str]) -> None:
        asked.append(path)
        raise refusal

    with pytest.raises(type(refusal)):
        asyncio.run(SessionRoute().ask("s-1", attempt))
    assert asked == [NEW]


@pytest.mark.parametrize("bad", ["s-1\r\nX: y", "s\n", None, 7])
def test_a_text_that_cannot_be_a_session_id_is_refused_and_not_shown(cluster: FakeCluster, bad: str) -> None:
    async def run() -> None:
        async with Client(ClientConfig(bootstrap=tuple(cluster.nodes))) as client:
            with pytest.raises(InvalidRequest, match="not the id of a session") as raised:
                await client.renew_session(bad, 1000)
            assert "X: y" not in str(raised.value)
            with pytest.raises(InvalidRequest):
                await client.close_session(bad)

    asyncio.run(run())
    assert cluster.requests == []


def test_a_renewal_that_is_answered_after_the_next_one_was_sent_counts(cluster: FakeCluster) -> None:
    """It was given up after a fifth of the ttl: in a cluster that answered later than that, each session ended."""
    cluster.renewal_faults = [Fault.HOLD, *[Fault.LOSE_REQUEST] * 100]

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes))
        async with Client(config) as client, Session(client, "me", ttl_ms=3000) as session:
            began_s = time.monotonic()
            await cluster.seen("PUT", 2)
            cluster.release_held()
            await asyncio.wait_for(session.lost.wait(), 60)
            assert time.monotonic() - began_s > 3.2, "a third of the ttl, and four fifths of it"

    asyncio.run(run())


@pytest.mark.parametrize(("connections", "is_alone"), [(2, True), (8, False)])
def test_a_client_with_few_connections_has_one_renewal_under_way_at_a_time(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, connections: int, is_alone: bool
) -> None:
    """The one after a renewal without an answer had another one beside it, for which there may be no connection."""
    asked_ms, under_way, most = list[int](), 0, 0

    async def renew(_: str, timeout_ms: int) -> None:
        nonlocal under_way, most
        asked_ms.append(timeout_ms)
        under_way += 1
        most = max(most, under_way)
        try:
            await asyncio.Event().wait()
        finally:
            under_way -= 1

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), connections_max=connections)
        async with Client(config) as client, Session(client, "me", ttl_ms=3000) as session:
            monkeypatch.setattr(client, "renew_session", renew)
            await asyncio.wait_for(session.lost.wait(), 60)

    asyncio.run(run())
    a_fifth_of_the_ttl_ms = 600
    assert (asked_ms[0] <= a_fifth_of_the_ttl_ms, most == 1, under_way) == (is_alone, is_alone, 0)
