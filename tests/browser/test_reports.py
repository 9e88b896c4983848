"""Reports of chaos runs and audits open from disk, as the tools write them; nothing in them runs or leaves the page."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from stockade.chaos.checkers.verdicts import Verdict
from stockade.chaos.harness.campaign import Options
from stockade.chaos.harness.results import Summary
from stockade.chaos.harness.round import RoundOver
from stockade.chaos.history.history import Event
from stockade.chaos.history.observed import Observed
from stockade.chaos.report.page import Run, page
from stockade.spark.pipelines.audit import page as audit_page
from stockade.spark.pipelines.audit.findings import Audited, Finding, Slot, Timeline, Violation

from .looking import Console

KILL = "kill -9 n1"
VERDICTS = [
    Verdict("lost-write", "Every acknowledged record is in the log of every replica.", 0, [], 75),
    Verdict("zombie", "No append with an old epoch succeeds.", 2, ["append 17 <b>stored</b> after epoch 4"], 40),
]
HOSTILE = """<!doctype html><html><head>
<style>body { color: red } .x { background: url(http://elsewhere.example/a) }</style>
<script>window.ran = 1</script></head><body onload="window.ran = 2"><h1>Chaos: a page of a stranger</h1>
<img src="http://elsewhere.example/b" onerror="window.ran = 3">
<iframe srcdoc="<script>parent.ran = 4</script>"></iframe><a href="javascript:window.ran = 5">a link</a>
<form action="http://elsewhere.example/c"><input name="token"></form><p style="position: fixed">text</p>
<svg><script>window.ran = 6</script><a href="http://elsewhere.example">s</a></svg></body></html>"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results of a chaos run, and the page of an audit."""
    summary = Summary(
        *(Options(["slots"], ["stall-producer"], 7, 18.0), ["processes"], 3, 28.0, 358, 456),
        counts={"invoke": 358, "ok": 271, "fail": 70, "info": 17},
        rounds=[RoundOver(7, 3, 1.5, [])],
        verdicts=VERDICTS,
        replicas=[],
    )
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(summary))
    append: dict[str, Any] = {"f": "append", "topic": "slots", "partition": 0}
    events = [
        Event(i=0, t_mono_ns=0, process="c1", type="invoke", **append),
        Event(i=1, t_mono_ns=2_000_000_000, process="c1", type="ok", of=0, **append),
        Event(
            i=2, t_mono_ns=3_000_000_000, process="nemesis", type="info", f="strike", value="kill-leader", error=KILL
        ),
    ]
    lines = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    (tmp_path / "history.jsonl").write_bytes(lines)
    run = Run("Chaos: 18 s of faults, seed 7", [("nodes", "3")], VERDICTS, {"7": "stockade chaos replay 7"})
    (tmp_path / "report.html").write_text(page(run, Observed.of(events)), encoding="utf-8")
    finding = Finding(
        "zombie", "Writer epochs never decrease", 1, [Violation("zombie", "orders", 0, 17, "3 after 4")], 9
    )
    audited = Audited([finding], {"operations": 9}, {"records": 3.4}, Timeline(1.0, [Slot(9, 1, 0)], []))
    (tmp_path / "audit.html").write_text(audit_page.page(audited, "h.parquet", "l.parquet"), encoding="utf-8")
    (tmp_path / "hostile.html").write_text(HOSTILE, encoding="utf-8")
    (tmp_path / "logs.parquet").write_bytes(b"PAR1")
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    return tmp_path


def give(console: Console, *paths: Path) -> None:
    console.find("input[type=file]")[0].send_keys("\n".join(map(str, paths)))


def framed(console: Console, script: str) -> Any:
    return console.script(f"const root = document.querySelector('.framed')?.shadowRoot; return root ? {script} : null")


def framed_text(console: Console) -> str:
    return str(framed(console, "root.textContent"))


def test_the_files_of_a_run_show_the_verdict_and_the_run(console: Console, folder: Path) -> None:
    console.open("reports", "Reports")
    give(console, folder / "run.json", folder / "history.jsonl")
    console.sees("2 violations: zombie (2).")
    console.sees("append 17 <b>stored</b> after epoch 4")
    console.sees(KILL)
    console.picture("reports-run")
    assert console.findings() == []


def test_the_chart_of_a_run_keeps_its_line_when_the_system_changes_its_colours(console: Console, folder: Path) -> None:
    """It was drawn anew without its points, and stood empty until the page was drawn anew as well."""
    console.open("reports", "Reports")
    give(console, folder / "history.jsonl")
    console.until(lambda: console.charts_have("--good"), "the line of what was acknowledged")
    console.scheme("dark")
    console.until(lambda: console.charts_have("--line"), "the grid in dark colours")
    assert console.charts_have("--good")


WORDS = {"report": "2 violations: zombie (2).", "audit": "1 violation found by 1 of 1 checker"}


@pytest.mark.parametrize("name", WORDS)
def test_a_page_that_a_tool_wrote_shows_as_it_is(console: Console, folder: Path, name: str) -> None:
    console.open("reports", "Reports")
    give(console, folder / f"{name}.html")
    console.until(lambda: WORDS[name] in framed_text(console), "the page", lambda: framed_text(console))
    assert framed(console, "root.querySelectorAll('svg').length") != 0
    console.picture(f"reports-{name}")


def test_nothing_in_a_page_of_a_stranger_runs_or_loads(console: Console, folder: Path) -> None:
    console.open("reports", "Reports")
    give(console, folder / "hostile.html")
    console.until(lambda: "a page of a stranger" in framed_text(console), "the page")
    kinds = "[...root.querySelectorAll('*')].flatMap(each => [each.localName, ...each.getAttributeNames()])"
    assert set(framed(console, kinds)) == {"a", "class", "div", "h1", "p", "svg"}
    assert console.script("return window.ran ?? null") is None
    loaded = console.script("return performance.getEntriesByType('resource').map(each => each.name)")
    assert not [url for url in loaded if "elsewhere" in url]
    console.driver.get_log("browser")  # the browser tells that the page's policy forbids what was in it


def test_a_file_that_is_no_report_is_told_for_the_kind_of_file_that_it_is(console: Console, folder: Path) -> None:
    console.open("reports", "Reports")
    give(console, folder / "logs.parquet", folder / "other.json")
    console.sees("logs.parquet is a table for other programs. Open report.html, run.json or history.jsonl beside it.")
    console.sees("other.json has no verdicts: it is not the run.json of a chaos run.")
