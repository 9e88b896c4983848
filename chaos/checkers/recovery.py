"""Judges how soon a partition accepts writes again once every fault is healed. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from ..history.evidence import Evidence

RECOVERY_S = 60.0
"""A partition must have acknowledged an append this long after every fault was healed. Generous: the claim is that it
recovers at all, on any machine; the report has the time that it took.
"""


def recovery(evidence: Evidence) -> Iterator[str]:
    """After all faults are healed every node gets ready, every replica can be read to its end, and every partition that
    was written before acknowledges an append: within 60 s of the first attempt, or, if there is none in 60 s in which
    clients go on, of the healing.
    """
    lost = [note for note in evidence.notes if note.f == "lost"]
    yield from (f"{note.node}: {next(iter((note.error or '').splitlines()), '')}" for note in lost)
    healed = [note.t_mono_ns for note in evidence.notes if note.f == "healed"]
    times: dict[int, tuple[list[int], list[int]]] = {}
    last_ns = 0
    for op in evidence.operations:
        last_ns = max(last_ns, (op.end or op.invoke).t_mono_ns)
        if op.invoke.f == "append" and op.invoke.partition is not None:
            asked, answered = times.setdefault(op.invoke.partition, ([], []))
            asked.append(op.invoke.t_mono_ns)
            if op.end is not None and op.outcome == "ok":
                answered.append(op.end.t_mono_ns)
    for partition, (asked, answered) in times.items():
        asked.sort()
        answered.sort()
        for at_ns in healed:
            if at_ns <= asked[0]:  # the healing ended an earlier round
                continue
            next_asked = asked[bisect_left(asked, at_ns) :][:1]
            until_ns = (next_asked or [at_ns])[0] + int(RECOVERY_S * 1e9)
            in_time = answered[bisect_left(answered, at_ns) : bisect_right(answered, until_ns)]
            if not in_time and (next_asked or last_ns >= until_ns):
                why = "" if next_asked else ": no client came to append"
                yield f"partition {partition} acknowledged nothing within {RECOVERY_S:.0f} s after the healing{why}"
