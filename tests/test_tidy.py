"""House rules that no linter knows: sizes, dead modules, tests that sleep, left-over marks, names of one machine."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

import pytest
from sources import ROOT, python, report, text, tracked

FOLDERS = ("cli", "http_api", "chaos", "spark", "cluster", "client", "raft", "partition")
EVERYTHING = (*FOLDERS, "src", "tests", "tools", "bench", "examples")

FUNCTION_LINES_MAX = 40
TEST_FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
MODULES_MAX = 13

ENTRY_POINTS = {
    *(
        "cli.main",
        "src.stockade.sync",
        "src.stockade.testing",
        "src.stockade.otel",
        "src.stockade.errors",
        "src.stockade.model",
    ),
    *("http_api.contract", "cluster.controller.invariants", "partition.state.invariants"),
    "spark.package",
}
"""Modules that nothing in the product imports: how it starts, what users import, how the contract is made, what tests
use.
"""

REGISTRIES = [
    "pypi" + ".org",
    "pythonhosted" + ".org",
    "npmjs" + ".org",
    "proxy.golang" + ".org",
    "deb.debian" + ".org",
]
MACHINE_PATHS = ["/" + name for name in ("work/", "root/", "tmp/v/", "home/")]
BESIDE_THE_CLONE = ["ROOT" + ".parent"]
OF_OTHERS = ["examples/data", "http_api/assets/console/vendor"]
PRONOUNS = [first + last for first, last in (("who", "ever"), ("no", "body"), ("some", "body"), ("any", "body"))]
"""A claim and a page name their subject: session, client, leader."""
MARKS = ["TO" + "DO", "FIX" + "ME", "XX" + "X"]


def own_text() -> list[PurePosixPath]:
    """Everything that we wrote: all but the sample data, which are other people's logs, and others' libraries."""
    own = [path for path in tracked() if not any(path.is_relative_to(each) for each in OF_OTHERS)]
    return [path for path in own if path.suffix != ".png"]


def function_lengths(source: str) -> dict[str, int]:
    """Lines of every function by ``name:line``, decorators and docstring left out."""
    lengths = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            words = (ast.get_docstring(node, clean=False) or "").count("\n") + 1 if ast.get_docstring(node) else 0
            lengths[f"{node.name}:{node.lineno}"] = (node.end_lineno or 0) - node.lineno + 1 - words
    return lengths


def long_functions(source: str, lines_max: int) -> list[str]:
    return [f"{name} has {lines} lines" for name, lines in function_lengths(source).items() if lines > lines_max]


def sleeps(source: str) -> list[int]:
    """Lines where a test sleeps instead of waiting for a condition.

    A pause inside a ``while`` is a poll; one inside a loop that asserts watches that something stays as it is.
    """
    tree = ast.parse(source)
    polls = {id(node) for loop in ast.walk(tree) if polls_or_watches(loop) for node in ast.walk(loop)}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and id(node) not in polls and is_sleep(node)
    ]


def polls_or_watches(loop: ast.AST) -> bool:
    if isinstance(loop, ast.For | ast.AsyncFor):
        return any(isinstance(node, ast.Assert) for node in ast.walk(loop))
    return isinstance(loop, ast.While)


def is_sleep(call: ast.Call) -> bool:
    """``asyncio.sleep(0)`` only lets others run."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    yields = bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return name == "sleep" and not yields


def module_name(path: PurePosixPath) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: PurePosixPath, source: str) -> set[str]:
    """Modules of ours that a file imports, as ``folder.module``. A text like ".module:name" is a late import."""
    package = path.parts[:-1]
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            start = [*base, *(node.module or "").split(".")] if node.module else base
            found.add(".".join(start))
            found |= {".".join([*start, alias.name]) for alias in node.names}
        elif isinstance(node, ast.Constant) and re.fullmatch(r"\.[\w.]+:\w+", str(node.value)):
            found.add(".".join(package) + str(node.value).partition(":")[0])
    return {name.removeprefix("src.").removeprefix("stockade.") for name in found}


