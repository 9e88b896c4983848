"""How a table fits a terminal: nothing that a person reads or copies is cut in the middle while it can be helped."""

from collections.abc import Sequence

import pytest
from click import unstyle

from stockade.cli.ui.output import show_table

TENURES = ["PARTITION", "EPOCH", "OWNER", "PRODUCER", "MODE", "BEGAN BY", "HELD FOR", "END", "REFUSED"]
TENURE = (0, 1, "pod-a", "alice", "ExclusiveWithFencing", "acquire", "0.1 s", "evicted", 1)
REFUSALS = ["AT (UTC)", "NODE", "PARTITION", "CODE", "REASON", "EPOCH", "PRODUCER"]
REFUSAL = ("2026-11-28 08:42:28", "n2", "orders/0", "PRODUCER_FENCED", "superseded", 1, "1001, epoch 0")


class Terminal:
    """A terminal with so many columns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch = monkeypatch
        self._capsys = capsys

    def shows(self, columns: int, headings: Sequence[str], *rows: Sequence[object], is_first: bool = True) -> list[str]:
        """The lines of the table, without colours."""
        self._patch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        self._patch.setenv("COLUMNS", str(columns))
        show_table(headings, rows, is_first=is_first)
        return [line.rstrip() for line in unstyle(self._capsys.readouterr().out).splitlines()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capsys)


def test_a_table_with_too_many_columns_for_a_terminal_has_a_line_for_each_cell(terminal: Terminal) -> None:
    lines = terminal.shows(80, TENURES, TENURE, TENURE)
    assert lines[:5] == [
        "PARTITION  0",
        "EPOCH      1",
        "OWNER      pod-a",
        "PRODUCER   alice",
        "MODE       ExclusiveWithFencing",
    ]
    assert lines[len(TENURES)] == ""
    assert len(lines) == 2 * len(TENURES) + 1


def test_a_narrow_terminal_folds_cells_between_words(terminal: Terminal) -> None:
    lines = terminal.shows(80, REFUSALS, REFUSAL)
    assert all(word in " ".join(lines) for word in (*REFUSALS, "PRODUCER_FENCED", "superseded", "2026-11-28"))
    assert max(map(len, lines)) <= 80
    assert len(lines) == 3


def test_a_table_that_fits_has_a_line_for_each_row(terminal: Terminal) -> None:
    assert len(terminal.shows(120, TENURES, TENURE, TENURE)) == 3


def test_a_word_that_is_longer_than_any_name_of_ours_is_folded(terminal: Terminal) -> None:
    lines = terminal.shows(80, ["NODE", "URL", "RAFT"], ("n1", "h" * 60, "r" * 60))
    assert len(lines) > 2
    assert max(map(len, lines)) <= 80
    assert "".join(lines).count("h") == 60


def test_a_table_without_rows_shows_its_headings_however_narrow_the_terminal_is(terminal: Terminal) -> None:
    assert terminal.shows(20, TENURES) == ["  ".join(TENURES)]


@pytest.mark.parametrize("columns", [120, 80])
def test_further_pages_of_a_table_have_no_headings_but_those_of_a_line_for_each_cell(
    terminal: Terminal, *, columns: int
) -> None:
    headings = sum(line.startswith("PARTITION") for line in terminal.shows(columns, TENURES, TENURE, is_first=False))
    assert headings == (1 if columns == 80 else 0)
