import pickle
from pathlib import Path
from typing import Any, Literal

import pytest
from sources import ROOT

from stockade.spark.options import OptionsError
from stockade.spark.sink.options import NAMES as WRITE_NAMES
from stockade.spark.source.planning.options import (
    EARLIEST,
    LATEST,
    NAMES,
    Selection,
    parse_any_options,
    parse_read_options,
)

NODE = {"url": "http://127.0.0.1:7101"}
NEEDED = {**NODE, "subscribe": "logs"}
Mode = Literal["batch", "stream"]


def faults_of(given: dict[str, str], mode: Mode = "batch") -> list[str]:
    with pytest.raises(OptionsError) as caught:
        parse_read_options(given, mode)
    return caught.value.faults


def test_two_options_are_enough_and_mean_everything_the_log_has() -> None:
    options = parse_read_options(NEEDED)
    assert (options.urls, options.selection) == ((NEEDED["url"],), Selection(("logs",)))
    assert (options.starting.value, options.ending.value) == (EARLIEST, LATEST)
    assert (options.min_partitions, options.rows_max, options.fail_on_data_loss) == (1, None, True)
    assert not (options.include_headers or options.include_origin or options.filter_pushdown)


def test_a_stream_begins_at_the_end_unless_told_otherwise() -> None:
    assert parse_read_options(NEEDED, "stream").starting.value == LATEST
    assert parse_read_options({**NEEDED, "startingOffsets": "earliest"}, "stream").starting.value == EARLIEST


def test_names_of_options_are_read_in_any_case() -> None:
    options = parse_read_options({"URL": NEEDED["url"], "Subscribe": "logs", "INCLUDEHEADERS": "True"})
    assert options.include_headers


def test_nodes_are_separated_by_commas() -> None:
    assert parse_read_options({**NEEDED, "url": "http://a:1/, https://b:2"}).urls == ("http://a:1", "https://b:2")


def test_topics_are_named_matched_or_assigned() -> None:
    assert parse_read_options({**NODE, "subscribe": "b, a,b"}).selection.topics == ("b", "a")
    assert parse_read_options({**NODE, "subscribePattern": "a.*"}).selection == Selection(pattern="a.*")
    assigned = parse_read_options({**NODE, "assign": '{"a": [0, 2]}'}).selection
    assert assigned == Selection(("a",), partitions={"a": frozenset({0, 2})})


def test_offsets_are_read_from_json() -> None:
    options = parse_read_options(
        {**NEEDED, "startingOffsets": '{"logs": {"0": 23, "1": -2}}', "endingOffsets": '{"logs": {"0": 30, "1": -1}}'}
    )
    assert options.starting.value == {"logs": {0: 23, 1: EARLIEST}}
    assert options.ending.value == {"logs": {0: 30, 1: LATEST}}


