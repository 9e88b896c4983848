"""The blocking writer repeats requests; its refusals are true of all attempts."""

from typing import Any

import pytest

from stockade.client.blocking.writer import BlockingWriter
from stockade.partition.errors import LeaderNotAvailable, ProducerFenced, RequestTimedOut, StockadeError


@pytest.mark.parametrize(("first", "nothing_was_changed"), [(RequestTimedOut(), False), (LeaderNotAvailable(), True)])
def test_a_refusal_after_an_attempt_of_unknown_outcome_does_not_say_that_nothing_was_changed(
    monkeypatch: pytest.MonkeyPatch, first: StockadeError, nothing_was_changed: bool
) -> None:
    """The first init may have raised the epoch before a namesake's raised it again."""
    attempts = iter([first, ProducerFenced(reason="identity", current_epoch=3)])

    def request(*_: Any) -> Any:
        raise next(attempts)

    writer = BlockingWriter("http://127.0.0.1:1")
    monkeypatch.setattr(writer._http, "request", request)
    with pytest.raises(ProducerFenced) as refusal:
        writer.init_producer("w", "n")
    assert refusal.value.no_side_effects is nothing_was_changed
