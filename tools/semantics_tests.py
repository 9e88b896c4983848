"""Fills in which tests prove which numbered case: ``python tools/semantics_tests.py`` rewrites docs/semantics-tests.md.

A test bears the numbers of its cases at the start of its name: ``test_005_…``, ``test_084_088_…``.
"""

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "semantics-tests.md"

_NUMBERS = re.compile(r"test_((?:\d{1,3}_)+)")
_ROW = re.compile(r"^\| (\d+) \| (.*?) \| (.*?) \|$")


def proofs(tests: Path) -> dict[int, list[str]]:
    """By number of the case, the names of its tests, as ``file::name``, ascending by file."""
    found = defaultdict(list)
    for path in sorted(tests.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match = _NUMBERS.match(node.name) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None
            if match is not None and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for number in match[1].rstrip("_").split("_"):
                    found[int(number)].append(f"{path.relative_to(tests)}::{node.name}")
    return found


def filled(table: str, found: dict[int, list[str]]) -> str:
    """The table, with the files of the tests filled in in each row."""

    def row(line: str) -> str:
        match = _ROW.match(line)
        if match is None:
            return line
        names = sorted({name.partition("::")[0] for name in found.get(int(match[1]), ())})
        return f"| {match[1]} | {match[2]} | {', '.join(f'`{name}`' for name in names) or 'none'} |"

    return "\n".join(row(line) for line in table.split("\n"))


def main() -> None:
    """Rewrite the table; exit code 1 when a case has no test."""
    found = proofs(ROOT / "tests")
    text = filled(TABLE.read_text(encoding="utf-8"), found)
    TABLE.write_text(text, encoding="utf-8")
    missing = [match[1] for line in text.split("\n") if (match := _ROW.match(line)) and match[3] == "none"]
    print(f"{len(found)} numbers have tests; without any: {', '.join(missing) or 'none'}")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
