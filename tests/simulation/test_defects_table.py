"""docs/defects.md names a test on the library and a test on ours for every defect, and they are there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFECTS = {f"D{number}" for number in range(1, 22)} - {"D14"}


def rows() -> list[list[str]]:
    lines = (ROOT / "docs" / "defects.md").read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\| D\d", line)]


def names_of_tests() -> set[str]:
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }


def test_every_defect_is_shown_on_the_library_and_closed_here() -> None:
    assert {row[0] for row in rows()} == DEFECTS
    for defect, _, on_the_library, here in rows():
        assert re.search(rf"test_{defect.lower()}_(a_)?(deposed_)?stock", on_the_library), defect
        assert "`test_" in here, defect


def test_every_test_of_the_table_is_there() -> None:
    named = {name for row in rows() for cell in row for name in re.findall(r"`(test_\w+)`", cell)}
    assert sorted(named - names_of_tests()) == []
