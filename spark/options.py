"""The options of a read, as users of Spark's Kafka connector know them. Pure, and free of Spark."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EARLIEST = -2
"""In place of an offset: the first record that the log still has."""
LATEST = -1
"""In place of an offset: the log's end."""

Offsets = Mapping[str, Mapping[int, int]]
"""By topic and partition: an offset, EARLIEST or LATEST."""

NAMES = {
    name.lower(): name
    for name in (
        "url",
        "subscribe",
        "startingOffsets",
        "endingOffsets",
        "minPartitions",
        "includeHeaders",
        "failOnDataLoss",
    )
}
"""Every option by its lower-case name; Spark does not tell upper case from lower."""


class OptionsError(ValueError):
    """The options are wrong; the message names every fault, ``faults`` has them one by one."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


@dataclass(frozen=True)
class ReadOptions:
    """What to read, and how.

    - ``urls`` (option ``url``): base URL of a node, or of several, separated by commas. One that is up is enough to
      plan the query; its tasks then know the partitions' leaders too. Required.
    - ``topics`` (option ``subscribe``): names of topics, separated by commas. Required.
    - ``starting`` (``startingOffsets``): ``earliest`` (default), or JSON like ``{"topic": {"0": 23, "1": -2}}`` with an
      offset, or -2 for earliest, for every partition of every topic. EARLIEST as a whole or Offsets.
    - ``ending`` (``endingOffsets``): ``latest`` (default), or JSON likewise with -1 for latest. Not included.
    - ``min_partitions`` (``minPartitions``): split log partitions until there are so many tasks; default 1.
    - ``include_headers`` (``includeHeaders``): whether there is a column ``headers``; default false.
    - ``fail_on_data_loss`` (``failOnDataLoss``): whether offsets that the log does not have fail the query (default)
      or are left out.
    """

    urls: tuple[str, ...]
    topics: tuple[str, ...]
    starting: int | Offsets
    ending: int | Offsets
    min_partitions: int
    include_headers: bool
    fail_on_data_loss: bool


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of a batch read. Raises OptionsError with every fault at once; an unknown option is one."""
    given = {name.lower(): value.strip() for name, value in options.items()}
    faults = [f"unknown option {name}; known are {', '.join(NAMES.values())}" for name in sorted(given.keys() - NAMES)]
    topics = _topics(given, faults)
    parsed = ReadOptions(
        urls=_urls(given, faults),
        topics=topics,
        starting=_offsets(given, "startingOffsets", EARLIEST, topics, faults),
        ending=_offsets(given, "endingOffsets", LATEST, topics, faults),
        min_partitions=_positive(given, "minPartitions", faults),
        include_headers=_flag(given, "includeHeaders", False, faults),
        fail_on_data_loss=_flag(given, "failOnDataLoss", True, faults),
    )
    if faults:
        raise OptionsError(faults)
    return parsed


def _urls(given: Mapping[str, str], faults: list[str]) -> tuple[str, ...]:
    urls = _list(given, "url")
    if not all(url.startswith(("http://", "https://")) for url in urls):
        faults.append("url must be the base URL of a node, like http://127.0.0.1:7101, or several separated by commas")
    return urls


def _topics(given: Mapping[str, str], faults: list[str]) -> tuple[str, ...]:
    topics = _list(given, "subscribe")
    if "" in topics:
        faults.append("subscribe must be one or more names of topics, separated by commas")
    return topics


def _list(given: Mapping[str, str], name: str) -> tuple[str, ...]:
    """What stands between commas, each once; one empty text if nothing is given."""
    return tuple(dict.fromkeys(part.strip() for part in given.get(name, "").split(",")))


def _positive(given: Mapping[str, str], name: str, faults: list[str]) -> int:
    text = given.get(name.lower(), "1")
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text)
    faults.append(f"{name} must be a whole number above 0, not {text!r}")
    return 1


def _flag(given: Mapping[str, str], name: str, default: bool, faults: list[str]) -> bool:
    text = given.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        faults.append(f"{name} must be true or false, not {text!r}")
    return text == "true"


def _offsets(
    given: Mapping[str, str], name: str, default: int, topics: tuple[str, ...], faults: list[str]
) -> int | Offsets:
    """``default`` is also the only special offset that makes sense at this end of a batch."""
    word = "earliest" if default == EARLIEST else "latest"
    text = given.get(name.lower(), word)
    if text.lower() == word:
        return default
    try:
        raw = json.loads(text)
        offsets = {topic: {int(p): _offset(value, default) for p, value in raw[topic].items()} for topic in raw}
    except (ValueError, TypeError, AttributeError):
        faults.append(f'{name} must be {word}, or JSON like {{"topic": {{"0": 23, "1": {default}}}}}')
        return default
    if offsets.keys() != set(topics):
        faults.append(f"{name} must name the topics of subscribe and no others")
    return offsets


def _offset(value: Any, special: int) -> int:
    if type(value) is not int or (value < 0 and value != special):
        raise ValueError(value)
    return value
