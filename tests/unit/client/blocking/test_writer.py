"""The blocking writer repeats requests; its refusals are true of all attempts."""

from http.client import HTTPMessage
from typing import Any

import pytest

from stockade.client.blocking.http import PlainAnswer, PlainHttp
from stockade.client.blocking.writer import BlockingWriter
from stockade.client.config import ClientConfig
from stockade.client.errors import Source
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


def test_a_leader_that_does_not_answer_sends_no_request_to_a_node_that_does_not_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node after the one that had answered was asked next, and that was the one that had not."""
    silent, good, leader = "http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"
    asked = list[str]()

    def request(http: Any, node: str, *_: Any) -> Any:
        asked.append(node)
        if node != good:
            raise RequestTimedOut
        return PlainAnswer(200, HTTPMessage(), b"{}", Source("POST", node, 200, None))

    monkeypatch.setattr(PlainHttp, "request", request)
    writer = BlockingWriter(ClientConfig(bootstrap=(silent, good), retry_backoff_ms=1))
    writer._leaders["/v1/topics/t/partitions/0"] = leader
    assert writer._reader.node == good
    writer.trim("t", 0, 0)
    assert asked == [silent, good, leader, good]
