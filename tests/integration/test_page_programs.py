"""Programs of the how-to pages, run against a stand-in for the cluster that chooses when things happen."""

import runpy
import sqlite3
import sys
from asyncio import Future, get_running_loop
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from .pages import ROOT, blocks

HOW_TO = ROOT / "docs" / "how-to"


class Log:
    """A Producer, and the partition that it writes to. ``meanwhile`` runs while a batch is on its way."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.records: list[tuple[bytes, bytes]] = []
        self.client = self
        self._meanwhile = meanwhile

    def __call__(self, *_: object, **__: object) -> "Log":
        return self

    async def __aenter__(self) -> "Log":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def create_topic(self, *_: object, **__: object) -> None: ...

    @asynccontextmanager
    async def exclusive(self, *_: object, **__: object) -> AsyncIterator[None]:
        yield

    async def tail(self, *_: object) -> SimpleNamespace:
        return SimpleNamespace(records=[SimpleNamespace(key=key, value=value) for key, value in self.records[-1:]])

    async def send_batch(
        self, _topic: str, _partition: int, values: Sequence[bytes], keys: Sequence[bytes]
    ) -> Future[None]:
        self.records += zip(keys, values, strict=True)
        self._meanwhile()
        return _done()


def _done() -> Future[None]:
    done: Future[None] = get_running_loop().create_future()
    done.set_result(None)
    return done


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run a page's program with arguments, in an empty folder."""

    def begin(log: Log, page: str, *arguments: str) -> None:
        name = f"{page}.py"
        text = (HOW_TO / f"{page}.md").read_text(encoding="utf-8")
        program = next(block.text for block in blocks(text) if block.text.startswith(f"# {name}\n"))
        Path(name).write_text(program, encoding="utf-8")
        monkeypatch.setattr("stockade.Producer", log)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        if database := runpy.run_path(name).get("database"):
            database.close()

    monkeypatch.chdir(tmp_path)
    return begin


def test_ingest_copies_a_line_whole_that_is_completed_while_the_file_is_copied(run: Callable[..., None]) -> None:
    file = Path("app.log")
    file.write_bytes(b"one\ntwo\nthr")

    def complete() -> None:
        if file.read_bytes().endswith(b"thr"):
            with file.open("ab") as more:
                more.write(b"ee\n")

    log = Log(complete)
    run(log, "ingest", "app.log", "lines")
    assert log.records == [(b"4", b"one"), (b"8", b"two"), (b"14", b"three")]


@pytest.mark.parametrize("sent", [2, 3])
def test_a_relay_deletes_the_rows_that_a_dead_relay_had_sent_and_sends_none_of_them_again(
    run: Callable[..., None], sent: int
) -> None:
    log = Log()
    run(log, "outbox", "order", "3")
    log.records = [(b"%d" % number, b"order %d placed" % number) for number in range(1, sent + 1)]
    run(log, "outbox", "drain", "last")
    assert [key for key, _ in log.records] == [b"1", b"2", b"3"]
    with closing(sqlite3.connect("shop.db")) as database:
        assert database.execute("SELECT count(*) FROM outbox").fetchone() == (0,)


def programs() -> Iterator[tuple[str, str]]:
    """Each program of a how-to page, and each example, with its name."""
    for page in sorted(HOW_TO.glob("*.md")):
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language == "python":
                yield page.name, block.text
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield path.name, path.read_text(encoding="utf-8")


def test_a_program_that_finds_its_place_in_a_log_keeps_the_end_of_that_log_for_good() -> None:
    """By default a log is empty after a week without an append: the program would begin anew, and store all twice."""
    finding = {name: text for name, text in programs() if ".tail(" in text or "JOURNAL" in text}
    assert len(finding) >= 6
    assert [name for name, text in finding.items() if '"retention_ms": -1' not in text] == []
