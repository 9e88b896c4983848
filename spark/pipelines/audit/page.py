"""One self-contained HTML page about an audit, with SVG plots and no script. Pure: same audit, same page."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from .findings import Audited, Finding, Slot, Timeline

WIDTH, HEIGHT, LEFT, BOTTOM = 1000, 240, 64, 26
KINDS = (("ok", "acknowledged"), ("fail", "refused, no effect"), ("info", "outcome unknown"))


def course(timeline: Timeline) -> Iterator[str]:
    """The plot of operations a second over the run, stacked by how they ended, with events of the nemesis as lines."""
    if not timeline.slots:
        return
    most = max(map(sum, timeline.slots)) or 1
    length_s = timeline.slot_s * len(timeline.slots)
    yield '<h2>The run</h2><div class="legend">'
    yield from (f'<span><i class="{kind}"></i>{label}</span>' for kind, label in KINDS)
    yield '<span><i class="mark"></i>events of the nemesis</span></div>'
    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Operations a second over time">'
    yield from _axes(most / timeline.slot_s, length_s)
    step = (WIDTH - LEFT) / len(timeline.slots)
    for number, slot in enumerate(timeline.slots):
        yield from _column(slot, LEFT + number * step, step, most)
    for at_s, what in timeline.marks:
        x = LEFT + (WIDTH - LEFT) * at_s / length_s
        yield f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="{HEIGHT - BOTTOM}"><title>{at_s:.1f} s '
        yield f"{escape(what)}</title></line>"
    yield "</svg>"


def by_checker(findings: Sequence[Finding], title: str, kind: str) -> Iterator[str]:
    """The plot of the violations of each checker that found any, as bars of the CSS class ``kind``."""
    broken = [each for each in findings if each.violations]
    if not broken:
        return
    height = 24 * len(broken)
    most = max(each.violations for each in broken)
    yield f'<h2>{title}</h2><svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">'
    for number, each in enumerate(broken):
        y = 24 * number
        width = each.violations / most * (WIDTH - 300)
        yield f'<text x="170" y="{y + 16}" text-anchor="end">{escape(each.checker)}</text>'
        yield f'<rect class="{kind}" x="180" y="{y + 4}" width="{width:.2f}" height="16"/>'
        yield f'<text x="{190 + width:.1f}" y="{y + 16}">{each.violations:,}</text>'
    yield "</svg>"


def _axes(most_per_s: float, length_s: float) -> Iterator[str]:
    base = HEIGHT - BOTTOM
    for part in (0, 0.5, 1):
        y = base - part * (base - 12)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{part * most_per_s:,.0f}/s</text>'
        x = LEFT + part * (WIDTH - LEFT)
        anchor = {0: "start", 0.5: "middle", 1: "end"}[part]
        yield f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{part * length_s:,.0f} s</text>'


def _column(slot: Slot, x: float, width: float, most: int) -> Iterator[str]:
    y = float(HEIGHT - BOTTOM)
    for (kind, label), count in zip(KINDS, slot, strict=True):
        height = count / most * (HEIGHT - BOTTOM - 12)
        y -= height
        if count:
            size = f'width="{max(width - 0.5, 0.5):.1f}" height="{height:.1f}"'
            yield f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size}>'
            yield f"<title>{count:,} {label}</title></rect>"


_STYLE = """
:root{color-scheme:light dark;--ink:#1b2330;--soft:#5d6878;--line:#d9dee6;--page:#f5f7fa;--card:#fff;--good:#1a7f4b;
--bad:#c0322b;--tint:#fdeeed;--bar:#7f9cc4}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa6b6;--line:#323b48;--page:#12161d;--card:#1a2029;
--good:#4cc38a;--bad:#ff7b72;--tint:#331d1f;--bar:#56749f}}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:32px 24px 64px}h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;
margin:36px 0 12px}.soft{color:var(--soft)}.verdict{border-left:6px solid var(--good);background:var(--card);
border-radius:8px;padding:16px 20px;margin:20px 0;font-size:18px}.verdict.bad{border-color:var(--bad)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px}.card{background:var(--card);
border-radius:8px;padding:14px 16px}.card b{display:block;font-size:22px;font-variant-numeric:tabular-nums}
table{width:100%;border-collapse:collapse;background:var(--card);border-radius:8px;overflow:hidden}
th,td{padding:9px 14px;text-align:left;border-top:1px solid var(--line);vertical-align:top}
tr:first-child>*{border-top:0}td:first-child code{white-space:nowrap}
th{font-weight:600;color:var(--soft);font-size:13px}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;
white-space:nowrap}code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}
.ok{color:var(--good)}.no{color:var(--bad);font-weight:600}tr.hit{background:var(--tint)}
details{background:var(--card);border-radius:8px;padding:12px 16px;margin:10px 0}summary{cursor:pointer;font-weight:600}
ul{margin:10px 0 0;padding-left:20px}li{margin:3px 0}.bar{height:10px;border-radius:5px;background:var(--bar);
min-width:2px}td.wide{width:60%}
svg{width:100%;height:auto;background:var(--card);border-radius:8px;padding:12px;font:12px system-ui,sans-serif}
svg text{fill:var(--soft)}rect.ok{fill:var(--bar)}rect.fail{fill:#c99a2e}rect.info{fill:var(--bad)}
line.grid{stroke:var(--line)}line.mark{stroke:var(--ink);stroke-dasharray:3 3;opacity:.55}
.legend{display:flex;gap:20px;margin:0 0 8px;color:var(--soft);font-size:13px}.legend i{display:inline-block;width:12px;
height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px}i.ok{background:var(--bar)}i.fail{background:#c99a2e}
i.info{background:var(--bad)}i.mark{width:0!important;border-left:2px dashed var(--ink);border-radius:0!important}
"""


def page(audited: Audited, history: str, logs: str, planted: Mapping[str, int] | None = None) -> str:
    """The page as HTML. ``history`` and ``logs``: where the evidence was. ``planted``: the number of violations that a
    rehearsal has planted for each checker; None: the run was no rehearsal.
    """
    body = "".join(_body(audited, history, logs, planted))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Audit</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _body(audited: Audited, history: str, logs: str, planted: Mapping[str, int] | None) -> Iterator[str]:
    of_what = "run" if planted is None else "rehearsal"
    violations = "Violations" if planted is None else "Planted violations"
    yield f"<h1>Audit of a {of_what}</h1>"
    yield f'<div class="soft">History <code>{escape(history)}</code><br>Logs <code>{escape(logs)}</code></div>'
    yield _verdict(audited) if planted is None else _rehearsed(audited, planted)
    yield '<div class="cards">'
    for name, count in audited.counts.items():
        yield f'<div class="card"><b>{count:,}</b><span class="soft">{escape(name)}</span></div>'
    seconds = sum(audited.seconds.values())
    yield f'<div class="card"><b>{seconds:.1f} s</b><span class="soft">to judge</span></div></div>'
    if planted is None:  # the times of a rehearsal are made up
        yield from course(audited.timeline)
    yield from by_checker(audited.findings, f"{violations} by checker", "info" if planted is None else "ok")
    head = "" if planted is None else '<th class="n">Planted</th>'
    yield '<h2>Checkers</h2><table><tr><th>Checker</th><th>Claim</th><th class="n">Checked</th>'
    yield f'{head}<th class="n">Violations</th></tr>'
    yield from (_row(finding, planted) for finding in audited.findings)
    yield "</table>"
    yield from _examples([finding for finding in audited.findings if finding.violations], violations)
    yield from _times(audited.seconds)


def _verdict(audited: Audited) -> str:
    broken = [finding.checker for finding in audited.findings if finding.violations]
    if broken:
        return (
            f'<div class="verdict bad"><b>{_counted(audited.violations, "violation")}</b> found by {len(broken)} of '
            f"{_counted(len(audited.findings), 'checker')}.</div>"
        )
    idle = [finding.checker for finding in audited.findings if not finding.checked]
    passed = _counted(len(audited.findings) - len(idle), "checker")
    rest = f" Nothing to check for {escape(', '.join(idle))}." if idle else ""
    return f'<div class="verdict">No violation: {passed} passed.{rest}</div>'


def _rehearsed(audited: Audited, planted: Mapping[str, int]) -> str:
    """The verdict on a rehearsal, which has passed if each checker found as many violations as were planted for it."""
    odd = [each.checker for each in audited.findings if each.violations != planted.get(each.checker, 0)]
    number = _counted(sum(planted.values()), "violation")
    if odd:
        return (
            f'<div class="verdict bad"><b>{number} planted</b> into a made-up run, {audited.violations:,} found. Found '
            f"and planted differ for {escape(', '.join(odd))}.</div>"
        )
    finders = _counted(sum(1 for count in planted.values() if count), "checker")
    return (
        f'<div class="verdict"><b>{number} planted</b> into a made-up run without any: {finders} found them all, and '
        "nothing else.</div>"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _row(finding: Finding, planted: Mapping[str, int] | None) -> str:
    is_right = finding.violations == (planted or {}).get(finding.checker, 0)
    hit, mark = ("", "ok") if is_right else (' class="hit"', "no")
    if is_right and not finding.checked:
        mark = "soft"
    column = "" if planted is None else f'<td class="n">{planted.get(finding.checker, 0):,}</td>'
    return (
        f"<tr{hit}><td><code>{escape(finding.checker)}</code></td><td>{escape(finding.claim)}.</td>"
        f'<td class="n">{finding.checked_words}</td>{column}<td class="n {mark}">{finding.violations:,}</td></tr>'
    )


def _examples(broken: list[Finding], title: str) -> Iterator[str]:
    if broken:
        yield f"<h2>{title}</h2>"
    for finding in broken:
        shown = len(finding.examples)
        rest = f", the first {shown}" if shown < finding.violations else ""
        yield f"<details open><summary>{escape(finding.checker)}: {finding.violations:,}{rest}</summary><ul>"
        for each in finding.examples:
            at = "" if each.offset is None else f" at {each.offset:,}"
            yield f"<li><code>{escape(each.place + at)}</code>: {escape(each.what)}</li>"
        yield "</ul></details>"


def _times(seconds: dict[str, float]) -> Iterator[str]:
    longest = max(seconds.values(), default=0) or 1
    yield '<h2>Time by pass</h2><table><tr><th>Pass</th><th class="n">Seconds</th><th></th></tr>'
    for name, value in seconds.items():
        bar = f'<div class="bar" style="width:{100 * value / longest:.1f}%"></div>'
        yield f'<tr><td>{escape(name)}</td><td class="n">{value:.1f}</td><td class="wide">{bar}</td></tr>'
    yield "</table>"
