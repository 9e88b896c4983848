"""The options of a read, as users of Spark's Kafka connector know them. Pure, and free of Spark."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..client.access import Access
from .places import EARLIEST, LATEST, Place, offsets_place, timestamp_place, timestamps_place

NAMES = {
    name.lower(): name
    for name in (
        *("url", "authToken", "tlsCa", "tlsCertificate", "tlsKey"),
        *("subscribe", "subscribePattern", "assign"),
        *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
        *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
        *("minPartitions", "maxOffsetsPerTrigger", "failOnDataLoss"),
        *("includeHeaders", "includeOrigin", "filterPushdown"),
    )
}
"""Every option by its lower-case name; Spark does not tell upper case from lower."""

BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "filterPushdown")
STREAM_ONLY = ("maxOffsetsPerTrigger",)


class OptionsError(ValueError):
    """The options are wrong; the message names every fault, ``faults`` has them one by one."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


@dataclass(frozen=True)
class Selection:
    """What to read: ``topics`` by name, or those whose whole name matches ``pattern``; of some only ``partitions``."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, frozenset[int]] | None = None


@dataclass(frozen=True)
class ReadOptions:
    """What to read, and how. docs/spark.md has the table of options.

    ``urls`` are base URLs of nodes. ``fail_late_start``: whether a start by time behind the last record fails, or means
    the log's end. ``rows_max``: rows of one micro-batch, None for any.
    """

    urls: tuple[str, ...]
    access: Access
    selection: Selection
    starting: Place
    ending: Place
    fail_late_start: bool
    min_partitions: int
    rows_max: int | None
    include_headers: bool
    include_origin: bool
    fail_on_data_loss: bool
    filter_pushdown: bool


def parse_read_options(options: Mapping[str, str], mode: Literal["batch", "stream"] = "batch") -> ReadOptions:
    """The options of a read. Raises OptionsError with every fault at once; an unknown option is one."""
    given = _Given(options)
    given.refuse_unknown(STREAM_ONLY if mode == "batch" else BATCH_ONLY, mode)
    parsed = ReadOptions(
        urls=given.take(_urls, "url", ""),
        access=_access(given),
        selection=_selection(given),
        starting=_place(given, "starting", ("earliest",) if mode == "batch" else ("latest", "earliest")),
        ending=_place(given, "ending", ("latest",)),
        fail_late_start=given.take(_strategy, "startingOffsetsByTimestampStrategy", "error"),
        min_partitions=given.take(_positive, "minPartitions", "1"),
        rows_max=given.take(_positive, "maxOffsetsPerTrigger", None),
        include_headers=given.take(_flag, "includeHeaders", "false"),
        include_origin=given.take(_flag, "includeOrigin", "false"),
        fail_on_data_loss=given.take(_flag, "failOnDataLoss", "true"),
        filter_pushdown=given.take(_flag, "filterPushdown", "false"),
    )
    if given.faults:
        raise OptionsError(given.faults)
    return parsed


def parse_any_options(options: Mapping[str, str]) -> ReadOptions:
    """For who does not know yet which kind of read it is. Raises OptionsError when the options suit none."""
    try:
        return parse_read_options(options, "stream")
    except OptionsError:
        return parse_read_options(options, "batch")


class _Given:
    """Options as given, and what was found wrong with them so far."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value.strip() for name, value in options.items()}
        self.faults: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def refuse_unknown(self, elsewhere: tuple[str, ...], mode: str) -> None:
        """Name options that nobody knows, and those that make no sense in this ``mode``."""
        known = ", ".join(NAMES.values())
        self.faults += [f"unknown option {name}; known are {known}" for name in sorted(self._values.keys() - NAMES)]
        self.faults += [f"{name} has no meaning in a {mode} read" for name in elsewhere if name in self]

    def take(self, read: Callable[[str, str], Any], name: str, default: str | None) -> Any:
        """The value of an option; None, and a fault, when it is wrong."""
        text = self._values.get(name.lower(), default)
        if text is None:
            return None
        try:
            return read(name, text)
        except ValueError as error:
            self.faults.append(str(error))
            return None


def _access(given: _Given) -> Access:
    names = {"token": "authToken", "ca": "tlsCa", "certificate": "tlsCertificate", "key": "tlsKey"}
    access = Access(**{field: given.take(_text, name, None) for field, name in names.items()})
    if access.key and not access.certificate:
        given.faults.append("tlsKey needs tlsCertificate")
    return access


def _selection(given: _Given) -> Selection:
    kinds = {"subscribe": _subscribed, "subscribePattern": _matching, "assign": _assigned}
    chosen = [name for name in kinds if name in given]
    if len(chosen) != 1:
        given.faults.append("one of subscribe, subscribePattern and assign must be given, and only one")
        return Selection()
    return given.take(kinds[chosen[0]], chosen[0], None) or Selection()


def _place(given: _Given, side: str, words: tuple[str, ...]) -> Place:
    """The most special option wins, as with Kafka: one time, times of partitions, offsets. ``words[0]`` is default."""
    default = Place("offset", EARLIEST if words[0] == "earliest" else LATEST, f"{side}Offsets")
    one, many, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if one in given:
        place = given.take(timestamp_place, one, None)
    elif many in given:
        place = given.take(timestamps_place, many, None)
    else:
        place = given.take(lambda name, text: offsets_place(name, text, words), offsets, words[0])
    return place or default


def _urls(name: str, text: str) -> tuple[str, ...]:
    urls = tuple(dict.fromkeys(part.strip().rstrip("/") for part in text.split(",")))
    if not all(url.startswith(("http://", "https://")) for url in urls):
        raise ValueError(f"{name} must be a node's base URL, like http://127.0.0.1:7101, or several between commas")
    return urls


def _text(name: str, text: str) -> str:
    if not text:
        raise ValueError(f"{name} must not be empty")
    return text


def _subscribed(name: str, text: str) -> Selection:
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if "" in topics:
        raise ValueError(f"{name} must be one or more names of topics, separated by commas")
    return Selection(topics)


def _matching(name: str, text: str) -> Selection:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{name} must be a regular expression: {error}") from None
    return Selection(pattern=text)


def _assigned(name: str, text: str) -> Selection:
    try:
        raw = json.loads(text)
        partitions = {topic: frozenset(numbers) for topic, numbers in raw.items()}
        if not all(partitions.values()) or not all(type(p) is int and p >= 0 for each in raw.values() for p in each):
            raise ValueError
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f'{name} must be JSON like {{"topic": [0, 1]}}') from None
    return Selection(tuple(partitions), partitions=partitions)


def _positive(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise ValueError(f"{name} must be a whole number above 0, not {text!r}")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{name} must be true or false, not {text!r}")
    return text.lower() == "true"


def _strategy(name: str, text: str) -> bool:
    if text.lower() not in ("error", "latest"):
        raise ValueError(f"{name} must be error or latest, not {text!r}")
    return text.lower() == "error"
