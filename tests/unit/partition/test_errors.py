"""Refusals as Python objects."""

import copy
import pickle
from collections.abc import Callable

import pytest

from stockade.client.errors import ProducerAborted, Source, UnreadableAnswer
from stockade.partition.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    ProducerBusy,
    SessionExpired,
    StockadeError,
)

REFUSALS = [
    InvalidRequest("no topic"),
    LeaderNotAvailable("an election", retry_after_ms=7),
    NotLeaderOrFollower("n2", 4),
    OffsetOutOfRange(9, 1, 5, stale=True),
    ProducerBusy(reason="held", holder={"producer_name": "alice"}),
    SessionExpired("too late").had_effects(),
    ProducerAborted("stopped", outcome="unknown"),
    UnreadableAnswer(Source("POST", "http://127.0.0.1:1", 502, "text/html"), b"<html>", "no JSON"),
]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: str(error.code))
@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy], ids=["pickle", "copy"])
def test_a_refusal_that_another_process_gets_is_the_same(
    error: StockadeError, again: Callable[[StockadeError], StockadeError]
) -> None:
    other = again(error)
    assert other is not error
    assert other == error
    assert (str(other), other.detail, other.hint) == (str(error), error.detail, error.hint)
    assert (other.no_side_effects, other.retriable, other.status) == (
        error.no_side_effects,
        error.retriable,
        error.status,
    )
