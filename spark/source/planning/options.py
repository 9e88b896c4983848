"""The options of a read, with the names and meanings of Spark's Kafka connector where it has them. Pure, without Spark.

Where a read starts or ends (earliest, latest, offsets or times) is an OffsetSpec.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ....client.config import Credentials
from ...options import OF_CREDENTIALS, GivenOptions, OptionsError, credentials, flag, positive, urls

EARLIEST = -2
"""Number for the log start, in place of an offset, as with Kafka."""
LATEST = -1
"""Number for the log end, in place of an offset, as with Kafka."""
WORDS = {"earliest": EARLIEST, "latest": LATEST}

ByPartition = Mapping[str, Mapping[int, int]]
"""A number for each partition of each topic."""


@dataclass(frozen=True)
class OffsetSpec:
    """Where a read starts or ends: ``value`` is a number for each partition, or one for all.

    ``by`` offset: the number is an offset, EARLIEST or LATEST. ``by`` timestamp: it is Unix time in ms, for the offset
    of the first record at or after that time. ``option``: the option's name, for messages.
    """

    by: Literal["offset", "timestamp"]
    value: int | ByPartition
    option: str

    def of(self, topic: str, partition: int) -> int:
        """The number for one partition. Raises ValueError if the option has none."""
        if isinstance(self.value, int):
            return self.value
        try:
            return self.value[topic][partition]
        except KeyError:
            raise ValueError(f"{self.option} must have a number for {topic}/{partition}") from None

    def unread(self, known: Mapping[str, Iterable[int]]) -> list[str]:
        """The partitions that the option names, but that are not in ``known``, which the query reads."""
        if isinstance(self.value, int):
            return []
        return [
            f"{topic}/{partition}"
            for topic, numbers in self.value.items()
            for partition in numbers
            if partition not in known.get(topic, ())
        ]


def offsets_spec(option: str, text: str, words: Iterable[str]) -> OffsetSpec:
    """The spec of one of ``words``, or of JSON like ``{"topic": {"0": 23, "1": -2}}``. Raises ValueError."""
    allowed = {word: WORDS[word] for word in words}
    if text.lower() in allowed:
        return OffsetSpec("offset", allowed[text.lower()], option)
    specials = set(allowed.values())
    return OffsetSpec("offset", _numbers(option, text, specials, "an offset, " + " or ".join(allowed)), option)


def timestamp_spec(option: str, text: str) -> OffsetSpec:
    """The spec of one number of milliseconds. Raises ValueError."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{option} must be Unix time in milliseconds, not {text!r}")
    return OffsetSpec("timestamp", int(text), option)


def timestamps_spec(option: str, text: str) -> OffsetSpec:
    """The spec of JSON like ``{"topic": {"0": 1767225600000}}``. Raises ValueError."""
    return OffsetSpec("timestamp", _numbers(option, text, set(), "Unix time in ms"), option)


def _numbers(option: str, text: str, specials: set[int], meaning: str) -> ByPartition:
    try:
        raw = json.loads(text)
        return {topic: {int(p): _number(value, specials) for p, value in raw[topic].items()} for topic in raw}
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f'{option} must be {meaning}, or JSON like {{"topic": {{"0": 23, "1": 42}}}}') from None


def _number(value: Any, specials: set[int]) -> int:
    if type(value) is not int or (value < 0 and value not in specials):
        raise ValueError(value)
    return value


NAMES = (
    *("url", *OF_CREDENTIALS),
    *("subscribe", "subscribePattern", "assign"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    *("minPartitions", "maxOffsetsPerTrigger", "failOnDataLoss"),
    *("includeHeaders", "includeOrigin", "filterPushdown"),
)
"""Every option of a read."""
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "filterPushdown")
STREAM_ONLY = ("maxOffsetsPerTrigger",)


