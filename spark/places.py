"""Where a read starts or ends: earliest, latest, offsets or times, as the options say it. Pure, and free of Spark."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

EARLIEST = -2
"""In place of an offset: the first record that the log still has."""
LATEST = -1
"""In place of an offset: the log's end."""
WORDS = {"earliest": EARLIEST, "latest": LATEST}

ByPartition = Mapping[str, Mapping[int, int]]
"""A number for each partition of each topic."""


@dataclass(frozen=True)
class Place:
    """A number for every partition, or one for all.

    ``by`` offset: an offset, EARLIEST or LATEST. ``by`` timestamp: Unix time in ms, and the offset is that of the first
    record at or after it. ``option`` is the option that said so.
    """

    by: Literal["offset", "timestamp"]
    value: int | ByPartition
    option: str

    def of(self, topic: str, partition: int) -> int:
        """The number for one partition. Raises ValueError if the option leaves it out."""
        if isinstance(self.value, int):
            return self.value
        try:
            return self.value[topic][partition]
        except KeyError:
            raise ValueError(f"{self.option} must have a number for {topic}/{partition}") from None

    def strangers(self, known: Mapping[str, Iterable[int]]) -> list[str]:
        """Partitions that the option names and that are not read."""
        if isinstance(self.value, int):
            return []
        return [
            f"{topic}/{partition}"
            for topic, numbers in self.value.items()
            for partition in numbers
            if partition not in known.get(topic, ())
        ]


def offsets_place(option: str, text: str, words: Iterable[str]) -> Place:
    """Of one of ``words``, or of JSON like ``{"topic": {"0": 23, "1": -2}}``. Raises ValueError."""
    allowed = {word: WORDS[word] for word in words}
    if text.lower() in allowed:
        return Place("offset", allowed[text.lower()], option)
    specials = set(allowed.values())
    return Place("offset", _numbers(option, text, specials, "an offset, " + " or ".join(allowed)), option)


def timestamp_place(option: str, text: str) -> Place:
    """Of one number of milliseconds. Raises ValueError."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{option} must be Unix time in milliseconds, not {text!r}")
    return Place("timestamp", int(text), option)


def timestamps_place(option: str, text: str) -> Place:
    """Of JSON like ``{"topic": {"0": 1767225600000}}``. Raises ValueError."""
    return Place("timestamp", _numbers(option, text, set(), "Unix time in ms"), option)


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
