import msgspec
import pytest

import stockade.client.errors
import stockade.errors
from stockade.client.errors import (
    PlaintextRefused,
    Source,
    UnknownRefusal,
    UnreadableAnswer,
    refusal_of,
    with_fields,
)
from stockade.client.retry import is_momentary
from stockade.partition.errors import BY_CODE, OffsetOutOfRange, ProducerFenced, RequestTimedOut, StockadeError


def came(status: int, method: str = "POST") -> Source:
    return Source(method, "http://n1", status, "text/html")


def problem(code: str, status: int, **members: object) -> bytes:
    return msgspec.json.encode({"type": "t", "title": "t", "status": status, "detail": "d", "code": code, **members})


@pytest.mark.parametrize("code", BY_CODE)
def test_a_known_problem_comes_back_as_its_class_with_its_own_fields(code: str) -> None:
    error = refusal_of(
        came(BY_CODE[code].http_status), problem(code, 400, retriable=True, no_side_effects=True, extra=7)
    )
    assert type(error) is BY_CODE[code]
    assert error.fields == {"extra": 7}
    assert error.retriable is BY_CODE[code].retriable


def test_a_refusal_that_came_after_effects_says_so_here_too() -> None:
    """An acquire whose grant was made, and then ended by another one."""
    error = refusal_of(came(403), problem("PRODUCER_FENCED", 403, no_side_effects=False, reason="evicted"))
    assert (type(error), error.no_side_effects) == (ProducerFenced, False)
    assert with_fields(error, outcome=None).no_side_effects is False
    assert ProducerFenced().no_side_effects is True


def test_an_error_has_the_hint_of_its_problem_document() -> None:
    said = ProducerFenced(reason="identity", current_epoch=3)
    error = refusal_of(came(403), problem("PRODUCER_FENCED", 403, reason="identity", current_epoch=3, hint=said.hint))
    assert (error.hint, "hint" in error.fields) == (said.hint, False)
    assert "name" in error.hint


@pytest.mark.parametrize("status", [403, 409])
def test_an_unknown_code_with_403_or_409_is_final_whatever_it_claims(status: int) -> None:
    error = refusal_of(came(status), problem("NEWS", status, retriable=True, no_side_effects=True, since=3))
    assert isinstance(error, UnknownRefusal)
    assert (error.code, error.retriable, error.no_side_effects, error.fields) == ("NEWS", False, True, {"since": 3})


def test_an_unknown_code_with_503_is_as_retriable_as_it_says() -> None:
    assert is_momentary(refusal_of(came(503), problem("NEWS", 503, retriable=True, no_side_effects=True)))
    assert not is_momentary(refusal_of(came(503), problem("NEWS", 503, retriable=False, no_side_effects=True)))


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'"text"', b'{"code": 7}', b"\xff"])
@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_5xx_without_a_problem_leaves_the_outcome_open(status: int, body: bytes) -> None:
    error = refusal_of(came(status), body)
    assert isinstance(error, RequestTimedOut)
    assert not error.no_side_effects
    assert refusal_of(came(status, "GET"), body).no_side_effects, "a read changes nothing"


def test_the_source_of_an_unreadable_answer_is_described() -> None:
    error = refusal_of(came(502), b"<html>\n  <title>502 Bad Gateway</title>" + b"x" * 10_000)
    assert isinstance(error, UnreadableAnswer)
    assert error.detail.startswith(
        "http://n1 gave an answer that no node gives: status 502, text/html, and the body begins with "
        "'<html> <title>502 Bad Gateway</title>xxx"
    )
    assert error.detail.endswith("(without a problem document); the outcome is unknown")
    assert len(error.detail) < 300
    assert "curl" in error.hint
    assert is_momentary(error)


def test_a_4xx_without_a_problem_is_final() -> None:
    error = refusal_of(came(418), b"teapot")
    assert (error.code, error.retriable) == ("HTTP_418", False)
    assert "http://n1 gave an answer that no node gives: status 418" in error.detail


def test_a_proxy_that_limits_requests_concerns_the_moment() -> None:
    """It halted the partition: its records failed for good, at the first of these answers."""
    error = refusal_of(came(429), b"slow down")
    assert (error.code, error.retriable, error.no_side_effects) == ("HTTP_429", True, True)
    assert is_momentary(error)


def test_a_copy_keeps_class_detail_and_other_fields() -> None:
    error = ProducerFenced("gone", current_epoch=2, outcome={"state": "committed"})
    copy = with_fields(error, outcome={"state": "absent"})
    assert type(copy) is ProducerFenced
    assert copy.detail == "gone"
    assert copy.fields == {"current_epoch": 2, "outcome": {"state": "absent"}}
    assert error.fields["outcome"] == {"state": "committed"}
    assert with_fields(OffsetOutOfRange(1, 2, 3), x=1).status == 410


def test_a_note_on_a_copy_of_an_error_is_not_on_the_original() -> None:
    error = ProducerFenced(reason="identity", current_epoch=2)
    before = list(error.__notes__)
    copy = with_fields(error, outcome={"state": "absent"})
    copy.add_note("of the copy")
    assert (error.__notes__, copy.__notes__) == (before, [*before, "of the copy"])


def test_only_momentary_refusals_are_repeated() -> None:
    momentary = {code for code, kind in BY_CODE.items() if is_momentary(kind.__new__(kind))}
    assert momentary == {
        "NOT_LEADER_OR_FOLLOWER",
        "THROTTLING_QUOTA_EXCEEDED",
        "LEADER_NOT_AVAILABLE",
        "NOT_ENOUGH_REPLICAS",
        "LEDGER_FULL",
        "TIERED_STORE_UNAVAILABLE",
        "REQUEST_TIMED_OUT",
        "WAIT_QUEUE_FULL",
        "INSUFFICIENT_STORAGE",
        "STORAGE_QUOTA_EXCEEDED",
    }
    assert not is_momentary(StockadeErrorWithoutPolicy())


class StockadeErrorWithoutPolicy(StockadeError):
    code, title, http_status = "TEST_ONLY", "For this test", 400


def test_every_refusal_of_the_contract_and_of_the_client_can_be_caught_by_its_name() -> None:
    public = {getattr(stockade.errors, name) for name in stockade.errors.__all__}
    own = all_below(StockadeError).intersection(filter(callable, vars(stockade.client.errors).values()))
    assert PlaintextRefused in own
    assert {*BY_CODE.values(), StockadeError, *own} <= public


def all_below(kind: type[StockadeError]) -> set[type[StockadeError]]:
    return {kind}.union(*map(all_below, kind.__subclasses__()))
