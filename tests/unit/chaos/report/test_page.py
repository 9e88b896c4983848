"""The page about a run says what the history says, and needs nothing from anywhere."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from stockade.chaos.checkers.verdicts import Verdict
from stockade.chaos.history.history import Event
from stockade.chaos.history.observed import Observed, Second, class_ms, latency_class, quantile_ms
from stockade.chaos.report.course import Scale
from stockade.chaos.report.figures import by_fault, effects, fencing_ms, published
from stockade.chaos.report.page import Run, page, write_report
from stockade.chaos.report.parts import counted

MS = 1_000_000
TOPIC = "append-1"


class Script:
    """Events, one after the other; times in milliseconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def note(self, at_ms: int, f: str, **fields: object) -> None:
        self._add(at_ms, "nemesis", "info", f, **fields)

    def append(self, at_ms: int, ended_ms: int, kind: str = "ok", **fields: object) -> None:
        process = str(fields.pop("process", "w"))
        error = fields.pop("error", None)
        place = {"topic": TOPIC, "partition": fields.pop("partition", 0)}
        i = self._add(at_ms, process, "invoke", "append", count=2, **place, **fields)
        self._add(ended_ms, process, kind, "append", of=i, error=error, **place)

    def acquire(self, at_ms: int, process: str, epoch: int) -> None:
        i = self._add(at_ms, process, "invoke", "acquire", topic=TOPIC, partition=0)
        self._add(at_ms, process, "ok", "acquire", topic=TOPIC, partition=0, of=i, epoch=epoch)

    def _add(self, at_ms: int, process: str, kind: str, f: str, **fields: object) -> int:
        fields = {"i": len(self.events), "t_mono_ns": at_ms * MS, "process": process, "type": kind, "f": f} | fields
        self.events.append(msgspec.convert(fields, Event))
        return len(self.events) - 1


@pytest.fixture
def script() -> Script:
    """Appends every 100 ms for 40 s; a leader killed at 20 s is missed for 1.3 s, and healed at 25 s."""
    script = Script()
    script.note(1, "round", value="7")
    script.acquire(50, "a.1", 1)
    for at_ms in range(100, 40_000, 100):
        if at_ms == 20_000:
            script.note(at_ms, "strike", value="kill-leader", count=1, node="n2", error="kill -9 n2")
        if at_ms == 25_000:
            script.note(at_ms, "heal", value="kill-leader", count=1, node="n2", error="kill -9 n2")
        if 20_000 <= at_ms < 21_300:
            continue
        ended_ms = at_ms + 5
        begun_ms = 20_000 if at_ms == 21_300 else at_ms
        script.append(begun_ms, ended_ms)
    return script


def seen_of(events: Sequence[Event]) -> Observed:
    return Observed.of(sorted(events, key=lambda event: event.t_mono_ns))


def test_the_time_without_a_write_is_charged_to_the_fault(script: Script) -> None:
    seen = Observed.of(script.events)
    [row] = by_fault(effects(seen))
    assert (row.fault, row.strikes, row.alone) == ("kill-leader", 1, 1)
    assert row.worst_s.max == pytest.approx(1.305)
    assert row.back_s.max == pytest.approx(0.005)
    killed = next(figure for figure in published(seen, effects(seen)) if "kill -9" in figure.name)
    assert killed.value.count == 1 and killed.value.p50 == pytest.approx(1.305)


@pytest.mark.parametrize(
    ("tries", "back_ms", "worst_s"),
    [
        ([(20_010, 24_000, "info"), (24_100, 28_100, "fail")], 28_300, 8.29),  # up to the next acknowledgement
        ([(20_010, 24_000, "info"), (24_100, 28_100, "fail")], None, 8.09),  # there is none
        ([(20_010, 24_000, "info")], 35_000, 3.99),  # the writer paused from 24 s on
        ([(20_010, 24_000, "fenced")], None, 1.305),  # of a client that may not write
    ],
)
def test_appends_that_a_partition_could_not_take_count_in_the_time_without_a_write(
    script: Script, tries: list[tuple[int, int, str]], back_ms: int | None, worst_s: float
) -> None:
    """A client that gives up an append and begins another one: only the last one counted, or none if it failed, too."""
    script.append(19_990, 20_000, partition=1)
    for begun_ms, ended_ms, kind in tries:
        error = {"info": None, "fail": "NOT_ENOUGH_REPLICAS", "fenced": "PRODUCER_FENCED"}[kind]
        script.append(begun_ms, ended_ms, "info" if kind == "info" else "fail", partition=1, error=error)
    if back_ms is not None:
        script.append(back_ms - 10, back_ms, partition=1)
    [effect] = effects(seen_of(script.events))
    assert effect.worst_s == pytest.approx(worst_s)


@pytest.mark.parametrize(
    ("acknowledged_ms", "refused_ms", "back_s"),
    [(31_000, None, 6.0), (33_000, None, 7.0), (None, 26_000, 7.0), (33_000, 26_000, 7.0)],
)
def test_a_partition_that_is_not_back_when_the_next_fault_strikes_counts_with_the_time_until_then(
    script: Script, acknowledged_ms: int | None, refused_ms: int | None, back_s: float
) -> None:
    """It is the slowest of all: without it the figure is that of the others."""
    script.note(32_000, "strike", value="kill-leader", count=2, node="n1", error="kill -9 n1")
    script.note(33_500, "heal", value="kill-leader", count=2, node="n1", error="kill -9 n1")
    script.append(19_000, 19_005, partition=1)
    if refused_ms is not None:
        script.append(refused_ms, refused_ms + 5, "info", partition=1)
    if acknowledged_ms is not None:
        script.append(25_500, acknowledged_ms, partition=1)
    first, _ = effects(seen_of(script.events))
    assert first.is_alone
    assert first.back_s == pytest.approx(back_s)


