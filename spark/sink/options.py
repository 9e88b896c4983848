"""The options of a write. Pure, and free of Spark."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ...client.access import Access
from ..options import OptionsError, _access, _flag, _Given, _urls

NAMES = ("url", "authToken", "tlsCa", "tlsCertificate", "tlsKey", "topic", "sink", "takeover", "delivery")
OF_SPARK = ("checkpointlocation", "path", "queryname")
"""Options that Spark hands on and that mean nothing here."""
_SINK = re.compile(r"[A-Za-z0-9._-]{1,100}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True)
class WriteOptions:
    """Where to write, and on what terms. docs/spark.md has the table of options.

    ``topic`` None: each row names its own. ``sink`` None: a streaming query is its own, a batch has none.
    """

    urls: tuple[str, ...]
    access: Access
    topic: str | None
    sink: str | None
    takeover: bool
    is_exactly_once: bool


def parse_write_options(options: Mapping[str, str], mode: Literal["batch", "stream"]) -> WriteOptions:
    """Raises OptionsError with every fault at once; an unknown option is one."""
    given = _Given({name: value for name, value in options.items() if name.lower() not in OF_SPARK})
    known = {name.lower() for name in NAMES}
    unknown = sorted({name.lower() for name in options} - known - set(OF_SPARK))
    given.faults += [f"unknown option {name} of a write; known are {', '.join(NAMES)}" for name in unknown]
    parsed = WriteOptions(
        urls=given.take(_urls, "url", ""),
        access=_access(given),
        topic=given.take(_topic, "topic", None),
        sink=given.take(_sink, "sink", None),
        takeover=given.take(_flag, "takeover", "false"),
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


def _sink(name: str, text: str) -> str:
    if not _SINK.fullmatch(text):
        raise ValueError(f"{name} must be 1 to 100 of letters, digits, '.', '_', '-'")
    return text


def _delivery(name: str, text: str) -> bool:
    if text not in ("exactly-once", "at-least-once"):
        raise ValueError(f"{name} must be exactly-once or at-least-once, not {text!r}")
    return text == "exactly-once"
