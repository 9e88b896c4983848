"""The page, plots and tables about runs of chaos. In: histories and verdicts. Out: HTML, SVG, Markdown. Judges nothing.

May import `..history`, `..checkers`, the samples of `..endurance` and the summary of `..harness.results`.

May import: chaos.checkers, chaos.endurance, chaos.harness, chaos.history.
"""