def test_a_partition_to_which_no_client_appends_is_not_waited_for(script: Script) -> None:
    """As those of another round, or of writers that have no slot."""
    script.note(32_000, "strike", value="kill-leader", count=2, node="n1", error="kill -9 n1")
    script.append(19_000, 19_005, partition=1)
    script.append(33_000, 33_005, partition=1)
    assert effects(seen_of(script.events))[0].back_s == pytest.approx(0.005)


def test_overlapping_strikes_are_not_taken_for_one_that_was_alone(script: Script) -> None:
    script.note(39_990, "strike", value="stall-leader", count=2, error="n1 stopped")
    assert [effect.is_alone for effect in effects(seen_of(script.events))] == [True, True]
    script.note(22_000, "strike", value="clock-offset", count=3, error="clock of n1")
    assert [effect.is_alone for effect in effects(seen_of(script.events))] == [False, False, False]


def test_a_fenced_owner_is_told_once_from_when_it_could_know(script: Script) -> None:
    script.acquire(30_000, "b.1", 2)
    script.append(29_000, 30_700, "fail", process="a.1", epoch=1, error="PRODUCER_FENCED")
    script.append(31_000, 31_001, "fail", process="a.1", epoch=1, error="PRODUCER_FENCED")
    assert list(fencing_ms(seen_of(script.events))) == [700.0]


@pytest.mark.parametrize(("stalled", "late_ms"), [("a", 12.0), ("c", 3012.0)], ids=["its own", "another client's"])
def test_only_the_stall_of_a_fenced_owner_itself_excuses_its_late_refusal(
    script: Script, stalled: str, late_ms: float
) -> None:
    script.acquire(30_000, "b.1", 2)
    for at_ms, act in ((29_500, "strike"), (33_000, "heal")):
        script.note(at_ms, act, value="stall-producer", count=4, node=stalled, error=f"client {stalled} stopped")
    script.append(29_000, 33_012, "fail", process="a.1", epoch=1, error="PRODUCER_FENCED")
    assert list(fencing_ms(seen_of(script.events))) == [late_ms]


def test_latencies_are_known_within_a_tenth() -> None:
    for ns in (1_000, 1_234_567, 59 * 1_000_000_000):
        assert ns / 1e6 <= class_ms(latency_class(ns)) <= ns / 1e6 * 1.11
    assert quantile_ms(Second().latencies, 0.5) is None


def test_the_page_needs_nothing_from_anywhere_and_tells_all(script: Script, tmp_path: Path) -> None:
    script.acquire(39_950, "b<1>", 2)
    history = tmp_path / "history.jsonl"
    encoder = msgspec.json.Encoder()
    history.write_bytes(b"".join(encoder.encode(event) + b"\n" for event in script.events))
    verdicts = [Verdict("zombie", "Nobody writes under an old epoch.", 3, ["record x under 1 & 2"])]
    run = Run("Chaos", [("nodes", "3")], verdicts, {"7": "stockade chaos replay 7"}, ["n1 did not come back"])
    write_report(tmp_path / "report.html", run, history)
    told = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=|https?:|@import", told)
    for words in ("3 violations: zombie", "kill -9 n2", "1.30 s", "stockade chaos replay 7", "n1 did not come back"):
        assert words in told, words
    assert "record x under 1 &amp; 2" in told
    assert "epoch 2: b&lt;1&gt;" in told and "b<1>" not in told


def test_a_checker_that_checked_nothing_is_not_ticked(script: Script) -> None:
    verdicts = [Verdict("gap", "Dense.", 0, [], 12), Verdict("outcome-certificate", "True.", 0, [], 0)]
    told = page(Run("Chaos", [], verdicts, {}), Observed.of(script.events))
    assert told.count("✓") == 1
    assert "<td></td><td>outcome-certificate</td><td>True.</td><td>nothing to check</td>" in told
    assert "under 1 strike of 1 fault. Nothing to check for outcome-certificate." in told


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 faults"), (1, "1 fault"), (2, "2 faults"), (1234, "1,234 faults")]
)
def test_a_count_other_than_one_has_the_plural(number: int, words: str) -> None:
    assert counted(number, "fault") == words


def test_a_history_of_nothing_makes_a_page(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(b"")
    write_report(tmp_path / "report.html", Run("Nothing", [], [], {}), tmp_path / "history.jsonl")
    assert "No client asked for a slot" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("span_s", "labels"),
    [
        (5, "0 s 0.6 s 1.2 s"),
        (120, "0 s 20 s 40 s"),
        (599, "0 s 60 s 120 s"),
        (600, "0 min 1 min 2 min"),
        (7_188, "0 min 20 min 40 min"),
        (36_000, "0 h 1 h 2 h"),
        (604_800, "0 h 20 h 40 h"),
    ],
)
def test_an_axis_of_time_has_round_numbers_of_its_unit(span_s: float, labels: str) -> None:
    told = re.findall(r'text-anchor="middle">([^<]*)<', "".join(Scale(0.0, span_s).axis(0)))
    assert " ".join(told[:3]) == labels
    assert 4 < len(told) <= 11
