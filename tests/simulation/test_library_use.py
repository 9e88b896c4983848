"""The tables of docs/defects.md say what of pysyncobj runs, and why the rest does not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = "tests/simulation/library_use.py"
PAGE = (ROOT / "docs" / "defects.md").read_text(encoding="utf-8")
PART = PAGE.partition("<!-- library: begin -->\n")[2].partition("<!-- library: end -->\n")[0]


def rows(title: str) -> list[list[str]]:
    table = PART.partition(f"**{title}**")[2].partition("\n**")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_tables_equal_the_measured_calls_of_the_library() -> None:
    """In a process of its own: what this one has imported and remembers would not run again."""
    command = [sys.executable, TOOL, "--print"]
    measured = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert measured.splitlines() == PAGE.splitlines(), f"run `python {TOOL}`, and say in its last columns what is new"


def test_every_row_says_what_it_is_for() -> None:
    assert [line for line in PART.splitlines() if line.endswith("|  |")] == []


@pytest.mark.parametrize("title", ["What ours replaces", "Modules of which no function runs"])
def test_each_replaced_method_names_a_defect_or_says_that_there_is_none(title: str) -> None:
    defects = set(re.findall(r"^\| (D\d+) ", PAGE, re.MULTILINE))
    reasons = rows(title)
    assert reasons
    for name, why in reasons:
        assert why.startswith("no defect: ") or set(re.findall(r"D\d+", why.partition(":")[0])) <= defects, name
        assert re.match(r"no defect: |D\d+(, D\d+)*: ", why), name


def test_no_more_of_the_library_runs_than_the_role_the_term_and_what_a_new_leader_does() -> None:
    """The sentence above the tables, in README.md and in docs/architecture.md says no more than that."""
    functions = {re.sub(r"^`(\S+)` .*", r"\1", name) for name, *_ in rows("What runs after construction")}
    steps = {
        "SyncObj.__setState",
        "SyncObj.__setCurrentTerm",
        "SyncObj.__onBecomeLeader",
        "SyncObj.__getCurrentLogIndex",
    }
    assert {name for name in functions if not name.startswith("Node.")} <= steps
