"""The place of the tiered store, tried before anything starts."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from ...partition.places.place import CannotReach, Place

_PROBE = b"written by `stockade serve --check`; remove it\n"


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
    """Remove the folder if the block has made it: nodes take a missing folder for a share that is not mounted, and an
    empty one for a place whose objects are gone (store.py).
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
