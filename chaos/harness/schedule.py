"""From a seed to what breaks when. Pure: the same seed, faults and length always give the same schedule."""

import random
from collections.abc import Collection, Sequence

import msgspec

OVERLAP_MAX = 3
"""Faults at once."""
STRIKE_S = (2.0, 10.0)
"""How long one lasts, drawn between these."""
QUIET_S = (0.5, 3.0)
"""Between the end of one and the beginning of the next in the same lane."""


class Planned(msgspec.Struct, frozen=True, order=True):
    """One strike: from when to when, in seconds from the beginning on. ``seed`` decides everything about it."""

    at_s: float
    until_s: float
    fault: str
    seed: str


def schedule(
    seed: int,
    faults: Sequence[str],
    seconds: float,
    always: Sequence[str] = (),
    once: Collection[str] = (),
    apart_s: float = 0.0,
) -> list[Planned]:
    """Strikes in order of their beginning, at most OVERLAP_MAX at once; with ``apart_s`` one at a time, so far apart.

    In each of one to three lanes, faults are drawn one after the other from ``faults``. Each of ``always`` strikes at
    least once, and of all in ``once`` together at most one, once.
    """
    chance = random.Random(f"{seed}/schedule")  # noqa: S311
    due = [*always]
    chance.shuffle(due)
    left, spent = [*faults], [fault for fault in faults if fault not in once]
    lanes = chance.randint(1, 1 if apart_s else OVERLAP_MAX) if faults or due else 0
    planned: list[Planned] = []
    for lane in range(lanes):
        at_s = apart_s + chance.uniform(*QUIET_S)
        while at_s + STRIKE_S[0] < seconds:
            until_s = min(at_s + chance.uniform(*STRIKE_S), seconds)
            fault = due.pop() if due else chance.choice(left) if left else None
            if fault is None:
                break
            left = spent if fault in once else left
            planned.append(Planned(round(at_s, 3), round(until_s, 3), fault, f"{seed}/{lane}/{len(planned)}"))
            at_s = until_s + apart_s + chance.uniform(*QUIET_S)
    return sorted(planned)
