"""Calls that are repeated while their refusal concerns only the moment."""

import asyncio

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
        calls.once = once
        with pytest.raises(ProducerBusy) as refusal:
            await calls.send(method, "/v1/topics/t/grants")
        assert refusal.value.no_side_effects is nothing_was_changed

    asyncio.run(main())
