"""How much each checker had to look at: a verdict without violations is worth what stands behind it. Pure."""

from collections import Counter
from collections.abc import Mapping

from .evidence import Evidence

_RECORDS = ("inconsistent-offset", "duplicate", "byte-exact", "order", "gap", "sequence-order")
"""They look at every record of every replica."""
_OK = {
    "append": ("lost-write", "nonmonotonic-send", "zombie", "slot-history", "unseen", "recovery"),
    "poll": ("nonmonotonic-poll", "skipped-poll", "stale-read", "position"),
    "fetch": ("stale-read",),
    "acquire": ("epoch-uniqueness", "slot-history"),
    "own": ("epoch-uniqueness",),
    "init": ("epoch-uniqueness",),
    "epoch": ("slot-history",),
    "commit": ("position",),
    "position": ("position",),
}
"""Which checkers judge what was answered well."""


def looked_at(evidence: Evidence) -> Mapping[str, int]:
    """For each checker: how many records, or answers, it judges in this evidence."""
    found = Counter(dict.fromkeys(_RECORDS, sum(len(log.names) for log in evidence.logs)))
    for op in evidence.operations:
        if op.outcome == "ok":
            found.update(_OK.get(op.invoke.f, ()))
        elif op.outcome == "fail" and op.invoke.f == "append":
            found["aborted-read"] += 1
        found["outcome-certificate"] += op.end is not None and op.end.outcome is not None
    return found
