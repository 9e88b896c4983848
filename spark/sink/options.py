"""The options of a write. Pure, without Spark."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ...client.config import Credentials
from ..options import OF_CREDENTIALS, GivenOptions, OptionsError, credentials, flag, urls

NAMES = ("url", *OF_CREDENTIALS, "topic", "sink", "takeover", "delivery")
OF_SPARK = ("checkpointlocation", "path", "queryname")
"""Options that Spark passes on; the sink ignores them."""
_SINK = re.compile(r"[A-Za-z0-9._-]{1,100}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write. docs/spark-sink.md has their table.

    ``topic`` None: each row names its topic. ``sink`` None: a stream has its query's id as sink, a batch has no sink.
    """

    urls: tuple[str, ...]
    access: Credentials
    topic: str | None
    sink: str | None
    takeover: bool
    is_exactly_once: bool


def parse_write_options(options: Mapping[str, str], mode: Literal["batch", "stream"]) -> WriteOptions:
    """The options of a write. Raises OptionsError with every fault at once; an unknown option is a fault."""
    given = GivenOptions({name: value for name, value in options.items() if name.lower() not in OF_SPARK})
    given.refuse_unknown(NAMES, "write")
    parsed = WriteOptions(
        urls=given.take(urls, "url", ""),
        access=credentials(given),
        topic=given.take(_topic, "topic", None),
        sink=given.take(sink_name, "sink", None),
        takeover=given.take(flag, "takeover", "false"),
        is_exactly_once=given.take(_delivery, "delivery", "exactly-once"),
    )
    if not parsed.is_exactly_once and parsed.sink is not None:
        given.faults.append("sink has no meaning with delivery=at-least-once")
    if mode == "batch" and parsed.takeover:
        given.faults.append("takeover has no meaning in a batch")
    if given.faults:
        raise OptionsError(given.faults)
    return parsed


def _topic(name: str, text: str) -> str:
    if not _TOPIC.fullmatch(text):
        raise ValueError(f"{name} must be the name of one topic, not {text!r}")
    return text


def sink_name(name: str, text: str) -> str:
    """The name of a sink, from the option ``name``. Raises ValueError."""
    if not _SINK.fullmatch(text):
        raise ValueError(f"{name} must be 1 to 100 of letters, digits, '.', '_', '-'")
    return text


def _delivery(name: str, text: str) -> bool:
    if text not in ("exactly-once", "at-least-once"):
        raise ValueError(f"{name} must be exactly-once or at-least-once, not {text!r}")
    return text == "exactly-once"