def test_one_time_goes_before_times_of_partitions_and_these_before_offsets() -> None:
    given = {**NEEDED, "startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"logs": {"0": 5}}'}
    by_partition = parse_read_options(given).starting
    assert (by_partition.by, by_partition.value) == ("timestamp", {"logs": {0: 5}})
    at_once = parse_read_options({**given, "startingTimestamp": "7"}).starting
    assert (at_once.by, at_once.value) == ("timestamp", 7)


def test_secrets_are_not_shown() -> None:
    options = parse_read_options({**NEEDED, "authToken": "hunter2", "tlsCa": "ca.pem"})
    assert (options.access.token, options.access.ca) == ("hunter2", "ca.pem")
    assert "hunter2" not in repr(options)


def test_a_query_uses_the_token_that_its_file_has_by_then_in_every_process(tmp_path: Path) -> None:
    """A query ended with its token. A copy in another process, of another clock, would keep the token it came with."""
    path = tmp_path / "token"
    path.write_text("first\n")
    access = parse_read_options({**NEEDED, "authTokenFile": str(path)}).access
    assert access.headers() == {"Authorization": "Bearer first"}
    copy = pickle.loads(pickle.dumps(access))
    path.write_text("another\n")
    assert copy == access
    assert copy.headers() == {"Authorization": "Bearer another"}


def test_a_token_is_given_once() -> None:
    (fault,) = faults_of({**NEEDED, "authToken": "hunter2", "authTokenFile": "/nowhere"})
    assert fault == "authToken and authTokenFile exclude each other"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("url", "127.0.0.1:7101"),
        ("url", "http://127.0.0.1:7101,127.0.0.1:7102"),
        ("subscribe", ""),
        ("subscribe", "a,,b"),
        ("subscribePattern", "a.*"),
        ("assign", '{"logs": [0]}'),
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"logs": {"0": -1}}'),
        ("startingOffsets", '{"logs": {"0": 1.5}}'),
        ("startingOffsets", '{"logs": {"0": true}}'),
        ("startingOffsets", '{"logs": {"zero": 1}}'),
        ("startingOffsets", '{"logs": 1}'),
        ("startingOffsets", '["logs"]'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"logs": {"0": -2}}'),
        ("endingOffsets", "soon"),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "-1"),
        ("endingOffsetsByTimestamp", '{"logs": {"0": -1}}'),
        ("startingOffsetsByTimestampStrategy", "earliest"),
        ("minPartitions", "0"),
        ("minPartitions", "-1"),
        ("minPartitions", "many"),
        ("minPartitions", "²"),
        ("includeHeaders", "yes"),
        ("includeOrigin", "yes"),
        ("filterPushdown", "on"),
        ("failOnDataLoss", "1"),
        ("maxOffsetsPerTrigger", "10"),
        ("authToken", ""),
        ("authTokenFile", "/nowhere/token"),
        ("tlsKey", "key.pem"),
    ],
)
def test_a_wrong_option_is_one_fault_that_names_it(name: str, value: Any) -> None:
    (fault,) = faults_of({**NEEDED, name: value})
    assert name.lower() in fault.lower()


@pytest.mark.parametrize("assigned", ["[]", '{"a": []}', '{"a": [-1]}', '{"a": [true]}', '{"a": 1}', "{"])
def test_an_assignment_that_is_none_is_refused(assigned: str) -> None:
    (fault,) = faults_of({**NODE, "assign": assigned})
    assert fault.startswith("assign must be JSON")


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "1", "endingOffsetsByTimestamp": '{"logs": {"0": 1}}'}[name]
    assert faults_of({**NEEDED, name: value}, "stream") == [f"{name} has no meaning in a stream read"]


def test_every_fault_is_named_at_once() -> None:
    wrong = {"url": "", "subscribe": "", "minPartitions": "x", "includeHeaders": "x", "failOnDataLoss": "x"}
    assert len(faults_of({**wrong, "colour": "red"})) == 6


def test_the_columns_can_be_told_before_the_kind_of_read_is_known() -> None:
    assert parse_any_options({**NEEDED, "maxOffsetsPerTrigger": "9"}).rows_max == 9
    assert parse_any_options({**NEEDED, "endingOffsets": "latest"}).rows_max is None
    with pytest.raises(OptionsError, match="includeOrigin must be true or false"):
        parse_any_options({**NEEDED, "includeOrigin": "maybe"})


def test_a_fault_of_one_kind_of_read_names_the_kind_while_that_is_not_known() -> None:
    """A stream with startingOffsets=latest and a misspelt option heard that startingOffsets was wrong."""
    with pytest.raises(OptionsError) as caught:
        parse_any_options({**NEEDED, "startingOffsets": "latest", "maxOffsetsPerTrigger": "9", "failOnDataLos": "true"})
    unknown, offsets, trigger = caught.value.faults
    assert unknown == "unknown option failondatalos of a read (did you mean failOnDataLoss?)"
    assert offsets.startswith("startingOffsets must be an offset, earliest") or trigger.startswith("startingOffsets")
    assert all(each.endswith(" in a batch read") for each in (offsets, trigger))
    assert "maxOffsetsPerTrigger has no meaning in a batch read" in (offsets, trigger)


def test_the_page_about_spark_has_every_option() -> None:
    pages = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("spark.md", "spark-sink.md"))
    assert [name for name in (*NAMES, *WRITE_NAMES) if f"`{name}`" not in pages] == []
