"""Checks that the installed pysyncobj is the version whose private methods RaftNode replaces."""

from types import CodeType
from typing import Any


class Untyped:
    """The class that type checkers see in place of ``SyncObj``, as the library has no types."""

    _SyncObj__setCurrentTerm: Any
    _SyncObj__onBecomeLeader: Any

    def __init__(self, *arguments: Any, **options: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...


def check_library(cls: type, library_class: type, version: str) -> None:
    """Raise ImportError for a pysyncobj of another version, or that lacks a name which ``cls`` replaces or uses."""
    if version != "0.3.17":
        raise ImportError(f"pysyncobj 0.3.17 is needed, not {version}: its private methods are replaced here")
    functions = [getattr(member, "fget", member) for member in vars(cls).values()]
    codes: list[CodeType] = [function.__code__ for function in functions if hasattr(function, "__code__")]
    replaced = {name for name in vars(cls) if name.startswith("_SyncObj__")} | {"_onTick", "_checkCommandsToApply"}
    used = {name for code in codes for name in code.co_names if name.startswith("_SyncObj__")}
    fields = library_class.__init__.__code__.co_names  # type: ignore[misc]
    missing = (replaced | (used - {*fields})) - {*vars(library_class)}
    if missing:
        raise ImportError(f"pysyncobj {version} lacks {', '.join(sorted(missing))}")
