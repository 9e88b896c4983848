"""Switches that only tests turn on: defects put in on purpose, and points at which a process stops itself.

Both are read from the environment once, when the process starts; without the two variables nothing here does anything.
``stockade serve`` says loudly when one of them is set. A defect is there so that a checker can be seen to catch it; a
point, so that a pause of the garbage collector can be made to fall exactly there.
"""

import os
import signal

DEFECTS_VARIABLE = "STOCKADE_TEST_DEFECTS"
"""Names of defects, separated by commas."""
CONSENT_VARIABLE = "STOCKADE_TEST_CONSENT"
CONSENT = "this process may lose and double what it is given"
"""Without this very text in that variable a process with defects does not start: nobody sets both by mistake."""
STOPS_VARIABLE = "STOCKADE_TEST_STOPS"
"""A folder. When a process comes to a point for which it finds ``POINT.PID`` there, it removes that and stops."""

DEFECTS = frozenset({"epoch-check", "dedupe", "commit", "fsync", "stale-reads", "certificates"})
"""What can be broken: the refusal of older epochs, that of repeated sequence numbers, waiting for a majority, waiting
for the disk, proving leadership before a read, what a fencing error certifies.
"""
POINTS = frozenset(
    {
        "append-received",  # a leader has an append, and has proposed nothing
        "append-copied",  # a leader hears that a follower has entries, and has counted nothing
        "append-applied",  # a leader has the verdict, and has answered nothing
        "produce-begun",  # a client is about to send an append
        "produce-written",  # a client has handed an append to the connection
        "produce-answered",  # a client has read the answer, and nobody was told
    }
)


def _chosen() -> frozenset[str]:
    chosen = frozenset(filter(None, os.environ.get(DEFECTS_VARIABLE, "").split(",")))
    unknown = chosen - DEFECTS
    if unknown:
        raise ValueError(f"{DEFECTS_VARIABLE}: no such defect: {', '.join(sorted(unknown))}")
    if chosen and os.environ.get(CONSENT_VARIABLE) != CONSENT:
        raise ValueError(f"{DEFECTS_VARIABLE} is for tests alone; they also set {CONSENT_VARIABLE} to {CONSENT!r}")
    return chosen


_defects = _chosen()
_stops = os.environ.get(STOPS_VARIABLE) or None


def has_defect(name: str) -> bool:
    """Whether this defect was put in on purpose."""
    return name in _defects


def stop_at(point: str) -> None:
    """Stop this process, all its threads, if a test wants it stopped here; it goes on after SIGCONT."""
    if _stops is not None:
        _stop_if_wanted(point)


def warning() -> str | None:
    """What must be said at the start of a process that is not to be trusted; None for all others."""
    if not _defects and _stops is None:
        return None
    stops = f"; stops itself as {_stops} says" if _stops is not None else ""
    return f"TEST SWITCHES ARE ON, keep no data here: defects: {', '.join(sorted(_defects)) or 'none'}{stops}"


def _stop_if_wanted(point: str) -> None:
    try:
        os.unlink(f"{_stops}/{point}.{os.getpid()}")  # noqa: PTH108
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGSTOP)
