"""The floors: who may import whom, which file touches which dependency, and where there is neither clock nor chance."""

import ast
import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from itertools import chain, pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

import pytest
from sources import python, report, text

FLOORS = {"cli": 5, "http_api": 4, "chaos": 4, "spark": 4, "cluster": 3, "client": 3, "raft": 2, "partition": 1}
OUTSIDE = {"chaos", "spark", "client"}
"""They talk to a cluster over HTTP: of the house they see the client and the vocabulary, never the server."""
PACKAGES = {"stockade", "pyspark_stockade"}

OWNERS = {
    "pysyncobj": ["raft/core/library.py"],
    "aiohttp": ["http_api/*", "client/transport/http.py"],
    "yarl": ["http_api/*"],
    "multidict": ["http_api/*"],
    "yaml": ["http_api/contract.py"],
    "orjson": ["http_api/codec/json_codec.py"],
    "prometheus_client": ["http_api/*", "cli/backup/schedule.py", "cli/canary/figures.py"],
    "py4j": ["spark/pipelines/*"],
    "pyspark": ["spark/data_source.py", "spark/source/stream.py", "spark/sink/writer.py", "spark/pipelines/*"],
    "uvloop": ["cli/*"],
    "click": ["cli/*"],
    "rich": ["cli/*"],
    "opentelemetry": ["client/telemetry.py", "http_api/request/tracing.py"],
    "cryptography": ["cli/node/authority.py"],
    "jwt": ["cluster/access/issuers.py"],
    "isal": ["partition/records/checksum.py"],
    "toxiproxy": ["chaos/system/toxiproxy_library.py"],
    "pyarrow": ["*/*"],
    "msgspec": ["*/*"],
}
"""Every dependency, and the files that may import it."""

UNDECLARED = {"multidict", "yarl", "yaml", "atheris", "confluent_kafka", "opentelemetry", "toxiproxy"} | {
    "cyclonedx",
    "packageurl",
    "jwt",
    "selenium",
}
"""The first two come with aiohttp; the next three are for making the contract's document, for `make fuzz`, and a peer's
client to measure beside ours; the others are what opentelemetry-api, toxiproxy-python, cyclonedx-python-lib and pyjwt
install. Selenium is for `make test`'s browser (tools/lock.py).
"""

PURE = [
    *("partition/*", "cluster/controller/*", "cluster/balance/*", "client/producer/queue/*", "chaos/checkers/*"),
    *("spark/source/planning/*", "spark/source/rows/*"),
]
"""Folders without clock, asyncio, randomness, files and sockets; a folder counts with all that lies in it."""
INPUT_OUTPUT = ["partition/log/*", "partition/durable/*", "partition/places/*"]
"""The exceptions: they read and write files, and are as free of clock and chance as the rest."""
CLOCK = {"asyncio", "datetime", "sched", "threading", "time"}
CHANCE = {"random", "secrets", "uuid"}
OUTER_WORLD = {"fcntl", "io", "mmap", "os", "pathlib", "selectors", "shutil", "socket", "subprocess", "tempfile"}


class Import(NamedTuple):
    """One imported module: ``level`` is the number of leading dots, ``name`` what follows them."""

    line: int
    level: int
    name: str