def dead_modules(files: Mapping[PurePosixPath, str], entry_points: Iterable[str]) -> list[str]:
    """Modules that no other module imports."""
    alive = set(entry_points)
    for path, source in files.items():
        alive |= imported_modules(path, source) - {module_name(path)}
    modules = {module_name(path) for path in files if path.name not in ("__init__.py", "__main__.py")}
    return sorted(modules - alive)


def lines_with(source: str, words: Iterable[str], *, whole: bool) -> list[int]:
    """Numbers of the lines that hold one of some words (``whole``: as a word of its own)."""
    edge = r"\b" if whole else ""
    pattern = re.compile("|".join(f"{edge}{re.escape(word)}{edge}" for word in words))
    return [number for number, line in enumerate(source.splitlines(), 1) if pattern.search(line)]


def test_functions_are_short() -> None:
    faults = [
        f"{path} {fault}"
        for path in python(*FOLDERS, "src", "tools")
        for fault in long_functions(text(path), FUNCTION_LINES_MAX)
    ]
    for path in python("tests", "bench", "examples"):
        faults += [f"{path} {fault}" for fault in long_functions(text(path), TEST_FUNCTION_LINES_MAX)]
    report(faults)


def test_files_are_short() -> None:
    faults = []
    for path in python(*EVERYTHING):
        lines = len(text(path).splitlines())
        if lines > FILE_LINES_MAX:
            faults.append(f"{path} has {lines} lines")
    report(faults)


def test_a_folder_has_about_a_dozen_modules() -> None:
    modules = Counter(path.parent for path in python(*FOLDERS, "src") if path.name != "__init__.py")
    report([f"{folder} has {count} modules" for folder, count in modules.items() if count > MODULES_MAX])


def test_every_folder_says_what_lives_there() -> None:
    folders = {path.parent for path in python(*FOLDERS)}
    texts = {folder: ast.get_docstring(ast.parse(text(folder / "__init__.py"))) or "" for folder in folders}
    report([f"{folder}/__init__.py has no docstring" for folder, words in texts.items() if not words])


def test_unit_tests_lie_in_folders_of_the_same_name() -> None:
    folders = {path.parent.relative_to("tests/unit") for path in python("tests") if path.is_relative_to("tests/unit")}
    report([f"tests/unit/{folder}" for folder in sorted(folders) if not (ROOT / folder).is_dir()])


def test_every_module_is_used() -> None:
    report(dead_modules({path: text(path) for path in python(*FOLDERS, "src")}, ENTRY_POINTS))


def test_no_test_sleeps_in_place_of_a_condition() -> None:
    report([f"{path}:{line}" for path in python("tests") for line in sleeps(text(path))])


def test_nothing_is_marked_for_later() -> None:
    report([f"{path}:{line}" for path in own_text() for line in lines_with(text(path), MARKS, whole=True)])


def unnamed_subjects(path: PurePosixPath, source: str) -> list[int]:
    """Numbers of the lines of a page, or of those that name a test, that have a pronoun in place of a subject."""
    pronoun, is_page = "|".join(PRONOUNS), path.suffix == ".md"
    fault = re.compile(rf"\b({pronoun})\b" if is_page else rf"^ *(async )?def test_\w*({pronoun})", re.IGNORECASE)
    return [number for number, line in enumerate(source.splitlines(), 1) if fault.search(line)]


def test_pages_and_names_of_tests_name_their_subjects() -> None:
    paths = [*python("tests"), *(path for path in own_text() if path.suffix == ".md")]
    report([f"{path}:{line}" for path in paths for line in unnamed_subjects(path, text(path))])


def test_no_registry_and_no_path_of_one_machine_or_beside_the_clone_is_named() -> None:
    names = [*REGISTRIES, *MACHINE_PATHS, *BESIDE_THE_CLONE]
    report([f"{path}:{line}" for path in own_text() for line in lines_with(text(path), names, whole=False)])


