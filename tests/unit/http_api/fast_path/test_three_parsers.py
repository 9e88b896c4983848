"""The fast path, aiohttp and h11 never read the same bytes as two different requests."""

import os

import pytest
from fuzz.parsers import by_aiohttp, by_fast_path, by_h11, difference
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = st.sampled_from(
    [
        *(b"Host", b"Content-Length", b"content-length", b"Transfer-Encoding", b"Connection", b"Expect", b"Upgrade"),
        *(
            b"Stockade-Producer-Seq",
            b"Stockade-Session",
            b"X-Y",
            b"A ",
            b" A",
            b"A\x00",
            b"",
            b"Content_Length",
            b"Trailer",
            b"TE",
        ),
    ]
)
VALUES = st.sampled_from(
    [
        *(b"", b"0", b"3", b" 3 ", b"3,3", b"3, 3", b"0x3", b"+3", b"03", b"3\t", b"\x0b3", b"3\x00", b"-1", b"9" * 20),
        *(b"chunked", b"Chunked", b"chunked, chunked", b"gzip, chunked", b"identity", b"xchunked", b"chunked\x0b"),
        *(b"close", b"keep-alive", b"h2c", b"100-continue", b"a\r\n b", b"a\n b", b"\xff", b"x\rContent-Length: 5"),
    ]
) | st.binary(max_size=4)
LINE_ENDS = st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r", b"\r\r\n"])
LINES = st.lists(st.builds(lambda name, value, end: name + b":" + value + end, NAMES, VALUES, LINE_ENDS), max_size=4)
STARTS = st.builds(
    lambda method, target, version, end: method + b" " + target + b" " + version + end,
    st.sampled_from([b"GET", b"POST", b"PUT", b"HEAD", b"M-SEARCH", b"get", b"CONNECT", b"G(T", b"PRI"]),
    st.sampled_from(
        [b"/", b"/a/b", b"/a?b=c", b"*", b"//x", b"/a#b", b"/%zz", b"http://x/y", b"/a b", b"/\xc3\xa4", b"x:1"]
    ),
    st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"http/1.1", b"HTTP/1.1 "]),
    LINE_ENDS,
)
BODIES = st.sampled_from(
    [
        *(b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"3;x=y\r\nabc\r\n0\r\n\r\n", b"0\r\nA: b\r\n\r\n", b"3\nabc\n0\n\n"),
        *(
            b"03\r\nabc\r\n0\r\n\r\n",
            b"0x3\r\nabc\r\n0\r\n\r\n",
            b"3 \r\nabc\r\n0\r\n\r\n",
            b"-3\r\nabc\r\n",
            b"3\r\nabcX0\r\n\r\n",
        ),
        *(b"F" * 17 + b"\r\nabc", b"3;\nx\r\nabc\r\n0\r\n\r\n", b"\r\n"),
    ]
)
REQUESTS = st.builds(
    lambda start, host, lines, end, body: start + host + b"".join(lines) + end + body,
    STARTS,
    st.sampled_from([b"Host: x\r\n"] * 6 + [b"", b"Host: y\r\nHost: x\r\n"]),
    LINES,
    st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r", b""]),
    BODIES,
)
PLAIN = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


@settings(max_examples=1000 * int(os.environ.get("FUZZ_FACTOR", "1")), deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=3))
def test_no_two_parsers_read_the_same_bytes_differently(requests: list[bytes]) -> None:
    assert difference(b"".join(requests)) is None


def test_plain_requests_are_read_by_all_three() -> None:
    """Or the property above would hold of parsers that refuse everything."""
    for parse in (by_fast_path, by_aiohttp, by_h11):
        assert [(read.method, read.target, read.body) for read in parse(PLAIN * 3)] == [("POST", "/a", b"abc")] * 3
    for parse in (by_aiohttp, by_h11):
        assert [read.body for read in parse(CHUNKED + PLAIN + CHUNKED)] == [b"abc"] * 3


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.parsers.by_h11", lambda data: by_h11(data.replace(b"abc", b"abd")))
    assert difference(PLAIN) is not None
