"""The place of the tiered store, as a node's configuration names it: checks of it, before anything starts."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from ...partition.places.place import CannotReach, Place, place_fault

CACHE_BYTES = (256 * 1024 * 1024, 1 << 50)
"""Bounds of ``cache_bytes``: one answer may need three objects."""
TIMEOUT_MS = (100, 600_000)
_PROBE = b"written by `stockade serve --check`; remove it\n"


def tiered_faults(place: str, cache_bytes: int, timeout_ms: int) -> Iterator[str]:
    """The faults of the settings, each with the setting's name."""
    if fault := place_fault(place):
        yield f"place: {fault}"
    elif "://" in place:
        parts = urlsplit(place)
        if parts.scheme != "file" and not parts.netloc:
            yield f"place: {place!r} names no bucket"
    for name, value, (low, high) in (("cache_bytes", cache_bytes, CACHE_BYTES), ("timeout_ms", timeout_ms, TIMEOUT_MS)):
        if not low <= value <= high:
            yield f"{name}: must be {low} to {high}, not {value}"


def probe(url: str, prefix: str) -> str | None:
    """Try the place: write, read and remove a file there. Returns what is wrong with it; None: nothing. Blocks."""
    try:
        place = Place(url)
        with _nothing_left(place, prefix):
            path = f"{prefix}/check-{secrets.token_hex(8)}"
            place.write(path, _PROBE)
            found = place.read(path)
            place.remove(path)
    except Exception as error:  # file systems of fsspec raise what they like
        return f"tiered.place: {error}"
    return None if found == _PROBE else f"tiered.place: {url}: other bytes came back than were written"


@contextmanager
def _nothing_left(place: Place, folder: str) -> Iterator[None]:
    """Remove the folder if the block has made it: where a share is not mounted, its lack tells nodes so, and with it
    they would take the objects of deleted topics to be gone (store.py).
    """
    try:
        place.check_folder(folder)
    except CannotReach:
        try:
            yield
        finally:
            place.remove_folder(folder)
    else:
        yield
