"""A request finds its leader here, there, or as soon as one is elected, and is proposed once at the most."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from stockade.cluster.api.service import Service
from stockade.cluster.front.front import Front, retry_at_leader, unless_ended
from stockade.partition.errors import LeaderNotAvailable, NotLeaderOrFollower, RequestTimedOut, StockadeError

MOVED = NotLeaderOrFollower("http://n2", 3)
GONE = LeaderNotAvailable("n2 cannot be reached")


class News:
    """The part of a service that hears of leaders."""

    def __init__(self) -> None:
        self.leadership_news = 0
        self._changed = asyncio.Event()

    def hear(self) -> None:
        self.leadership_news += 1
        self._changed.set()

    async def await_leadership_news(self, seen: int, timeout_s: float) -> None:
        if self.leadership_news == seen:
            await self._changed.wait()


class FakeRequest:
    id = "r-1"

    def __init__(self, news: News) -> None:
        self.front: Front = Front(cast(Service, news), leader_wait_s=60)
        self.is_forwarded = False
        self.is_answering = False
        self.is_client_gone = False

    def is_gone(self) -> bool:
        return self.is_client_gone


Step = StockadeError | str


def asked(request: FakeRequest, here: list[Step], there: list[Step]) -> tuple[Awaitable[str], list[str]]:
    """A request with the outcomes of its tries, and which tries were made."""
    tries: list[str] = []

    async def outcome(where: str, steps: list[Step]) -> str:
        tries.append(where)
        step = steps.pop(0)
        if isinstance(step, StockadeError):
            raise step
        return step

    return retry_at_leader(request, lambda: outcome("here", here), lambda _: outcome("there", there)), tries


def run(test: Callable[[FakeRequest, News], Awaitable[None]]) -> None:
    async def main() -> None:
        news = News()
        request = FakeRequest(news)
        async with asyncio.timeout(60):
            await test(request, news)
        assert request.front.waiting_for_leader == 0

    asyncio.run(main())


def test_this_node_answers_when_it_leads_and_the_leader_when_it_does_not() -> None:
    async def test(request: FakeRequest, news: News) -> None:
        answer, tries = asked(request, ["mine"], [])
        assert (await answer, tries) == ("mine", ["here"])
        answer, tries = asked(request, [MOVED], ["theirs"])
        assert (await answer, tries) == ("theirs", ["here", "there"])

    run(test)


def test_a_request_waits_for_news_of_a_leader_and_is_then_answered() -> None:
    async def test(request: FakeRequest, news: News) -> None:
        answer, tries = asked(request, [MOVED, "elected"], [GONE])
        waiting = asyncio.ensure_future(answer)
        while request.front.waiting_for_leader == 0:  # noqa: ASYNC110  # a counter
            await asyncio.sleep(0)
        assert tries == ["here", "there"]
        news.hear()
        assert await waiting == "elected"

    run(test)


@pytest.mark.parametrize("state", ["is_forwarded", "is_answering"])
def test_a_forwarded_request_and_one_that_is_being_answered_are_not_forwarded(state: str) -> None:
    async def test(request: FakeRequest, news: News) -> None:
        setattr(request, state, True)
        answer, tries = asked(request, [MOVED], ["theirs"])
        with pytest.raises(NotLeaderOrFollower):
            await answer
        assert tries == ["here"]

    run(test)


def test_an_unknown_outcome_is_not_tried_again() -> None:
    async def test(request: FakeRequest, news: News) -> None:
        answer, tries = asked(request, [MOVED], [RequestTimedOut()])
        with pytest.raises(RequestTimedOut):
            await answer
        assert tries == ["here", "there"]

    run(test)


def test_the_wait_has_an_end() -> None:
    async def test(request: FakeRequest, news: News) -> None:
        request.front.leader_wait_s = 0
        answer, _ = asked(request, [MOVED], [GONE])
        with pytest.raises(LeaderNotAvailable, match="cannot be reached"):
            await answer

    run(test)


@pytest.mark.parametrize(("end", "error"), [("stop", LeaderNotAvailable), ("go", ConnectionResetError)])
def test_a_wait_ends_with_the_node_and_with_the_client(
    end: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stockade.cluster.front.front.GONE_CHECK_S", 0.01)

    async def test(request: FakeRequest, news: News) -> None:
        never = asyncio.Event()
        waiting = asyncio.ensure_future(unless_ended(cast(Any, request), never.wait()))
        await asyncio.sleep(0)
        if end == "stop":
            request.front.stop()
            request.front.stop()
        else:
            request.is_client_gone = True
        with pytest.raises(error):
            await waiting

    run(test)
