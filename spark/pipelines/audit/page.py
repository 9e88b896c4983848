"""One self-contained HTML page about an audit. Pure: same audit, same page; nothing is loaded from anywhere."""

from collections.abc import Iterator
from html import escape

from .findings import Audited, Finding
from .plots import by_checker, course

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


def page(audited: Audited, history: str, logs: str) -> str:
    """The page; ``history`` and ``logs`` say where the evidence was."""
    body = "".join(_body(audited, history, logs))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Audit</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _body(audited: Audited, history: str, logs: str) -> Iterator[str]:
    yield "<h1>Audit of a run</h1>"
    yield f'<div class="soft">History <code>{escape(history)}</code><br>Logs <code>{escape(logs)}</code></div>'
    yield _verdict(audited)
    yield '<div class="cards">'
    for name, count in audited.counts.items():
        yield f'<div class="card"><b>{count:,}</b><span class="soft">{escape(name)}</span></div>'
    seconds = sum(audited.seconds.values())
    yield f'<div class="card"><b>{seconds:.1f} s</b><span class="soft">to judge</span></div></div>'
    yield from course(audited.timeline)
    yield from by_checker(audited.findings)
    yield "<h2>Checkers</h2><table><tr><th>Checker</th><th>What it holds the cluster to</th>"
    yield '<th class="n">Violations</th></tr>'
    yield from (_row(finding) for finding in audited.findings)
    yield "</table>"
    yield from _examples([finding for finding in audited.findings if finding.violations])
    yield from _times(audited.seconds)


def _verdict(audited: Audited) -> str:
    broken = [finding.checker for finding in audited.findings if finding.violations]
    if not broken:
        return f'<div class="verdict">Every promise was kept: {len(audited.findings)} checkers, no violation.</div>'
    plural = "s" if audited.violations > 1 else ""
    return (
        f'<div class="verdict bad"><b>{audited.violations:,} violation{plural}</b> found by {len(broken)} of '
        f"{len(audited.findings)} checkers.</div>"
    )


def _row(finding: Finding) -> str:
    hit, mark = (' class="hit"', "no") if finding.violations else ("", "ok")
    return (
        f"<tr{hit}><td><code>{escape(finding.checker)}</code></td><td>{escape(finding.claim)}.</td>"
        f'<td class="n {mark}">{finding.violations:,}</td></tr>'
    )


def _examples(broken: list[Finding]) -> Iterator[str]:
    if broken:
        yield "<h2>What was found</h2>"
    for finding in broken:
        shown = len(finding.examples)
        rest = f", the first {shown}" if shown < finding.violations else ""
        yield f"<details open><summary>{escape(finding.checker)}: {finding.violations:,}{rest}</summary><ul>"
        for each in finding.examples:
            place = f"{each.topic}/{each.partition}" if each.topic is not None else "everywhere"
            at = "" if each.offset is None else f" at {each.offset:,}"
            yield f"<li><code>{escape(place + at)}</code>: {escape(each.what)}</li>"
        yield "</ul></details>"


def _times(seconds: dict[str, float]) -> Iterator[str]:
    longest = max(seconds.values(), default=0) or 1
    yield '<h2>Where the time went</h2><table><tr><th>Pass</th><th class="n">Seconds</th><th></th></tr>'
    for name, value in seconds.items():
        bar = f'<div class="bar" style="width:{100 * value / longest:.1f}%"></div>'
        yield f'<tr><td>{escape(name)}</td><td class="n">{value:.1f}</td><td class="wide">{bar}</td></tr>'
    yield "</table>"
