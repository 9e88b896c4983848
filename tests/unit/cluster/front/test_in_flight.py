"""What the requests in flight hold together is bounded, and given back when they end."""

import asyncio

import pytest

from stockade.cluster.front.front import InFlight, UnackedAppends
from stockade.partition.errors import InternalError, InvalidRequest, ThrottlingQuotaExceeded

KINDS = ("requests", "body_bytes", "answer_bytes", "followers")


def used(in_flight: InFlight) -> list[int]:
    return [getattr(in_flight, kind).used for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_that_is_used_up_refuses_until_something_is_given_back(kind: str) -> None:
    in_flight = InFlight()
    budget = getattr(in_flight, kind)
    budget.limit = 10
    in_flight.take(**{kind: 10})
    with pytest.raises(ThrottlingQuotaExceeded, match=budget.what) as refused:
        in_flight.take(**{kind: 1})
    assert refused.value.fields["retry_after_ms"] == budget.retry_after_ms > 0
    in_flight.give_back(**{kind: 10})
    in_flight.take(**{kind: 10})


@pytest.mark.parametrize("full", KINDS)
def test_all_is_taken_or_nothing(full: str) -> None:
    in_flight = InFlight()
    getattr(in_flight, full).limit = 0
    with pytest.raises(ThrottlingQuotaExceeded):
        in_flight.take(1, 1, 1, 1)
    assert used(in_flight) == [0, 0, 0, 0]


def test_a_used_budget_refuses_only_requests_that_take_of_it() -> None:
    in_flight = InFlight()
    in_flight.body_bytes.limit = 0
    in_flight.take(requests=1, answer_bytes=5)
    assert used(in_flight) == [1, 0, 5, 0]
    in_flight.give_back(1, 0, 5)
    assert used(in_flight) == [0, 0, 0, 0]


def test_unacknowledged_appends_are_bounded_and_each_ends_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        unacked, may_end, ended, codes = UnackedAppends(tasks_max=4), asyncio.Event(), list[str](), list[str]()

        async def append(name: str, error: Exception | None = None) -> None:
            await may_end.wait()
            if error is not None:
                raise error

        def start(name: str, error: Exception | None = None) -> None:
            unacked.start(append(name, error), lambda: ended.append(name), codes.append)

        start("stored")
        start("refused", InvalidRequest("no"))
        start("bug", ZeroDivisionError())
        start("told", InternalError())
        with pytest.raises(ThrottlingQuotaExceeded):
            start("one too many")
        may_end.set()
        await unacked.close(timeout_s=60)
        assert sorted(ended) == ["bug", "refused", "stored", "told"]
        assert sorted(codes) == ["INTERNAL_ERROR", "INTERNAL_ERROR", "INVALID_REQUEST"]

    asyncio.run(main())
    assert [record.levelname for record in caplog.records if record.exc_info] == ["ERROR"]


def test_an_append_that_does_not_end_in_time_is_cancelled() -> None:
    async def main() -> None:
        unacked, ended = UnackedAppends(), asyncio.Event()
        unacked.start(asyncio.Event().wait(), ended.set, list[str]().append)
        await unacked.close(timeout_s=0)
        async with asyncio.timeout(60):
            await ended.wait()

    asyncio.run(main())
