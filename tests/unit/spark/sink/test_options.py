import pytest

from stockade.spark.options import OptionsError
from stockade.spark.sink.options import parse_write_options

GOOD = {"url": "http://127.0.0.1:7101", "topic": "out"}


def test_exactly_once_is_the_default() -> None:
    parsed = parse_write_options(GOOD | {"checkpointLocation": "/c", "queryName": "q"}, "stream")
    assert (parsed.topic, parsed.sink, parsed.takeover, parsed.is_exactly_once) == ("out", None, False, True)
    assert not parse_write_options(GOOD | {"delivery": "at-least-once"}, "batch").is_exactly_once


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"subscribe": "a"}, "unknown option subscribe"),
        ({"topic": "a,b"}, "topic must be the name of one topic"),
        ({"sink": "a~b"}, "sink must be"),
        ({"sink": "x" * 101}, "sink must be"),
        ({"delivery": "at-most-once"}, "delivery must be"),
        ({"delivery": "at-least-once", "sink": "s"}, "sink has no meaning"),
        ({"takeover": "yes"}, "takeover must be true or false"),
        ({"url": ""}, "url must be"),
    ],
)
def test_every_fault_is_named(options: dict[str, str], fault: str) -> None:
    with pytest.raises(OptionsError, match=fault):
        parse_write_options(GOOD | options, "stream")


def test_a_batch_is_not_taken_over() -> None:
    with pytest.raises(OptionsError, match="takeover"):
        parse_write_options(GOOD | {"sink": "s", "takeover": "true"}, "batch")
