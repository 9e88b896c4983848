"""The settings of the tiered store, and what is wrong with them. Pure: nothing asks the place."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from ...partition.places.urls import place_fault

CACHE_BYTES = (256 * 1024 * 1024, 1 << 50)
"""Bounds of ``cache_bytes``: one answer may need three objects."""
TIMEOUT_MS = (100, 600_000)


def tiered_faults(place: str, cache_bytes: int, timeout_ms: int) -> Iterator[str]:
    """The faults of the settings, each with the setting's name."""
    if fault := place_fault(place):
        yield f"place: {fault}"
    elif "://" in place:
        try:
            parts = urlsplit(place)
        except ValueError as error:  # such as a bracket of an IPv6 address without the other one
            yield f"place: {place!r} is no URL: {error}"
        else:
            if parts.scheme != "file" and not parts.netloc:
                yield f"place: {place!r} names no bucket"
    for name, value, (low, high) in (("cache_bytes", cache_bytes, CACHE_BYTES), ("timeout_ms", timeout_ms, TIMEOUT_MS)):
        if not low <= value <= high:
            yield f"{name}: must be {low} to {high}, not {value}"
