"""Checks that the installed aiohttp is one whose private fields the server knows.

The fast path (fast_path/connection.py) shares a connection with aiohttp: whether it may take the next request follows
from private fields of aiohttp's connection. A missing field would fail in the middle of a request. A field whose
meaning has changed could give one request the answer of another, which no check of names would detect. So the server
starts only with the versions that the tests run with: 3.14, from 3.14.5 on. The client needs no private name.
"""

import re
from types import FunctionType

from aiohttp import BaseConnector, web

NEEDED = "aiohttp>=3.14.5,<3.15"
"""Version of the library, as pyproject.toml asks for it."""
_FIRST, _END = (3, 14, 5), (3, 15)
PRIVATE: dict[type, frozenset[str]] = {
    web.RequestHandler: frozenset(
        {
            *("_close", "_force_close", "_loop", "_max_msg_queue_size", "_messages", "_msg_queue_resume_size"),
            *("_next_keepalive_close_time", "_parser", "_read_bufsize", "_request_in_progress", "_waiter"),
        }
    ),
    web.BaseSite: frozenset({"_server"}),
    web.AppRunner: frozenset({"_kwargs", "_make_server"}),
    web.Server: frozenset({"_loop"}),
    web.StreamResponse: frozenset({"_length_check"}),
    BaseConnector: frozenset({"_create_connection", "_factory"}),
}
"""Private names of aiohttp's classes that the server uses."""


def names_of(cls: type) -> set[str]:
    """The attributes of a class of aiohttp, and those of its instances that its constructors name."""
    constructors = [vars(base).get("__init__") for base in cls.__mro__]
    functions = [each for each in constructors if isinstance(each, FunctionType)]
    return {*dir(cls), *(name for each in functions for name in each.__code__.co_names)}


def check_library(version: str, private: dict[type, frozenset[str]] = PRIVATE) -> None:
    """Raise ImportError for an aiohttp that is not a tested version, or lacks a name of ``private``."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    if not _FIRST <= numbers < _END:
        raise ImportError(f"{NEEDED} is needed, not {version}: the HTTP server uses private fields of it")
    missing = {f"{cls.__name__}.{name}" for cls, names in private.items() for name in names - names_of(cls)}
    if missing:
        raise ImportError(f"aiohttp {version} lacks {', '.join(sorted(missing))}, which the HTTP server uses")