def imports(source: str) -> list[Import]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [Import(node.lineno, 0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is None:
            found += [Import(node.lineno, node.level, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(Import(node.lineno, node.level, str(node.module)))
    return found


def folder_of(path: PurePosixPath, each: Import) -> str | None:
    """The folder that a relative import leads to; None for the package itself, and for an absolute import."""
    if each.level == 0:
        return None
    package = [*path.parts[:-1]]
    target = [*package[: len(package) - each.level + 1], *each.name.split(".")]
    return target[0] if target[0] in FLOORS else None


def matches(path: PurePosixPath, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(str(path), pattern) for pattern in patterns)


def allowed(source: str, target: str) -> bool:
    if source in OUTSIDE and target not in {"client", "partition"}:
        return False
    return FLOORS[target] < FLOORS[source]


def floor_faults(path: PurePosixPath, source: str) -> list[str]:
    """What is wrong with the imports of a file of the product."""
    faults = []
    here = path.parts[0]
    for each in imports(source):
        top = each.name.split(".")[0]
        target = folder_of(path, each)
        if each.level == 0 and top in PACKAGES:
            faults.append(f"{path}:{each.line} imports {each.name} absolutely: inside the house, imports are relative")
        elif each.level > 0 and target is None:
            faults.append(f"{path}:{each.line} imports {each.name} of the package itself, which is above every floor")
        elif target not in (None, here) and not allowed(here, str(target)):
            faults.append(f"{path}:{each.line} imports {target}, which {here} must not know")
    return faults


def bare_faults(path: PurePosixPath, source: str) -> list[str]:
    """Folders imported as if they were packages: a second copy of every class in them."""
    bare = [each for each in imports(source) if each.level == 0 and each.name.split(".")[0] in FLOORS]
    return [f"{path}:{each.line} imports {each.name} without its package" for each in bare]


def dependency_faults(path: PurePosixPath, source: str) -> list[str]:
    faults = []
    for each in imports(source):
        top = each.name.split(".")[0]
        if each.level or top in sys.stdlib_module_names or top in PACKAGES:
            continue
        if not matches(path, OWNERS.get(top, [])):
            faults.append(f"{path}:{each.line} imports {top}, which belongs to {OWNERS.get(top, 'no file')}")
    return faults


def declared() -> set[str]:
    """Libraries that the project asks for, for itself, for Spark and for the tests."""
    project = tomllib.loads(text(PurePosixPath("pyproject.toml")))["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    return {re.split(r"[^\w-]", requirement)[0].replace("-", "_") for requirement in wanted}


def undeclared_faults(path: PurePosixPath, source: str, known: set[str]) -> list[str]:
    tops = [(each.line, each.name.split(".")[0]) for each in imports(source) if each.level == 0]
    return [f"{path}:{line} imports {top}" for line, top in tops if top not in known | set(sys.stdlib_module_names)]


def purity_faults(path: PurePosixPath, source: str) -> list[str]:
    banned = CLOCK | CHANCE if matches(path, INPUT_OUTPUT) else CLOCK | CHANCE | OUTER_WORLD
    faults = [
        f"{path}:{each.line} imports {each.name}"
        for each in imports(source)
        if each.level == 0 and each.name.split(".")[0] in banned
    ]
    if not matches(path, INPUT_OUTPUT):
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
        faults += [
            f"{path}:{call.lineno} calls {call.func.id}"
            for call in calls
            if isinstance(call.func, ast.Name) and call.func.id in {"open", "print", "input"}
        ]
    return faults


def test_imports_go_down_only() -> None:
    report([fault for path in python(*FLOORS) for fault in floor_faults(path, text(path))])


def unit_of(path: PurePosixPath, folders_with_folders: Collection[PurePosixPath]) -> str:
    """The subpackage of a module; the module itself where its folder has subpackages, which then stand beside it."""
    stands_alone = path.parent in folders_with_folders
    return str(path.with_suffix("") if stands_alone or path.name == "__init__.py" else path.parent)


def targets(path: PurePosixPath, source: str, files: Collection[PurePosixPath]) -> Iterator[PurePosixPath]:
    """The files of the product that a file imports, late imports included."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*path.parts[:-1]][: len(path.parts) - node.level]
            module = [*base, *(node.module.split(".") if node.module else [])]
            for parts in (module, *([*module, alias.name] for alias in node.names)):
                if (found := PurePosixPath(*parts).with_suffix(".py")) in files:
                    yield found


def cycle_faults(sources: Mapping[PurePosixPath, str]) -> list[str]:
    """Subpackages that import each other in a circle, named with one import for each step."""
    parents = {parent for path in sources for parent in path.parent.parents if parent != PurePosixPath(".")}
    steps: dict[str, dict[str, str]] = {}
    for path, source in sources.items():
        here = unit_of(path, parents)
        for target in targets(path, source, sources):
            if (there := unit_of(target, parents)) != here:
                steps.setdefault(here, {}).setdefault(there, f"{path} imports {target}")
    try:
        tuple(TopologicalSorter(steps).static_order())
    except CycleError as error:
        circle = error.args[1]
        return [steps[importer][imported] for imported, importer in pairwise(circle)]
    return []


def test_subpackages_import_one_way() -> None:
    report(cycle_faults({path: text(path) for path in python(*FLOORS)}))


def imported_folders(sources: Mapping[PurePosixPath, str]) -> dict[PurePosixPath, set[str]]:
    """For each folder of the product, the other folders that its own modules import, as dotted names."""
    found: dict[PurePosixPath, set[str]] = {}
    for path, source in sources.items():
        here = found.setdefault(path.parent, set())
        here.update(".".join(target.parent.parts) for target in targets(path, source, sources))
    return {folder: names - {".".join(folder.parts)} for folder, names in found.items()}


def may_import(init: str) -> str:
    """What a folder's ``__init__.py`` says it may import: the end of its docstring, on one line."""
    before, marker, said = (ast.get_docstring(ast.parse(init)) or "").partition("\nMay import: ")
    if "May import" in before:
        return "(it twice)"
    return " ".join(said.split()) if marker else "(no such line)"


def permission_faults(sources: Mapping[PurePosixPath, str]) -> list[str]:
    """Folders that import what their ``__init__.py`` does not name, or name what they do not import."""
    faults = []
    for folder, names in sorted(imported_folders(sources).items()):
        wanted = ", ".join(sorted(names)) + "." if names else "nothing of the house."
        if (said := may_import(sources[folder / "__init__.py"])) != wanted:
            faults.append(f"{folder}/__init__.py: say 'May import: {wanted}', not {said!r}")
    return faults


def test_each_folder_says_what_it_may_import() -> None:
    report(permission_faults({path: text(path) for path in python(*FLOORS)}))


def test_no_folder_is_imported_without_its_package() -> None:
    everywhere = python(*FLOORS, "src", "tests", "tools", "bench", "examples")
    report([fault for path in everywhere for fault in bare_faults(path, text(path))])


def test_each_dependency_is_touched_by_its_owner_only() -> None:
    report([fault for path in python(*FLOORS) for fault in dependency_faults(path, text(path))])


def test_every_library_is_asked_for() -> None:
    files = python(*FLOORS, "src", "tests", "tools", "bench", "examples")
    helpers = {part for path in python("tests", "tools", "bench") for part in path.with_suffix("").parts[1:]}
    known = declared() | UNDECLARED | PACKAGES | helpers
    report([fault for path in files for fault in undeclared_faults(path, text(path), known)])


def test_pure_modules_have_no_clock_no_chance_and_no_files() -> None:
    pure = [path for path in python(*FLOORS) if matches(path, PURE)]
    report([fault for path in pure for fault in purity_faults(path, text(path))])


def test_every_rule_is_about_files_that_exist() -> None:
    files = python(*FLOORS)
    named = [*PURE, *INPUT_OUTPUT, *(pattern for patterns in OWNERS.values() for pattern in patterns)]
    report([pattern for pattern in named if not any(matches(path, [pattern]) for path in files)])


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("partition/x.py", "from ..raft import group"),
        ("partition/x.py", "from .. import raft"),
        ("raft/x.py", "from ..cluster.config import load"),
        ("cluster/x.py", "def f():\n    from ..client import producer"),
        ("client/x.py", "from ..raft.machine import Machine"),
        ("chaos/x.py", "from ..http_api import app"),
        ("spark/x.py", "from ..cluster import model"),
        ("spark/x.py", "from ..chaos import history"),
        ("http_api/x.py", "from ..cli import main"),
        ("http_api/console/x.py", "from ...spark import source"),
        ("raft/x.py", "import stockade.partition"),
        ("raft/x.py", "from stockade.partition import errors"),
        ("client/x.py", "from .. import Producer"),
    ],
)
def test_an_import_upwards_or_sideways_is_found(path: str, source: str) -> None:
    assert len(floor_faults(PurePosixPath(path), source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("raft/x.py", "from ..partition.errors import StockadeError"),
        ("raft/x.py", "from . import frames\nfrom .wal import Wal\nimport asyncio"),
        ("http_api/console/x.py", "from ..app import make\nfrom ...cluster.service import Service"),
        ("chaos/x.py", "from ..client import producer\nfrom ..partition import errors"),
        ("cli/x.py", "from ..http_api import app\nfrom ..chaos import demo"),
    ],
)
def test_an_import_downwards_is_fine(path: str, source: str) -> None:
    assert floor_faults(PurePosixPath(path), source) == []


@pytest.mark.parametrize("source", ["import partition", "import raft.group as g", "from cluster.config import load"])
def test_a_bare_import_is_found(source: str) -> None:
    assert len(bare_faults(PurePosixPath("tests/x.py"), source)) == 1


def test_a_folder_imported_with_its_package_is_fine() -> None:
    assert bare_faults(PurePosixPath("tests/x.py"), "import stockade.partition\nfrom .raft import x") == []


@pytest.mark.parametrize(
    ("path", "source", "count"),
    [
        ("raft/core/group.py", "import pysyncobj.syncobj", 1),
        ("raft/core/library.py", "import pysyncobj.syncobj", 0),
        ("client/transport/metadata.py", "from aiohttp import ClientSession", 1),
        ("http_api/app.py", "from aiohttp import web", 0),
        ("http_api/console/page.py", "from aiohttp import web", 0),
        ("cluster/x.py", "import requests", 1),
        ("cluster/x.py", "import msgspec, json", 0),
    ],
)
def test_a_dependency_out_of_its_place_is_found(path: str, source: str, count: int) -> None:
    assert len(dependency_faults(PurePosixPath(path), source)) == count


def test_an_undeclared_library_is_found() -> None:
    path = PurePosixPath("tests/x.py")
    assert {"pytest", "prometheus_client", "pyspark", "msgspec"} <= declared()
    assert undeclared_faults(path, "import json\nimport requests\nfrom pytest import raises", declared()) == [
        "tests/x.py:2 imports requests"
    ]


@pytest.mark.parametrize(
    ("path", "source", "count"),
    [
        ("partition/state/machine.py", "import time", 1),
        ("partition/state/machine.py", "from datetime import datetime", 1),
        ("partition/state/machine.py", "def f():\n    import random", 1),
        ("partition/state/machine.py", "open('x')", 1),
        ("partition/state/machine.py", "import os.path", 1),
        ("partition/state/machine.py", "from .producers import time", 0),
        ("partition/log/segments.py", "import os\nopen('x')", 0),
        ("partition/log/segments.py", "import asyncio", 1),
    ],
)
def test_a_clock_chance_or_a_file_where_none_may_be_is_found(path: str, source: str, count: int) -> None:
    assert len(purity_faults(PurePosixPath(path), source)) == count


@pytest.mark.parametrize(
    ("sources", "count"),
    [
        ({"raft/a/x.py": "from ..b.y import f", "raft/b/y.py": "from ..a import x"}, 2),
        (
            {
                "raft/a/x.py": "from ..b.y import f",
                "raft/b/y.py": "def f():\n    from ..c.z import g",
                "raft/c/z.py": "from ..a.x import h",
            },
            3,
        ),
        ({"raft/a/x.py": "from .. import host", "raft/host.py": "from .a.x import f"}, 2),
        ({"raft/a/x.py": "from ..settings import S", "raft/host.py": "from .a.x import f", "raft/settings.py": ""}, 0),
        ({"raft/a/x.py": "from ..b.y import f\nfrom .z import g", "raft/a/z.py": "", "raft/b/y.py": ""}, 0),
    ],
)
def test_subpackages_that_import_in_a_circle_are_found(sources: dict[str, str], count: int) -> None:
    assert len(cycle_faults({PurePosixPath(name): source for name, source in sources.items()})) == count


@pytest.mark.parametrize(
    ("init", "source", "count"),
    [
        ('"""Takes.\n\nMay import: raft.b, raft.c.\n"""', "from ..b.y import f\nfrom ..c import z", 0),
        ('"""Takes.\n\nMay import: raft.b,\nraft.c.\n"""', "from ..b.y import f\nfrom ..c import z", 0),
        ('"""Takes.\n\nMay import: nothing of the house.\n"""', "from .w import f\nimport os", 0),
        ('"""Takes.\n\nMay import: raft.b.\n"""', "from ..b.y import f\ndef f():\n    from ..c import z", 1),
        ('"""Takes.\n\nMay import: raft.b, raft.c.\n"""', "from ..b.y import f", 1),
        ('"""Takes."""', "from .w import f", 1),
        ('"""Takes. May import `..b`.\n\nMay import: raft.b.\n"""', "from ..b.y import f", 1),
    ],
)
def test_a_folder_that_imports_what_it_does_not_say_is_found(init: str, source: str, count: int) -> None:
    nothing = '"""Takes.\n\nMay import: nothing of the house.\n"""'
    sources = {
        **{"raft/a/__init__.py": init, "raft/a/x.py": source, "raft/a/w.py": ""},
        **{"raft/b/__init__.py": nothing, "raft/b/y.py": "", "raft/c/__init__.py": nothing, "raft/c/z.py": ""},
    }
    assert len(permission_faults({PurePosixPath(name): source for name, source in sources.items()})) == count
