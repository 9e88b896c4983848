"""Calls that are repeated while their refusal concerns only the moment."""

import asyncio
import gc
import weakref

import pytest

from stockade.client.config import ClientConfig
from stockade.client.transport.calls import Calls
from stockade.client.transport.http import Answer, Request
from stockade.partition.errors import LeaderNotAvailable, ProducerBusy, RequestTimedOut, StockadeError


@pytest.mark.parametrize(
    ("method", "first", "nothing_was_changed"),
    [
        ("POST", RequestTimedOut(), False),
        ("POST", LeaderNotAvailable(), True),
        ("GET", RequestTimedOut(), True),
    ],
)
def test_a_refusal_after_an_attempt_of_unknown_outcome_does_not_say_that_nothing_was_changed(
    method: str, first: StockadeError, nothing_was_changed: bool
) -> None:
    """The first acquire may have been granted, and have evicted a holder, before the second one is refused."""
    attempts = iter([first, ProducerBusy()])

    async def once(request: Request) -> Answer:
        raise next(attempts)

    async def main() -> None:
        calls = Calls(ClientConfig(bootstrap=("http://127.0.0.1:1",), retry_backoff_ms=1))
        calls.once = once  # type: ignore[method-assign]
        with pytest.raises(ProducerBusy) as refusal:
            await calls.send(method, "/v1/topics/t/grants")
        assert refusal.value.no_side_effects is nothing_was_changed

    asyncio.run(main())


@pytest.mark.parametrize("ends_well", [True, False])
def test_nothing_of_a_repeated_call_waits_for_the_garbage_collector(ends_well: bool) -> None:
    """An outage is thousands of failed attempts, and each error knows the frames that hold its request's body."""
    met: list[weakref.ref[StockadeError]] = []

    def noted(refusal: StockadeError) -> StockadeError:
        met.append(weakref.ref(refusal))
        return refusal

    async def attempt() -> int:
        if len(met) < 3:
            raise noted(LeaderNotAvailable())
        if ends_well:
            return 1
        raise noted(ProducerBusy())

    async def outcome(calls: Calls) -> str:
        try:
            return str(await calls.repeat("a call", attempt))
        except ProducerBusy as error:
            return error.code

    async def main() -> None:
        calls = Calls(ClientConfig(bootstrap=("http://127.0.0.1:1",), retry_backoff_ms=1))
        assert await outcome(calls) == ("1" if ends_well else "PRODUCER_BUSY")
        assert [each() for each in met] == [None] * (3 if ends_well else 4)

    gc.collect()
    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()
