"""Reads path, query and Stockade-* headers of a request strictly: an unknown, repeated or malformed parameter is
refused as INVALID_REQUEST.

Every refusal's detail begins with the name of the parameter or header.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from ...partition.errors import InvalidRequest

INT64_MAX = (1 << 63) - 1
UINT64_MAX = (1 << 64) - 1
PARTITION_MAX = (1 << 31) - 1
NAME_CHARACTERS_MAX = 249

TOPIC_NAME = r"[A-Za-z0-9._-]{1,249}"

_DIGITS = re.compile(r"[0-9]+")
_TOPIC_NAME = re.compile(TOPIC_NAME)
_STAGE_NAME = re.compile(r"[A-Za-z0-9._~-]{1,249}")
_INTEGER_DIGITS_MAX = 20  # as many as UINT64_MAX has
_STOCKADE = "stockade-"
_NONE: dict[str, Any] = {}  # never written to
_Default = TypeVar("_Default", int, None)


class Parameters:
    """The parameters of one request. Its methods raise InvalidRequest for a parameter that is missing or malformed.

    ``path``: the decoded path parameters; ``query``, ``headers``: pairs as they came; ``known``: the query parameters
    that may occur once; ``repeated``: those that may occur several times. Raises InvalidRequest for an unknown or
    repeated query parameter, a repeated Stockade-* header, and text that is not UTF-8.
    """

    def __init__(
        self,
        path: Mapping[str, str],
        query: Sequence[tuple[str, str]],
        headers: Iterable[tuple[str, str]],
        known: Collection[str],
        repeated: Collection[str] = (),
    ) -> None:
        self._path = path
        stockade = [(own, value) for name, value in headers if (own := _stockade_name(name))]
        self._lists: dict[str, list[str]] = _NONE
        self._query: dict[str, str] = _NONE
        self._headers: dict[str, str] = _NONE
        if not query and not stockade and not repeated and all(map(str.isascii, path.values())):
            return
        self._lists = {name: [value for other, value in query if other == name] for name in repeated}
        if repeated:
            query = [(name, value) for name, value in query if name not in repeated]
        self._query = dict(query)
        self._headers = dict(stockade)
        for name in self._query:
            if name not in known:
                raise InvalidRequest(f"{printable(name)}: no such query parameter here")
        if len(self._query) < len(query) or len(self._headers) < len(stockade):
            name, count = Counter(name for name, _ in [*query, *stockade]).most_common(1)[0]
            raise InvalidRequest(f"{name}: occurs {count} times")
        lists = [(name, value) for name, values in self._lists.items() for value in values] if repeated else ()
        for name, value in (*path.items(), *query, *lists, *stockade):
            if not value.isascii() and not is_utf8(value):
                raise InvalidRequest(f"{name}: not UTF-8")

    def topic(self) -> str:
        """The topic of the path."""
        return _checked_name("topic", self._path["topic"])

    def stage(self) -> str:
        """The stage of the path."""
        return _checked_stage("stage", self._path["stage"])

    def stage_prefix(self) -> str:
        """The query's prefix of the names of stages to list; empty when absent."""
        prefix = self._query.get("prefix")
        return "" if prefix is None else _checked_stage("prefix", prefix)

    def partition(self) -> int:
        """The partition of the path."""
        return integer("partition", self._path["partition"], 0, PARTITION_MAX)

    def path(self, name: str) -> str:
        """The path parameter ``name`` as text, unchecked: an opaque id."""
        return self._path[name]

    def has_path(self, name: str) -> bool:
        """Whether the path has this parameter."""
        return name in self._path

    def has(self, *names: str) -> bool:
        """Whether the query has any of these parameters."""
        return any(name in self._query for name in names)

    def query_integer(self, name: str, low: int, high: int, default: _Default) -> int | _Default:
        """The integer ``name`` of the query, from ``low`` to ``high``; ``default`` when absent."""
        text = self._query.get(name)
        return default if text is None else integer(name, text, low, high)

    def query_choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """The word ``name`` of the query, one of ``choices``; ``default`` when absent."""
        word = self._query.get(name, default)
        if word not in choices:
            raise InvalidRequest(f"{name}: not one of {', '.join(choices)}")
        return word

    def query_text(self, name: str) -> str:
        """The text ``name`` of the query, 1 to NAME_CHARACTERS_MAX characters; empty when absent."""
        text = self._query.get(name)
        if text is not None and not 1 <= len(text) <= NAME_CHARACTERS_MAX:
            raise InvalidRequest(f"{name}: not 1 to {NAME_CHARACTERS_MAX} characters")
        return text or ""

    def query_flag(self, name: str) -> bool:
        """A boolean of the query, false when absent."""
        return self.query_choice(name, ("true", "false"), "false") == "true"

    def query_integer_or(self, name: str, words: Sequence[str], default: str) -> int | str:
        """The query's ``name``: one of ``words``, or an integer from 0 to INT64_MAX; ``default`` when absent."""
        text = self._query.get(name, default)
        if text in words:
            return text
        if not _DIGITS.fullmatch(text):
            raise InvalidRequest(f"{name}: neither an integer nor one of {', '.join(words)}")
        return integer(name, text, 0, INT64_MAX)

    def query_list(self, name: str) -> list[str]:
        """The values of a parameter that may be repeated, at least one."""
        values = self._lists[name]
        if not values:
            raise InvalidRequest(f"{name}: missing")
        return values

    def group(self) -> str:
        """The group of the path."""
        return _checked_name("group", self._path["group"])

    def fence_epoch(self) -> int | None:
        """The query's ``fence_epoch``, which guards an owner's reads and positions; None when absent."""
        return self.query_integer("fence_epoch", 0, UINT64_MAX, None)

    def read_guard(self) -> tuple[str, int] | None:
        """The query's group and fence_epoch, which guard a read; None when both are absent."""
        group, fence_epoch = self._query.get("group"), self.fence_epoch()
        if group is not None and fence_epoch is not None:
            return _checked_name("group", group), fence_epoch
        if group is None and fence_epoch is None:
            return None
        missing = "group" if group is None else "fence_epoch"
        raise InvalidRequest(f"{missing}: missing; group and fence_epoch come both or not at all")

    def topic_id(self) -> int | None:
        """The topic id that the client expects, None for any: a topic of the same name with another id is refused."""
        return self.query_integer("topic_id", 0, INT64_MAX, None)

    def header(self, name: str) -> str | None:
        """A Stockade-* header, as it was sent."""
        return self._headers.get(name)

    def header_integer(self, name: str, high: int) -> int | None:
        """A Stockade-* header that is an integer from 0 to ``high``."""
        value = self.header(name)
        return None if value is None else integer(name, value, 0, high)

    def trio(self, first: str, second: str, third: str) -> bool:
        """Whether these three Stockade-* headers are present. Raises InvalidRequest for one or two of them."""
        headers = self._headers
        present = (first in headers) + (second in headers) + (third in headers)
        if present in (1, 2):
            missing = next(name for name in (first, second, third) if name not in headers)
            raise InvalidRequest(f"{missing}: missing; {first}, {second} and {third} come all three or not at all")
        return present > 0

    def text(self, name: str) -> str:
        """The value of a mandatory Stockade-* header."""
        value = self.header(name)
        if value is None:
            raise InvalidRequest(f"{name}: missing")
        return value

    def number(self, name: str, high: int) -> int:
        """The value of a mandatory Stockade-* header that is an integer from 0 to ``high``."""
        return integer(name, self.text(name), 0, high)

    def session(self) -> str:
        """The value of the mandatory header Stockade-Session."""
        if "Stockade-Session" not in self._headers:
            raise InvalidRequest("Stockade-Session: missing")
        return self._headers["Stockade-Session"]


