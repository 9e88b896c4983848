"""The page, plots and tables about runs of chaos. In: histories and verdicts. Out: HTML, SVG, Markdown. Judges nothing.

May import: chaos.checkers, chaos.endurance, chaos.harness, chaos.history.
"""
