import re

import pytest

from stockade.spark.pipelines.audit.findings import Audited, Finding, Slot, Timeline, Violation
from stockade.spark.pipelines.audit.page import page

CLEAN = Audited([Finding("gap", "Offsets are dense", 0, [], 7)], {"operations": 1234567}, {"logs": 2.0})
RUN = Timeline(0.5, [Slot(10, 0, 0), Slot(5, 2, 1), Slot(0, 0, 0)], [(0.6, "strike: <kill> n1")])
BROKEN = CLEAN._replace(
    findings=[
        Finding("gap", "Offsets are dense", 0, []),
        Finding("lost-write", "Kept", 3000, [Violation("lost-write", "<t>", 3, 12345, "w/1 & w/2"), ]),
        Finding("recovery", "Soon", 1, [Violation("recovery", None, None, None, "late")]),
    ]
)  # fmt: skip


def test_a_clean_run_is_said_to_be_one() -> None:
    text = page(CLEAN, "history.parquet", "logs.parquet")
    assert "No violation: 1 checker passed." in text
    assert "1,234,567" in text


def test_violations_are_counted_and_shown_with_their_place() -> None:
    text = page(BROKEN, "h", "l")
    assert "<b>3,001 violations</b> found by 2 of 3 checkers." in text
    assert "lost-write: 3,000, the first 1" in text
    assert "<code>&lt;t&gt;/3 at 12,345</code>: w/1 &amp; w/2" in text
    assert "<code>everywhere</code>: late" in text


def test_the_page_needs_nothing_from_elsewhere() -> None:
    assert re.findall(r"(?:src|href|url)\s*[=(]", page(BROKEN, "h", "l")) == []


def test_the_run_is_plotted_with_what_the_nemesis_did() -> None:
    text = page(CLEAN._replace(timeline=RUN), "h", "l")
    assert text.count("<rect") == 4  # what did not happen has no height
    assert "<title>0.6 s strike: &lt;kill&gt; n1</title>" in text
    assert ">20/s</text>" in text
    assert ">2 s</text>" in text


def test_violations_are_plotted_by_checker_and_more_of_them_are_a_longer_bar() -> None:
    assert page(CLEAN, "h", "l").count("<svg") == 0
    counts = (1, 2, 3, 10, 3000)
    text = page(CLEAN._replace(findings=[Finding("gap", "Dense", count, []) for count in counts]), "h", "l")
    widths = [float(width) for width in re.findall(r'<rect class="info" x="180" y="[0-9]+" width="([0-9.]+)"', text)]
    assert widths == pytest.approx([700 * count / 3000 for count in counts], abs=0.01)


def test_a_rehearsal_says_that_its_violations_were_planted_and_is_red_only_if_they_differ() -> None:
    planted = {"lost-write": 3000, "recovery": 1}
    text = page(BROKEN._replace(timeline=RUN), "h", "l", planted)
    assert "<b>3,001 violations planted</b> into a made-up run without any: 2 checkers found them all" in text
    assert "<h2>Planted violations by checker</h2>" in text and "<h2>Planted violations</h2>" in text
    assert 'class="verdict bad"' not in text and 'class="hit"' not in text
    assert "<h2>The run</h2>" not in text  # its times are made up

    text = page(BROKEN, "h", "l", {**planted, "gap": 1})
    assert "<b>3,002 violations planted</b> into a made-up run, 3,001 found. Found and planted differ for gap." in text
    assert text.count('class="verdict bad"') == text.count('class="hit"') == 1


def test_a_checker_that_checked_nothing_has_not_passed() -> None:
    idle = Finding("position", "Kept", 0, [])
    text = page(CLEAN._replace(findings=[*CLEAN.findings, idle]), "h", "l")
    assert "No violation: 1 checker passed. Nothing to check for position." in text
    assert '<td class="n">nothing to check</td><td class="n soft">0</td>' in text
