"""Judges histories: each checker is a function that yields its violations, in words.

In: operations and final logs (`..history.evidence`). Out: verdicts; `verdicts.py` lists all checkers. Pure.
May import: chaos.history, partition.
"""