@dataclass(frozen=True)
class Selection:
    """The topics to read: by name, or by a regular expression for the whole name. ``partitions`` by topic are the only
    ones read; None: all.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, frozenset[int]] | None = None


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read. docs/spark.md has their table.

    ``urls`` are base URLs of nodes. ``fail_late_start``: whether a start by a time after the last record is an error;
    otherwise it means the log end. ``rows_max``: most rows of one micro-batch, None for any number.
    """

    urls: tuple[str, ...]
    access: Credentials
    selection: Selection
    starting: OffsetSpec
    ending: OffsetSpec
    fail_late_start: bool
    min_partitions: int
    rows_max: int | None
    include_headers: bool
    include_origin: bool
    fail_on_data_loss: bool
    filter_pushdown: bool


def parse_read_options(options: Mapping[str, str], mode: Literal["batch", "stream"] = "batch") -> ReadOptions:
    """The options of a read. Raises OptionsError with every fault at once; an unknown option is a fault."""
    given = GivenOptions(options)
    given.refuse_unknown(NAMES, "read")
    given.refuse(STREAM_ONLY if mode == "batch" else BATCH_ONLY, f"has no meaning in a {mode} read")
    parsed = ReadOptions(
        urls=given.take(urls, "url", ""),
        access=credentials(given),
        selection=_selection(given),
        starting=_offset_spec(given, "starting", ("earliest",) if mode == "batch" else ("latest", "earliest")),
        ending=_offset_spec(given, "ending", ("latest",)),
        fail_late_start=given.take(_strategy, "startingOffsetsByTimestampStrategy", "error"),
        min_partitions=given.take(positive, "minPartitions", "1"),
        rows_max=given.take(positive, "maxOffsetsPerTrigger", None),
        include_headers=given.take(flag, "includeHeaders", "false"),
        include_origin=given.take(flag, "includeOrigin", "false"),
        fail_on_data_loss=given.take(flag, "failOnDataLoss", "true"),
        filter_pushdown=given.take(flag, "filterPushdown", "false"),
    )
    if given.faults:
        raise OptionsError(given.faults)
    return parsed


def parse_any_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of a read of which it is not known yet whether it is a batch or a stream.

    Raises OptionsError if they suit neither, with the faults of both; a fault in one kind only names that kind.
    """
    faults: dict[str, list[str]] = {}
    modes: tuple[Literal["stream", "batch"], ...] = ("stream", "batch")
    for mode in modes:
        try:
            return parse_read_options(options, mode)
        except OptionsError as error:
            faults[f" in a {mode} read"] = error.faults
    common = [fault for fault in faults[" in a batch read"] if fault in faults[" in a stream read"]]
    single = [(fault, where) for where, found in faults.items() for fault in found if fault not in common]
    raise OptionsError([*common, *(f"{fault.removesuffix(where)}{where}" for fault, where in single)])


def _selection(given: GivenOptions) -> Selection:
    kinds = {"subscribe": _subscribed, "subscribePattern": _matching, "assign": _assigned}
    chosen = [name for name in kinds if name in given]
    if len(chosen) != 1:
        given.faults.append("one of subscribe, subscribePattern and assign must be given, and only one")
        return Selection()
    return given.take(kinds[chosen[0]], chosen[0], None) or Selection()


def _offset_spec(given: GivenOptions, side: str, words: tuple[str, ...]) -> OffsetSpec:
    """Where a read starts or ends (``side``). As with Kafka, the first option given wins: one time, times by partition,
    offsets. ``words[0]`` is the default.
    """
    default = OffsetSpec("offset", EARLIEST if words[0] == "earliest" else LATEST, f"{side}Offsets")
    one, many, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if one in given:
        spec = given.take(timestamp_spec, one, None)
    elif many in given:
        spec = given.take(timestamps_spec, many, None)
    else:
        spec = given.take(lambda name, text: offsets_spec(name, text, words), offsets, words[0])
    return spec or default


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


def _strategy(name: str, text: str) -> bool:
    if text.lower() not in ("error", "latest"):
        raise ValueError(f"{name} must be error or latest, not {text!r}")
    return text.lower() == "error"
