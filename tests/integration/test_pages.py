"""The pages of Start and How-to, and what can go wrong: each block is pasted, twice in a row, beside other topics."""

import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster

from .api import call, expect
from .pages import ROOT, Block, blocks, missing, paste, promised, script

pytestmark = pytest.mark.elections

DOCS = ROOT / "docs"
ELSEWHERE = {"spark.md"}
"""Pages that another test pastes: tests/spark/test_how_to.py, which has a Spark session."""
HOW_TO = sorted(page.name for page in (DOCS / "how-to").glob("*.md") if page.name not in ELSEWHERE)
PAGES = ["start.md", "failures.md", *(f"how-to/{name}" for name in HOW_TO)]
ELSEWHERE_PASTED = {
    "python.md": "test_python_page.py",
    "deploying.md": "test_deploying_page.py",
    "http.md": "test_http_page.py",
    "tour.md": "test_tour.py",
    "cli.md": "../unit/cli/test_documented_commands.py",
    "how-to/spark.md": "../spark/test_how_to.py",
}
"""Pages with a test of their own, beside this one. cli.md is made of the examples of each command's help."""
REFERENCE = sorted(page.name for page in DOCS.glob("*.md") if page.name not in {*PAGES, *ELSEWHERE_PASTED})
AT_ONCE = 3
"""Pages that are pasted side by side: they spend most of their time waiting for sessions to end."""
OTHER_TOPICS = ("orders", "logs", "jobs")


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def paste_twice(page: str, cluster: LocalCluster, folder: Path) -> list[str]:
    folder.mkdir(parents=True)
    return [paste(text(page), cluster, folder) for _ in range(2)]


@pytest.fixture(scope="module")
def pasted(cluster: LocalCluster, module_path: Path) -> dict[str, Future[list[str]]]:
    """What each page prints, the first time and the second time, on a cluster with topics of other programs."""
    for name in OTHER_TOPICS:
        expect(201, call("POST", f"{cluster.nodes[0].url}/v1/topics", {"name": name, "partitions": 2}))
    with ThreadPoolExecutor(AT_ONCE) as threads:
        folder = module_path / "pages"
        return {page: threads.submit(paste_twice, page, cluster, folder / page) for page in PAGES}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_the_page_works_and_works_again(page: str, pasted: dict[str, Future[list[str]]]) -> None:
    for output in pasted[page].result():
        lacks = missing(promised(text(page)), output)
        assert lacks is None, f"{lacks!r} is not printed after the lines before it:\n{output}"


@pytest.mark.parametrize("page", PAGES)
def test_a_block_that_is_not_pasted_says_why(page: str) -> None:
    left = [block for block in blocks(text(page)) if block.excuse is None]
    assert {block.language for block in left} <= {"sh", "python", "text"}, "other blocks need a reason"


@pytest.mark.parametrize("page", REFERENCE)
def test_a_program_in_any_other_page_says_why_it_is_not_pasted(page: str) -> None:
    left = [block.text for block in blocks(text(page)) if block.excuse is None and block.language in ("sh", "python")]
    assert left == [], "paste them, or say why not"


def test_pages_that_are_pasted_elsewhere_are_pasted_there() -> None:
    for page, test in ELSEWHERE_PASTED.items():
        source = (Path(__file__).parent / test).read_text(encoding="utf-8")
        assert Path(page).name in source, f"{test} does not name {page}"


def test_pages_can_be_pasted_after_each_other_on_one_cluster() -> None:
    """A reader goes from one page to the next: no two create one topic, as the second is refused if it is another."""
    creating = re.compile(r"topics create (?P<command>[\w.-]+)|/v1/topics -H \S+ -d '\{.name.:.(?P<request>[\w.-]+)")
    created: dict[str, list[str]] = {}
    for page in [*(page for page in DOCS.glob("*.md") if page.name != "cli.md"), *DOCS.glob("how-to/*.md")]:
        pasted = [block for block in blocks(page.read_text(encoding="utf-8")) if block.excuse is None]
        for found in creating.finditer("\n".join(block.text for block in pasted if block.language == "sh")):
            created.setdefault(found["command"] or found["request"], []).append(page.name)
    assert {"payments", "tour", "invoices"} <= created.keys()
    assert {name: pages for name, pages in created.items() if len(pages) > 1} == {}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_waits_for_nothing_that_its_last_run_left(page: str) -> None:
    """The shell goes on before a background job has truncated its output: a ``grep`` may still read the old file."""
    lines = [line for block in blocks(text(page)) if block.language == "sh" for line in block.text.splitlines()]
    for number, line in enumerate(lines):
        for name in re.findall(r"> *(\S+) *&(?!&)", line):
            removed = [before for before in lines[:number] if before.strip().startswith("rm -f")]
            assert any(name in before.split() for before in removed), f"no `rm -f {name}` before: {line}"


def test_a_block_is_pasted_saved_or_left_out_as_its_page_says() -> None:
    page = """
```sh
echo one
```
```python
# program.py
print(2)
```
<!-- not pasted: it would never end -->
```sh
sleep forever
```
```text
one
```
"""
    assert [block.excuse for block in blocks(page)] == [None, None, "it would never end", None]
    assert next(blocks(page)) == Block("sh", "echo one\n")
    assert "echo one" in script(page)
    assert "cat > program.py <<" in script(page)
    assert "forever" not in script(page)
    assert promised(page) == ["one"]


@pytest.mark.parametrize(
    ("lines", "output", "lacks"),
    [
        (["epoch 1"], "epoch 27\n", None),
        (["a", "b"], "a\nx\nb\n", None),
        (["b", "a"], "a\nx\nb\n", "a"),
        (["stops: …"], "stops: for a reason\n", None),
        (["epoch one"], "epoch 1\n", "epoch one"),
    ],
)
def test_a_promised_line_that_is_not_printed_is_found(lines: list[str], output: str, lacks: str | None) -> None:
    assert missing(lines, output) == lacks
