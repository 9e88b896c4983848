"""What of pysyncobj runs, measured: ``python tests/simulation/library_use.py`` writes its tables into docs/defects.md.

The simulator plays some seeds, and a trace function records each line of the library that runs: while the library is
imported, while a replica is constructed, and afterwards. A line belongs to a statement, a statement to a function. The
last column of a table is written by hand: it stays with its row, and a new row has an empty one, which a test refuses.
"""

import ast
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
PAGE = ROOT / "docs" / "defects.md"
BEGIN, END = "<!-- library: begin -->\n", "<!-- library: end -->\n"
SEEDS = (*range(10, 23), 29, 36, 49)
MUST_MEET = {
    *("crash_leader", "power_loss", "isolate_leader", "step_down", "transfer", "reopen"),
    *("add_learner", "remove", "remove_leader", "move", "wipe", "erase", "checkpoint_everywhere", "install"),
}
"""What must happen in these seeds, or they show too little."""


def _library() -> Path:
    spec = find_spec("pysyncobj")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


LIBRARY = _library()
Line = tuple[str, int, bool]
"""File, number, and whether the line ran inside a lambda."""


class Trace:
    """Lines of the library that run, by phase: import, construct, run."""

    def __init__(self) -> None:
        self.lines: dict[str, set[Line]] = {"import": set(), "construct": set(), "run": set()}
        self.phase: str = "import"
        self.constructors: set[CodeType] = set()
        """While one of these is on the stack, the phase is ``construct``."""
        self.named: dict[CodeType, str] = {}
        """Functions of the simulator that count as met, by these names."""
        self.met: set[str] = set()
        self._prefix = f"{LIBRARY}/"
        self._constructing = 0

    def __enter__(self) -> None:
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code in self.constructors:
            self._constructing += 1
            self.phase = "construct"
            return self._in_constructor
        if code in self.named:
            self.met.add(self.named[code])
        return self._in_library if code.co_filename.startswith(self._prefix) else None

    def _in_library(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            code = frame.f_code
            is_lambda = code.co_name == "<lambda>"
            self.lines[self.phase].add((code.co_filename.removeprefix(self._prefix), frame.f_lineno, is_lambda))
        return self._in_library

    def _in_constructor(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "return":
            self._constructing -= 1
            if not self._constructing:
                self.phase = "run"
        elif frame.f_code.co_filename.startswith(self._prefix):
            self._in_library(frame, event, argument)
        return self._in_constructor


TRACE = Trace()
with TRACE:  # from before anything else imports the library
    import pysyncobj
from simulation.checkpoints import Checkpoints  # noqa: E402
from simulation.plan import Plan  # noqa: E402
from simulation.schedule import Run  # noqa: E402


@dataclass(frozen=True)
class Statement:
    """A statement of the library, without the statements inside it; ``function`` is empty outside of functions."""

    file: str
    function: str
    first: int
    last: int
    is_lambda: bool = False


def statements() -> list[Statement]:
    """All statements of the library but docstrings."""
    return [
        found
        for path in sorted(LIBRARY.glob("*.py"))
        for found in _statements(path.name, ast.parse(path.read_text(encoding="utf-8")), "", False)
    ]


def _statements(file: str, node: ast.AST, name: str, is_function: bool) -> Iterator[Statement]:
    for child in ast.iter_child_nodes(node):
        inner, is_inner_function = name, is_function
        if isinstance(child, ast.stmt) and not _is_docstring(child):
            body = getattr(child, "body", None)
            last = max(child.lineno, body[0].lineno - 1) if body else child.end_lineno or child.lineno
            decorators = getattr(child, "decorator_list", [])
            first = min([child.lineno, *(each.lineno for each in decorators)])
            yield Statement(file, name if is_function else "", first, last)
        if isinstance(child, ast.Assign) and isinstance(child.value, ast.Lambda):
            yield Statement(file, ast.unparse(child.targets[0]), child.lineno, child.value.end_lineno or 0, True)
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}" if name else child.name
            is_inner_function = is_function or isinstance(child, ast.FunctionDef)
        yield from _statements(file, child, inner, is_inner_function)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def play() -> None:
    """Play the seeds under the trace."""
    TRACE.phase = "run"
    TRACE.constructors = {vars(each)["__init__"].__code__ for each in replicas() if "__init__" in vars(each)}
    TRACE.named = {Checkpoints._install.__code__: "install"}
    for seed in SEEDS:
        with TRACE:
            run = Run(Plan(seed))
        for striker in (run.nemesis, run.changes):
            if striker is not None:
                striker.tell = TRACE.met.add
        with TRACE:
            run.go()
    if MUST_MEET - TRACE.met:
        raise AssertionError(f"seeds {SEEDS} play no {', '.join(sorted(MUST_MEET - TRACE.met))}")


def replicas(base: type = pysyncobj.SyncObj) -> list[type]:
    """Our classes that inherit from SyncObj, the base first."""
    direct: list[type] = base.__subclasses__()
    return [each for one in direct for each in (one, *replicas(one))]


@dataclass(frozen=True)
class Table:
    """A table of the page. The first cell of a row names it; the last column is written by hand."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def text(self, notes: dict[tuple[str, str], str]) -> str:
        """The table, with the notes that belong to its rows."""
        rows = [(*row, notes.get((self.title, row[0]), "")) for row in self.rows]
        lines = [self.columns, ("---",) * len(self.columns), *rows]
        return "\n".join([f"**{self.title}**", "", *(f"| {' | '.join(line)} |" for line in lines), ""])


def tables() -> list[Table]:
    """What was measured."""
    known = statements()
    ran = {phase: _ran(known, phase) for phase in TRACE.lines}
    return [
        Table("How much of it runs", ("", "functions", "statements", "what that is"), _amounts(known, ran)),
        Table("What runs after construction", ("function", "statements", "what for"), _functions(known, ran["run"])),
        Table(
            "What runs when a replica is constructed, and not after that",
            ("function", "statements", "what for"),
            _functions(known, [each for each in ran["construct"] if _name(each) not in _names(ran["run"])]),
        ),
        Table("Fields of `SyncObj` that ours reads or sets", ("field", "what for"), _rows(fields())),
        Table("What ours replaces", ("function", "why, and what ours does"), _rows(replaced())),
        Table(
            "Modules of which no function runs", ("module", "what ours has instead, and why"), _rows(_idle(known, ran))
        ),
    ]


def _ran(known: Iterable[Statement], phase: str) -> list[Statement]:
    lines = TRACE.lines[phase]
    return [
        each
        for each in known
        if any((each.file, line, each.is_lambda) in lines for line in range(each.first, each.last + 1))
    ]


def _names(some: Iterable[Statement]) -> list[str]:
    return [_name(each) for each in some if each.function]


def _name(statement: Statement) -> str:
    return f"{statement.file} {statement.function}"


def _amounts(known: list[Statement], ran: dict[str, list[Statement]]) -> list[tuple[str, ...]]:
    names = ("imported", "a replica is constructed", "from then on")
    amounts = {"in all": known, **dict(zip(names, ran.values(), strict=True))}
    return [(name, f"{len(set(_names(some))):,}", f"{len(some):,}") for name, some in amounts.items()]


def _functions(known: list[Statement], ran: list[Statement]) -> list[tuple[str, ...]]:
    all_names, names = _names(known), _names(ran)
    return [(_shown(name), f"{names.count(name)} of {all_names.count(name)}") for name in dict.fromkeys(names)]


def _shown(name: str) -> str:
    file, _, function = name.partition(" ")
    return f"`{function}` in `{file}`"


def _rows(names: Iterable[str]) -> list[tuple[str, ...]]:
    return [(f"`{name}`",) for name in sorted(names)]


def _idle(known: list[Statement], ran: dict[str, list[Statement]]) -> set[str]:
    busy = {each.file for phase in ran.values() for each in phase if each.function}
    return {each.file for each in known if each.function} - busy


def fields() -> set[str]:
    """Private names of SyncObj in our code that are no methods of it."""
    files = {
        str(getattr(module, "__file__", "")) for name, module in sys.modules.items() if name.startswith("stockade.")
    }
    found = {
        node.attr.removeprefix("_SyncObj")
        for file in files
        if file.endswith(".py")
        for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_SyncObj__")
    }
    return {name for name in found if f"_SyncObj{name}" not in vars(pysyncobj.SyncObj)}


def replaced() -> set[str]:
    """Methods of SyncObj that our classes define, too, and functions of the library that are ours by now."""
    own = {name for each in replicas() for name in vars(each)} & {*vars(pysyncobj.SyncObj)}
    methods = {f"SyncObj.{name.removeprefix('_SyncObj')}" for name in own if not re.fullmatch(r"__\w+__", name)}
    patched = {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in [*sys.modules.values()]
        if module.__name__.startswith("pysyncobj.")
        for name, value in vars(module).items()
        if str(getattr(value, "__module__", "")).startswith("stockade.")
    }
    return methods | patched


def notes(page: str) -> dict[tuple[str, str], str]:
    """The last cells of the tables in a page, by the title of the table and the first cell of the row."""
    found, title = dict[tuple[str, str], str](), ""
    for line in page.partition(BEGIN)[2].partition(END)[0].splitlines():
        if line.startswith("**"):
            title = line.strip("*")
        elif line.startswith("| ") and not line.startswith("| ---"):
            cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
            found[title, cells[0]] = cells[-1]
    return found


def written(page: str) -> str:
    """The page with the tables as they are measured now."""
    head, _, rest = page.partition(BEGIN)
    kept = notes(page)
    found = "\n".join(table.text(kept) for table in tables())
    return f"{head}{BEGIN}{found}{END}{rest.partition(END)[2]}"


def main() -> None:
    """Write the tables into the page, or to standard output with ``--print``."""
    logging.disable(logging.CRITICAL)
    play()
    page = written(PAGE.read_text(encoding="utf-8"))
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(page)
    else:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
