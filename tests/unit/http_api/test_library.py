"""The server refuses an aiohttp that it was not tested with, and every private name of it that it uses is checked."""

import ast
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import CodeType

import aiohttp
import pytest
from aiohttp import web

from stockade.client.transport.http import Transport
from stockade.http_api.library import NEEDED, PRIVATE, check_library, names_of
from stockade.http_api.request.call import Call
from stockade.http_api.server import HttpConnection, HttpRunner

ROOT = Path(__file__).resolve().parents[3]
IMPORTED = (Transport, Call, HttpConnection, HttpRunner)
"""Their modules define every class of ours that extends one of aiohttp's."""


def test_the_installed_library_is_accepted() -> None:
    check_library(aiohttp.__version__)
    assert aiohttp.__version__ == version("aiohttp")


@pytest.mark.parametrize("other", ["3.14.4", "3.13.99", "3.15.0", "3.15.0a1", "4.0.0"])
def test_a_version_that_was_not_tested_is_refused_by_name(other: str) -> None:
    with pytest.raises(ImportError, match=f"{NEEDED} is needed, not {other}"):
        check_library(other)


def test_a_later_fix_of_the_tested_version_is_accepted() -> None:
    check_library("3.14.17")


def test_a_missing_field_is_refused_with_its_name_and_the_version() -> None:
    with pytest.raises(ImportError, match=r"aiohttp 3\.14\.5 lacks RequestHandler\._no_such_field, which"):
        check_library("3.14.5", PRIVATE | {web.RequestHandler: frozenset({"_waiter", "_no_such_field"})})


def test_the_package_requires_the_aiohttp_versions_that_the_server_accepts() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [each for each in project["dependencies"] if each.startswith("aiohttp")] == [NEEDED]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith(("__", "_abc_"))


def inside(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from inside(each)


def private_names(cls: type) -> tuple[type, set[str]]:
    """The class of aiohttp that a class of ours extends, and private names of it that ours uses or takes for itself."""
    base = next(each for each in cls.__mro__ if each.__module__.startswith("aiohttp."))
    members = [item for each in cls.__mro__ if each.__module__.startswith("stockade.") for item in vars(each).items()]
    own = {name for name, _ in members}
    codes = [value.__code__ for _, value in members if hasattr(value, "__code__")]
    used = {name for code in codes for each in inside(code) for name in each.co_names}
    return base, {name for name in (own | used) & names_of(base) if is_private(name)}


def extensions(base: type) -> list[type]:
    direct: list[type] = base.__subclasses__()
    return [found for each in direct for found in (each, *extensions(each))]


@pytest.mark.parametrize("base", PRIVATE, ids=lambda base: str(base.__name__))
def test_every_private_name_that_the_server_uses_is_checked_at_start(base: type) -> None:
    ours = [each for each in extensions(base) if each.__module__.startswith("stockade.http_api")]
    assert ours
    assert set.union(*(private_names(each)[1] for each in ours)) == PRIVATE[base]


def test_no_other_class_of_aiohttp_is_extended_with_private_names() -> None:
    """The client's body extends one, and a client may run with any aiohttp that has its public names."""
    known = {each for base in PRIVATE for each in extensions(base)}
    exported = [*vars(aiohttp).values(), *vars(web).values()]
    bases = [each for each in exported if isinstance(each, type) and each.__module__.startswith("aiohttp.")]
    others = {each for base in bases for each in extensions(base) if each.__module__.startswith("stockade.")} - known
    assert {each.__name__ for each in others} >= {"_Body"}
    assert {each.__name__: private_names(each)[1] for each in others if private_names(each)[1]} == {}


def test_private_names_are_used_inside_of_such_classes_only() -> None:
    library = Path(aiohttp.__file__).parent
    known = {name for path in library.glob("*.py") for name in attributes(path, own=True)}
    files = [*(ROOT / "http_api").rglob("*.py"), *(ROOT / "client").rglob("*.py")]
    faults = [f"{path.name} {name}" for path in files for name in attributes(path, own=False) if name in known]
    assert [fault for fault in faults if not fault.endswith(" _replace")] == []  # of named tuples


def attributes(path: Path, *, own: bool) -> set[str]:
    """Private names after a dot: after ``self`` and ``super()``, or after anything else."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and is_private(node.attr)
        if (ast.unparse(node.value) in {"self", "cls", "super()"}) == own
    }