def _checked_stage(kind: str, name: str) -> str:
    if not _STAGE_NAME.fullmatch(name):
        raise InvalidRequest(f"{kind}: not 1 to 249 of letters, digits, '.', '_', '~', '-'")
    return name


def _checked_name(kind: str, name: str) -> str:
    if not _TOPIC_NAME.fullmatch(name):
        raise InvalidRequest(f"{kind}: not 1 to 249 of letters, digits, '.', '_', '-'")
    return name


@lru_cache(1024)  # headers that other requests had
def _stockade_name(header: str) -> str:
    """The name of a Stockade-* header as the contract writes it; "" for any other header."""
    return header.title() if header.lower().startswith(_STOCKADE) else ""


def integer(name: str, text: str, low: int, high: int) -> int:
    """The integer, ``low`` to ``high``, that ``text`` has in ASCII digits. Raises InvalidRequest about ``name``."""
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest(f"{name}: not an integer in decimal digits")
    digits = text if len(text) <= _INTEGER_DIGITS_MAX else text.lstrip("0") or "0"
    value = int(digits) if len(digits) <= _INTEGER_DIGITS_MAX else UINT64_MAX + 1
    if not low <= value <= high:
        raise InvalidRequest(f"{name}: not from {low} to {high}")
    return value


def is_utf8(text: str) -> bool:
    """Whether a text came as UTF-8: the parser turns bytes that are not UTF-8 into half surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str, most: int = 64) -> str:
    """The first ``most`` characters of a text from outside, escaped to printable ASCII."""
    return ascii(text[:most])[1:-1]