def files_named(words: str) -> set[str]:
    """Files of ours that a document names: a top-level folder, a path, an ending."""
    return set(
        re.findall(rf"(?<![\w/.-])(?:{'|'.join((*FOLDERS, 'tests', 'tools', 'bench'))})/[\w/-]+\.(?:py|md)\b", words)
    )


def test_documents_name_files_that_exist() -> None:
    pages = [path for path in own_text() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    report(
        [
            f"{page} names {name}"
            for page in pages
            for name in sorted(files_named(text(page)))
            if not (ROOT / name).is_file()
        ]
    )


def test_documents_name_tests_that_exist() -> None:
    tests = [path for path in own_text() if path.suffix == ".py" and path.parts[0] == "tests"]
    known = {name for path in tests for name in re.findall(r"^ *(?:async )?def (test_\w+)", text(path), re.MULTILINE)}
    pages = [path for path in own_text() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    named = [(page, name) for page in pages for name in re.findall(r"`(test_\w+)`", text(page))]
    assert len(named) > 80
    report([f"{page} names {name}" for page, name in named if name not in known])


SEMANTICS = PurePosixPath("docs/semantics.md")
CASES = PurePosixPath("docs/semantics-tests.md")
CITED = r"(?:A\d+|\d+\.\d+|\d+)(?![\w.]*\d)"


def cited(source: str) -> set[str]:
    """What a text cites of the semantics: sections (8), paragraphs (6.4), checks of an append (A7), cases (59)."""
    joint = r"(?:[\s,;(#)]|and|to|cases?)+"
    lists = re.findall(rf"SEMANTICS{joint}({CITED}(?:{joint}{CITED})*)", source)
    return {name for each in lists for name in re.findall(CITED, each)}


def citable(semantics: str, cases: str) -> set[str]:
    """Numbers that a text can cite: headings, paragraphs in bold, rows of the cases."""
    headings = re.findall(r"^#{2,3} (\d+(?:\.\d+)?)", semantics, re.MULTILINE)
    paragraphs = re.findall(r"\*\*(\d+\.\d+|[AI]\d+)\b", semantics)
    return {*headings, *paragraphs, *re.findall(r"^\| (\d+) \|", cases, re.MULTILINE)}


def test_sections_of_the_semantics_that_code_cites_exist() -> None:
    known = citable(text(SEMANTICS), text(CASES))
    faults, count = [], 0
    for path in python(*EVERYTHING):
        names = cited(text(path))
        if path.name == "invariants.py":
            names |= set(re.findall(r"\bI\d\b", text(path)))
        count += len(names)
        faults += [f"{path} cites SEMANTICS {name}" for name in sorted(names - known)]
    assert count > 100
    report(faults)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("(SEMANTICS 5.8, A6 to A9)", {"5.8", "A6", "A9"}),
        ("SEMANTICS 10 and 11, 84 to 87.", {"10", "11", "84", "87"}),
        ("SEMANTICS 11, 59: also 7", {"11", "59"}),
        ("(SEMANTICS 9.1; KIP-98)", {"9.1"}),
        ("SEMANTICS 5.5, 5.8 (A5), 5.10", {"5.5", "5.8", "A5", "5.10"}),
    ],
)
def test_sections_of_the_semantics_that_a_text_cites_are_found(words: str, found: set[str]) -> None:
    assert cited(words) == found


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_package_links_to_each_folder(folder: str) -> None:
    link = ROOT / "src" / "stockade" / folder
    assert link.is_symlink(), "the checkout must keep links (git config core.symlinks true)"
    assert link.readlink() == Path(f"../../{folder}")
    assert (ROOT / folder / "__init__.py").is_file()


def test_every_folder_ships() -> None:
    """Subfolders too: a wheel without one of them cannot be imported, and a checkout shows nothing of it."""
    packages = text(PurePosixPath("pyproject.toml"))
    modules = [path.parent for path in python(*FOLDERS) if path.name == "__init__.py"]
    report([f"{folder}" for folder in modules if f'"stockade.{".".join(folder.parts)}"' not in packages])


