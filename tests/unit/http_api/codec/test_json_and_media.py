"""The pure parts: JSON as strict as the contract, media types, and the reduction of the contract."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stockade.http_api.codec import json_codec, media
from stockade.http_api.codec.parameters import integer
from stockade.http_api.codec.schemas import CONFIG_FAULTS_MAX, NewTopic, SessionFence, read_config
from stockade.partition.errors import InvalidRequest, NotAcceptable, UnsupportedMediaType

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(deadline=None)
@given(VALUES)
def test_a_parsed_value_is_dumped_unchanged(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    assert json_codec.dump(json_codec.parse(text)) == text
    assert json_codec.parse(json.dumps(value, indent=1).encode()) == value


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_are_json_or_not_json(body: bytes) -> None:
    try:
        json_codec.dump(json_codec.parse(body))
    except json_codec.NotJson as error:
        assert str(error)


@settings(deadline=None)
@given(st.text(alphabet='[]{}"\\a ,:', max_size=200))
def test_nesting_is_counted_as_a_parser_would(text: str) -> None:
    try:
        value = json.loads(text)
    except ValueError:
        return
    depth = _depth(value)
    assert json_codec.is_nested_at_most(text.encode(), depth)
    assert (
        depth == 0
        or not json_codec.is_nested_at_most(text.encode(), depth - 1)
        or depth <= text.count("[") + text.count("{")
    )


def _depth(value: Any) -> int:
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 0


@pytest.mark.parametrize("bracket", [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_allowed_to_64_and_no_deeper(bracket: tuple[bytes, bytes]) -> None:
    start, end = bracket
    json_codec.parse(start * 64 + b"1" + end * 64)
    with pytest.raises(json_codec.NotJson, match="64 deep"):
        json_codec.parse(start * 65 + b"1" + end * 65)
    json_codec.parse(b'["' + b"[" * 100 + b'\\"{' + b'"]')


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("007", 7), ("9" * 18, int("9" * 18)), ("0" * 50 + "1", 1)])
def test_an_integer_is_ascii_digits(text: str, value: int) -> None:
    assert integer("x", text, 0, 1 << 63) == value


@pytest.mark.parametrize("text", ["", " 1", "1 ", "+1", "-1", "1.0", "1e1", "1_0", "٣", "\u00b2", "0x1", "9" * 5000])
def test_anything_else_is_no_integer(text: str) -> None:
    with pytest.raises(InvalidRequest, match="x:"):
        integer("x", text, 0, 1 << 63)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_accept_header_chooses_something_or_is_not_acceptable(accept: str) -> None:
    available = (media.JSON, media.NDJSON)
    try:
        assert media.choose(accept, available) in available
    except NotAcceptable as refusal:
        assert refusal.fields == {"available": list(available)}


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("application/x-ndjson;q=0.9, application/json;q=0.8", media.NDJSON),
        ("application/json;q=0.9, */*", media.NDJSON),
        ("application/json, application/x-ndjson", media.JSON),
        ("application/x-ndjson, application/json", media.NDJSON),
        ("application/json;q=2, application/x-ndjson", media.NDJSON),
        ("*/json, application/x-ndjson;q=0.1", media.NDJSON),
        ("application/json;version=1", media.JSON),
        ("  ", media.JSON),
    ],
)
def test_quality_then_precision_then_place_decide(accept: str, chosen: str) -> None:
    assert media.choose(accept, (media.JSON, media.NDJSON)) == chosen


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON ; charset=UTF-8",
        'application/json;charset="utf-8"',
        "application/json;x=y",
    ],
)
def test_a_body_type_may_have_parameters(content_type: str) -> None:
    assert media.body_type(content_type, "Identity", (media.JSON,)) == media.JSON


@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [("", ""), ("text/json", ""), ("application/json", "br"), ("application/json;charset=x", "")],
)
def test_other_body_types_are_refused_with_those_that_are_taken(content_type: str, encoding: str) -> None:
    with pytest.raises(UnsupportedMediaType) as refused:
        media.body_type(content_type, encoding, (media.JSON,))
    assert refused.value.fields == {"accepted": [media.JSON]}


@pytest.mark.parametrize(
    ("content_type", "encoding", "fault"),
    [("application/json", "gzip", "Content-Encoding"), ("application/json;charset=utf-16", "", "UTF-8")],
)
def test_a_body_of_a_type_that_is_taken_is_not_refused_for_its_type(
    content_type: str, encoding: str, fault: str
) -> None:
    with pytest.raises(UnsupportedMediaType) as refused:
        media.body_type(content_type, encoding, (media.JSON,))
    assert fault in refused.value.detail


def test_a_configuration_with_many_faults_names_them_all_up_to_a_bound() -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_config({"retention_ms": -2, "colour": 1, "max_producers": 5, "max_batch_bytes": 1})
    assert [fault.partition(":")[0] for fault in refused.value.detail.split("; ")] == [
        "config.retention_ms",
        "config",
        "config.max_batch_bytes",
    ]
    with pytest.raises(InvalidRequest) as refused:
        read_config({f"x{number}": 1 for number in range(CONFIG_FAULTS_MAX + 2)})
    assert refused.value.detail.count("`x") == CONFIG_FAULTS_MAX
    assert refused.value.detail.endswith("; and 2 more")


@pytest.mark.parametrize("name", [".", "..", "", "a b", "x" * 250])
def test_a_name_that_no_topic_has_is_refused_in_words(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        json_codec.read(json.dumps({"name": name}).encode(), NewTopic)
    words = "name: not 1 to 249 of letters, digits, '.', '_', '-' other than '.' and '..'"
    assert refused.value.detail == words
    assert json_codec.read(b'{"name":"..."}', NewTopic).name == "..."


@pytest.mark.parametrize("handle", ["billing", "", "5D41402ABC4B2A76"])
def test_the_refusal_of_a_malformed_handle_says_its_form(handle: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        json_codec.read(json.dumps({"handle": handle}).encode(), SessionFence)
    assert refused.value.detail == "handle: not 16 of the digits 0 to 9 and a to f"
