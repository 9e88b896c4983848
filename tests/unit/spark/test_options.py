from typing import Any

import pytest

from stockade.spark.options import EARLIEST, LATEST, OptionsError, parse_read_options

NEEDED = {"url": "http://127.0.0.1:7101", "subscribe": "logs"}


def faults_of(**options: str) -> list[str]:
    with pytest.raises(OptionsError) as caught:
        parse_read_options({**NEEDED, **options})
    return caught.value.faults


def test_two_options_are_enough_and_mean_everything_the_log_has() -> None:
    options = parse_read_options(NEEDED)
    assert (options.urls, options.topics) == ((NEEDED["url"],), ("logs",))
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert (options.min_partitions, options.include_headers, options.fail_on_data_loss) == (1, False, True)


def test_names_of_options_are_read_in_any_case() -> None:
    options = parse_read_options({"URL": NEEDED["url"], "Subscribe": "logs", "INCLUDEHEADERS": "True"})
    assert options.include_headers


def test_nodes_are_separated_by_commas() -> None:
    assert parse_read_options({**NEEDED, "url": "http://a:1, https://b:2"}).urls == ("http://a:1", "https://b:2")


def test_topics_are_separated_by_commas_and_read_once_each() -> None:
    assert parse_read_options({**NEEDED, "subscribe": "b, a,b"}).topics == ("b", "a")


def test_offsets_are_read_from_json() -> None:
    options = parse_read_options(
        {**NEEDED, "startingOffsets": '{"logs": {"0": 23, "1": -2}}', "endingOffsets": '{"logs": {"0": 30, "1": -1}}'}
    )
    assert options.starting == {"logs": {0: 23, 1: EARLIEST}}
    assert options.ending == {"logs": {0: 30, 1: LATEST}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("url", "127.0.0.1:7101"),
        ("url", "http://127.0.0.1:7101,127.0.0.1:7102"),
        ("subscribe", ""),
        ("subscribe", "a,,b"),
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"logs": {"0": -1}}'),
        ("startingOffsets", '{"logs": {"0": 1.5}}'),
        ("startingOffsets", '{"logs": {"0": true}}'),
        ("startingOffsets", '{"logs": {"zero": 1}}'),
        ("startingOffsets", '{"logs": 1}'),
        ("startingOffsets", '["logs"]'),
        ("startingOffsets", '{"other": {"0": 1}}'),
        ("startingOffsets", "{}"),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"logs": {"0": -2}}'),
        ("endingOffsets", "soon"),
        ("minPartitions", "0"),
        ("minPartitions", "-1"),
        ("minPartitions", "many"),
        ("minPartitions", "²"),
        ("includeHeaders", "yes"),
        ("failOnDataLoss", "1"),
        ("maxOffsetsPerTrigger", "10"),
    ],
)
def test_a_wrong_option_is_one_fault_that_names_it(name: str, value: Any) -> None:
    (fault,) = faults_of(**{name: value})
    assert name.lower() in fault.lower()


def test_every_fault_is_named_at_once() -> None:
    faults = faults_of(url="", subscribe="", minPartitions="x", includeHeaders="x", failOnDataLoss="x", colour="red")
    assert len(faults) == 6
