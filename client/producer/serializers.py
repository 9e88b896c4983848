"""How keys and values of the application become bytes (Kafka's serializers, Sarama's Encoder)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from ...partition.errors import InvalidRecord, InvalidRequest

Serializer = Callable[[Any], bytes]
"""Takes a key or value of the application, never None; returns its bytes. What it raises fails that record alone."""


def _utf8(text: Any) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"{type(text).__name__} is no str")
    return text.encode()


_BY_NAME: dict[str, Serializer | None] = {"bytes": None, "str": _utf8, "json": msgspec.json.encode}


def serializer_of(wanted: str | Serializer, parameter: str) -> Serializer | None:
    """The serializer of this name, or the callable itself; None for "bytes". Raises InvalidRequest for another name."""
    if callable(wanted):
        return wanted
    if wanted not in _BY_NAME:
        raise InvalidRequest(f"{parameter}: {wanted!r:.100} is none of {', '.join(_BY_NAME)}, and cannot be called")
    return _BY_NAME[wanted]


class Serializers(NamedTuple):
    """A producer's two serializers; None leaves bytes as they are. None as a key or value stays None (a tombstone)."""

    key: Serializer | None
    value: Serializer | None

    def row(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Key and value of one record. Raises InvalidRecord when a serializer fails."""
        return _serialized(self.key, key, "key"), _serialized(self.value, value, "value")

    def columns(self, keys: Sequence[Any] | None, values: Sequence[Any]) -> tuple[list[Any] | None, list[Any]]:
        """Keys and values of a batch. Raises InvalidRecord when a serializer fails for one of them."""
        made = None if keys is None else [_serialized(self.key, key, "key") for key in keys]
        return made, [_serialized(self.value, value, "value") for value in values]


def _serialized(serializer: Serializer | None, item: Any, what: str) -> Any:
    if serializer is None or item is None:
        return item
    try:
        made = serializer(item)
    except (Exception, asyncio.CancelledError) as error:  # a future that it reads was cancelled, not this task
        raise InvalidRecord(f"the {what}_serializer failed: {error!r:.200}") from error
    if not isinstance(made, bytes):
        raise InvalidRecord(f"the {what}_serializer must return bytes, not {type(made).__name__}")
    return made
