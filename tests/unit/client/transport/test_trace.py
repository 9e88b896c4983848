"""Which trace a request carries."""

import pytest

from stockade.client.transport.trace import carrying, trace_headers, trace_of

IDS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"


@pytest.mark.parametrize(
    ("flags", "is_carried"), [("01", True), ("03", True), ("00", False), ("02", False), ("1", False)]
)
def test_the_first_record_whose_trace_is_collected_counts(flags: str, is_carried: bool) -> None:
    traceparent = f"{IDS}-{flags}"
    rows = [None, [("own", b"1")], [("traceparent", traceparent.encode())], [("traceparent", f"{IDS}-01".encode())]]
    assert trace_of(rows) == (traceparent if is_carried else f"{IDS}-01")


@pytest.mark.parametrize(
    "value", [b"", b"nonsense-01", b"\xff-01", f"{IDS}-01\r\nX: 1".encode(), f"x{IDS}-01".encode()]
)
def test_a_malformed_traceparent_is_not_sent(value: bytes) -> None:
    assert trace_of([[("traceparent", value)]]) is None


def test_requests_carry_the_trace_of_the_innermost_block_that_has_one() -> None:
    assert trace_headers() == {}
    with carrying("outer"):
        with carrying("inner"):
            assert trace_headers() == {"traceparent": "inner"}
        with carrying(None):
            assert trace_headers() == {"traceparent": "outer"}
    assert trace_headers() == {}