@pytest.mark.parametrize(("lines", "faults"), [(40, 0), (41, 1)])
def test_a_long_function_is_found_and_its_docstring_does_not_count(lines: int, faults: int) -> None:
    body = "    x = 1\n" * (lines - 1)
    source = f'@decorated\nasync def f():\n    """Two\n    lines."""\n{body}'
    assert len(long_functions(source, FUNCTION_LINES_MAX)) == faults


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time\ntime.sleep(1)", [2]),
        ("async def f():\n    await asyncio.sleep(delay)", [2]),
        ("from time import sleep\nsleep(0.1)", [2]),
        ("asyncio.sleep(0)", []),
        ("for _ in range(3):\n    time.sleep(1)", [2]),
        ("while not ready():\n    time.sleep(0.05)", []),
        ("for _ in range(3):\n    time.sleep(1)\n    assert calm()", []),
    ],
)
def test_a_sleep_is_found_unless_it_polls(source: str, found: list[int]) -> None:
    assert sleeps(source) == found


def test_a_module_that_only_itself_and_tests_import_is_dead() -> None:
    files = {
        "src/stockade/__init__.py": "from .client.producer import Producer",
        "client/producer.py": "from . import sender\nfrom ..partition.errors import E",
        "client/sender.py": "import os",
        "partition/errors.py": "",
        "partition/old.py": "from .old import x",
        "raft/__init__.py": "",
        "cli/main.py": "from ..raft.wal import Wal\nCOMMANDS = {'serve': '.serve:serve'}",
        "cli/serve.py": "",
        "raft/wal.py": "",
        "src/pyspark_stockade/__init__.py": "from stockade.spark.source import S",
        "spark/source.py": "",
    }
    dead = dead_modules({PurePosixPath(name): source for name, source in files.items()}, {"cli.main"})
    assert dead == ["partition.old"]


@pytest.mark.parametrize(
    ("line", "words", "whole", "found"),
    [
        (f"x = 1  # {MARKS[0]}: later", MARKS, True, [1]),
        (f"x = '{MARKS[2]}X'", MARKS, True, []),
        (f"index = 'https://{REGISTRIES[0]}/simple'", REGISTRIES, False, [1]),
        (f"path = '{MACHINE_PATHS[0]}x'", MACHINE_PATHS, False, [1]),
        (f"data = {BESIDE_THE_CLONE[0]} / 'data'", BESIDE_THE_CLONE, False, [1]),
    ],
)
def test_a_word_that_must_not_be_there_is_found(line: str, words: list[str], whole: bool, found: list[int]) -> None:
    assert lines_with(line, words, whole=whole) == found


@pytest.mark.parametrize(
    ("path", "line", "found"),
    [
        ("docs/x.md", f"It harms {PRONOUNS[1]}.", [1]),
        ("docs/x.md", f"{PRONOUNS[0].title()} asks", [1]),
        ("tests/test_x.py", f"    async def test_{PRONOUNS[2]}_waits() -> None:", [1]),
        ("tests/test_x.py", f"value = '{PRONOUNS[2]}'", []),
        ("tests/test_x.py", "def test_a_session_waits() -> None:", []),
    ],
)
def test_a_pronoun_in_place_of_a_subject_is_found(path: str, line: str, found: list[int]) -> None:
    assert unnamed_subjects(PurePosixPath(path), line) == found


def test_a_file_that_a_document_names_is_found() -> None:
    words = "`raft/host.py`, tests/unit/x.py; not src/stockade/raft/y.py, raft/ or raft.host"
    assert files_named(words) == {"raft/host.py", "tests/unit/x.py"}


def test_programs_that_make_runs_get_its_signals() -> None:
    """SIGTERM ended make and the shell of its recipe, and the cluster ran on."""
    recipes = [line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "\t@" in line]
    commands = [line for line in recipes if "$(STOCKADE)" in line]
    assert commands and [line for line in commands if not line.startswith("\t@exec ")] == []
