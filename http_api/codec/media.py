"""Media types: the form of the answer that a request accepts, and the form of its body. Pure."""

import re
from functools import lru_cache
from typing import NamedTuple

from ...partition.errors import NotAcceptable, UnsupportedMediaType

JSON = "application/json"
NDJSON = "application/x-ndjson"
TEXT = "text/plain"
ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "text/event-stream"
NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}
"""The header of every answer by which a browser believes its Content-Type, and does not guess another."""

_HEADERS_REMEMBERED_MAX = 1024
_GZIP = ("gzip", "x-gzip")
_QUALITY = re.compile(r"[01](\.[0-9]{0,3})?")


class _Range(NamedTuple):
    """One range of an Accept header. ``precision``: 0 for */*, 1 for type/*, 2 for type/subtype."""

    main: str
    sub: str
    quality: float
    place: int

    @property
    def precision(self) -> int:
        return (self.main != "*") + (self.sub != "*")

    def covers(self, media: str) -> bool:
        main, _, sub = media.partition("/")
        return self.main in ("*", main) and self.sub in ("*", sub)


@lru_cache(_HEADERS_REMEMBERED_MAX)
def choose(accept: str | None, available: tuple[str, ...]) -> str:
    """The best media type of ``available`` for an Accept header; None, or an empty one, accepts everything.

    The highest quality wins, then the most precise range, then the first range in the header, then the first type of
    ``available``. A malformed range is ignored. Raises NotAcceptable.
    """
    ranges = _ranges(accept) if accept and accept.strip() else [_Range("*", "*", 1.0, 0)]
    best: tuple[float, int, int] | None = None
    chosen = ""
    for media in available:
        covering = [r for r in ranges if r.covers(media)]
        if not covering:
            continue
        match = max(covering, key=lambda r: (r.precision, -r.place))
        rank = (match.quality, match.precision, -match.place)
        if match.quality > 0 and (best is None or rank > best):
            best, chosen = rank, media
    if best is None:
        raise NotAcceptable(available=list(available))
    return chosen


@lru_cache(_HEADERS_REMEMBERED_MAX)
def body_type(content_type: str, content_encoding: str, accepted: tuple[str, ...]) -> str:
    """The media type of a request's body, one of ``accepted``. An absent header is given as "". Raises
    UnsupportedMediaType.

    Text may have any charset, because its bytes are stored as they come; other types must be in UTF-8. A
    Content-Encoding is refused.
    """
    if content_encoding.strip().lower() not in ("", "identity"):
        raise UnsupportedMediaType("this route takes no Content-Encoding", accepted=list(accepted))
    media, *parameters = content_type.split(";")
    media = media.strip().lower()
    if media not in accepted:
        raise UnsupportedMediaType(accepted=list(accepted))
    if media != TEXT:
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in ("utf-8", "utf8"):
                raise UnsupportedMediaType(f"this route takes {media} in UTF-8 alone", accepted=list(accepted))
    return media


def takes_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header names gzip, and does not exclude it by ``q=0``. A ``*`` names nothing."""
    for item in accept_encoding.split(","):
        coding, *parameters = item.split(";")
        if coding.strip().lower() in _GZIP:
            return bool(_quality(parameters))
    return False


def _ranges(accept: str) -> list[_Range]:
    found = []
    for place, item in enumerate(accept.split(",")):
        media, *parameters = item.split(";")
        main, slash, sub = media.strip().lower().partition("/")
        quality = _quality(parameters)
        if slash and main and sub and quality is not None and (main != "*" or sub == "*"):
            found.append(_Range(main, sub, quality, place))
    return found


def _quality(parameters: list[str]) -> float | None:
    """The quality (``q``) of a range: 1 by default, None when it is malformed."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            value = value.strip()
            return min(float(value), 1.0) if _QUALITY.fullmatch(value) else None
    return 1.0
