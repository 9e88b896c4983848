import re
from html.parser import HTMLParser

from msgspec.structs import replace

from stockade.chaos.checkers.verdicts import Verdict
from stockade.chaos.demo.plot import Mark, Pause, plot
from stockade.chaos.demo.report import Killing, Run, Takeover, html, markdown
from stockade.chaos.history.timeline import Outage, Rate

RUN = Run(
    source="some/folder",
    seed=7,
    nodes=3,
    partitions=2,
    records=12_000,
    bytes=1_200_000,
    rounds=3.0,
    batch_records=100,
    seconds=6.0,
    readback_s=0.5,
    replicas=6,
    records_compared=36_000,
    killings=[Killing("n2", 1, 1.8, 5.1, Outage({0: 0.05, 1: 1.25}, [1]), 1)],
    takeover=Takeover(0, 2.7, 2.9, 4.0, 4_200, 2, 24, 24, 0.012, {"absent": 20, "committed": 4}),
    verdicts=[Verdict("lost-write", "Nothing | is lost.", 0, []), Verdict("zombie", "No zombie.", 0, [])],
    rates=[Rate(0.0, 1_000.0), Rate(0.5, 2_300.0)],
    marks=[Mark(1.8, "n2 <killed>", "fault")],
    pauses=[Pause(3.0, 4.5)],
)


class TagBalance(HTMLParser):
    """Fails on a tag that is closed in the wrong place."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)


def test_the_page_says_what_happened() -> None:
    page = markdown(RUN)
    assert "Passed: every replica has all 12,000 records" in page
    assert "n2, leader of partition 1" in page
    assert "max 1.25 s, median 1.25 s | max 1.25 s, median 0.65 s" in page
    assert "2,000 records/s" in page
    assert "24 tried, 24 refused" in page
    assert "20 absent, 4 committed" in page
    assert "1.5 s, in which all writers waited at a gate" in page


def test_a_violation_is_the_first_thing_to_be_seen() -> None:
    run = replace(RUN, verdicts=[Verdict("zombie", "No zombie.", 3, ["epoch 1 at 7, after 2"])])
    for page in (markdown(run), html(run)):
        assert "FAILED: 3 violations (zombie)." in page
        assert "epoch 1 at 7, after 2" in page


def test_a_zombie_that_was_never_refused_is_said_to_be_so() -> None:
    takeover = replace(RUN.takeover, first_refusal_s=None, certificates={})
    page = markdown(replace(RUN, takeover=takeover))
    assert "never refused" in page
    assert "none; each compared" in page


def test_a_checker_that_checked_nothing_says_so() -> None:
    page = markdown(replace(RUN, verdicts=[Verdict("gap", "Dense.", 0, [], 5), Verdict("zombie", "No zombie.", 0, [])]))
    assert "| gap | Dense. | 5 | 0 |" in page
    assert "| zombie | No zombie. | nothing to check | 0 |" in page


def test_a_bar_in_a_claim_does_not_break_the_table() -> None:
    assert "Nothing \\| is lost." in markdown(RUN)


def test_the_html_page_is_well_formed_and_needs_nothing_from_elsewhere() -> None:
    page = html(RUN)
    balance = TagBalance()
    balance.feed(page)
    assert balance.open == []
    assert {"svg", "polyline", "table"} <= balance.seen
    assert "http" not in page
    assert "n2 &lt;killed&gt;" in page


def test_a_plot_of_nothing_is_still_a_plot() -> None:
    assert plot([], [], [], 0.0).endswith("</svg>")


def test_the_curve_stays_inside_the_frame() -> None:
    drawn = plot([Rate(0.0, 99.0), Rate(1.0, 250.0)], [Mark(2.0, "end", "heal")], [], 2.0)
    points = drawn.split('class="line" points="')[1].split('"')[0].split()
    xs, ys = zip(*(map(float, point.split(",")) for point in points), strict=True)
    assert (min(xs), max(xs)) == (64.0, 884.0)
    assert min(ys) == 74.0


def test_labels_that_would_cover_each_other_go_into_different_rows() -> None:
    marks = [Mark(0.0, "first", "fault"), Mark(0.1, "second", "heal"), Mark(5.0, "far away", "heal")]
    drawn = plot([], marks, [], 10.0)
    rows = [line.split(' y="')[1].split('"')[0] for line in drawn.splitlines() if 'class="label' in line]
    assert rows == ["14", "29", "14"]


def test_no_line_of_a_mark_goes_through_the_words_of_another() -> None:
    """As in a demo: five events within two seconds, of eighteen."""
    marks = [
        Mark(10.6, "n3 ready", "heal"),
        Mark(10.8, "writer stalled", "fault"),
        Mark(10.83, "taken over", "takeover"),
        Mark(10.9, "zombie resumed", "fault"),
        Mark(12.9, "kill -9 n1", "fault"),
    ]
    drawn = plot([], marks, [], 18.5)
    lines = [
        (float(x), float(y)) for x, y in re.findall(r'class="mark \w+" x1="([\d.]+)" x2="[\d.]+" y1="(\d+)"', drawn)
    ]
    words = re.findall(r'class="label \w+" x="([\d.]+)" y="(\d+)" text-anchor="start">([^<]+)<', drawn)
    assert len(lines) == len(words) == len(marks)
    for x, y, label in words:
        end = float(x) + 7 * len(label)
        assert not [at for at, top in lines if float(x) < at < end and top < float(y)], label
    rows = [int(y) for _, y, _ in words]
    frame = float(re.findall(r'class="grid"[^>]* y1="([\d.]+)"', drawn)[-1])
    assert max(rows) < frame


def test_a_mark_after_the_last_record_is_inside_the_frame() -> None:
    drawn = plot([Rate(0.0, 10.0)], [Mark(4.0, "ready", "heal")], [], 2.0)
    assert 'x1="884.0" x2="884.0"' in drawn
    assert "474.0" in drawn.split('class="line" points="')[1].split('"')[0]
