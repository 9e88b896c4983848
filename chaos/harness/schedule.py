"""The schedule of faults, from a seed. Pure: the same seed, faults and length give the same schedule."""

import random
from collections.abc import Collection, Sequence

import msgspec

OVERLAP_MAX = 3
"""Most faults at a time: the number of lanes."""
STRIKE_S = (2.0, 10.0)
"""Duration of a fault, drawn between these."""
QUIET_S = (0.5, 3.0)
"""Time between two faults of a lane."""


class Planned(msgspec.Struct, frozen=True, order=True):
    """One strike, with times in seconds from the start. ``seed`` decides all its choices."""

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
    """Strikes in order of their start, at most OVERLAP_MAX at a time; with ``apart_s`` one at a time, that far apart.

    Each of one to three lanes draws faults from ``faults``, one after the other. The faults of ``always`` strike first,
    each once, in as many lanes as that takes; with more of them than OVERLAP_MAX, or apart, as far as ``seconds``
    suffice. Of the draws at most one is a fault of ``once``.
    """
    chance = random.Random(f"{seed}/schedule")  # a seed replays it  # noqa: S311  # nosec B311
    due = [*always]
    chance.shuffle(due)
    left, spent = [*faults], [fault for fault in faults if fault not in once]
    lanes_max = 1 if apart_s else OVERLAP_MAX
    lanes = chance.randint(1, lanes_max) if faults or due else 0
    planned: list[Planned] = []
    for lane in range(lanes_max):
        if lane >= lanes and not due:
            break
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
