import ast
from typing import Literal

import pytest
from three_nodes import follow_append
from walk import BEGIN, END, PAGE, Hop, Size, details_among, followed, is_field, size, walk, with_page

BOUNDS = {"append": (124, 41), "acquire": (150, 49), "rejoin": (68, 30)}
"""The most hops and files of each walk: to be lowered with each one that goes, and raised by none but a new step."""

A, B, C, FAR = ("a.py", "a"), ("a.py", "b"), ("a.py", "c"), ("z.py", "far")


@pytest.mark.parametrize("name", BOUNDS)
def test_a_walk_gets_no_longer(name: str) -> None:
    found = size(walk(name))
    hops, files = BOUNDS[name]
    assert found.hops <= hops, f"python tools/walk.py {name} shows them"
    assert found.files <= files, f"python tools/walk.py {name} --short shows them"


@pytest.mark.parametrize("name", BOUNDS)
def test_a_walk_knows_its_way_on_more_than_one_node_and_in_threads(name: str) -> None:
    sections = {hop.section for hop in walk(name)}
    assert len({section.partition(":")[0] for section in sections}) > 1
    assert any("in a thread" in section for section in sections)


def test_the_page_shows_the_walks_as_they_are() -> None:
    document = PAGE.read_text(encoding="utf-8")
    # What one event wakes together may change its order, and with it the lines.
    assert words(document) == words(with_page(document)), "python tools/walk.py all --page writes them"


def words(document: str) -> set[str]:
    shown = document.partition(BEGIN)[2].partition(END)[0]
    return set(shown.replace(",", " ").split())


def test_a_walk_finds_the_same_functions_each_time() -> None:
    first, second = followed.__wrapped__(follow_append), followed.__wrapped__(follow_append)
    assert set(first[0]) == set(second[0])
    assert first[1] == second[1]


def test_a_detail_calls_nothing_and_is_called_by_its_own_file_only() -> None:
    assert details_among([(None, A), (A, B), (A, C), (FAR, C), (None, FAR)]) == {B}
    assert details_among([(None, A), (A, B), (B, FAR), (B, B)]) == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("@property\ndef f(self):\n    '''Says what.'''\n    return self._f", True),
        ("@property\ndef f(self):\n    return self._f()", False),
        ("@property\ndef f(self):\n    x = self._f\n    return x", False),
        ("def f(self):\n    return self._f", False),
        ("def __len__(self):\n    return self._f", True),
        ("def __init__(self):\n    self._f = 1", False),
    ],
)
def test_a_property_that_only_returns_is_a_field(source: str, found: bool) -> None:
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert is_field(function) is found


def test_files_are_those_of_hops_and_details() -> None:
    kinds: list[tuple[str, Literal["hop", "detail", "known"]]] = [("a", "hop"), ("b", "detail"), ("c", "known")]
    assert size([Hop("", file, "f", kind) for file, kind in kinds]) == Size(hops=1, files=2, details=1, known=1)
