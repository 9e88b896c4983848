"""A linearizability checker for slots: can the answers about a slot have happened one after the other?

The search is that of Wing and Gong, with Lowe's cache of visited states. The state of a slot is its topic epoch: an
acquire raises it, an append with a token needs exactly the token's epoch, a look returns it. Epochs only grow, so the
state is known whenever no call is in flight; the search starts anew at each such moment, and stays small. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from ..history.evidence import Evidence
from ..history.history import Operation

STEPS_MAX = 200
"""Search steps for each call of a stretch. A longer search ends, and the stretch is reported as undecided: a false
alarm is better than silence.
"""

_LOOKS = frozenset(("epoch", "share"))
"""Operations that return the topic epoch and do not raise it; a Shared grant (``share``) is for the present epoch."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """One operation on a slot: when it began and ended, and whether it raises the epoch or only needs it."""

    began_ns: int
    ended_ns: int
    epoch: int
    raises: bool
    i: int

    def then(self, epoch: int) -> int | None:
        """The epoch after this call if it happens at ``epoch``; None if it cannot happen there."""
        if self.raises:
            return self.epoch if self.epoch > epoch else None
        return epoch if self.epoch == epoch else None


def slot_history(evidence: Evidence) -> Iterator[str]:
    """The acquires, appends with tokens and reads of the topic epoch of a partition can have happened one after the
    other so that each has its answer (linearizability).
    """
    calls = sorted(_calls(evidence), key=lambda entry: entry[0])
    for partition, entries in groupby(calls, lambda entry: entry[0]):
        mine = [call for _, call in entries]
        for problem in judge_calls(mine):
            yield f"partition {partition}: {problem}"


def judge_calls(calls: Sequence[Call]) -> Iterator[str]:
    """The violations among the calls of one slot whose first epoch was 0."""
    epoch = 0
    for stretch in _stretches(calls):
        found = linearizable(stretch, epoch)
        if not found:
            said = "cannot be ordered" if found is False else "could not be decided in time"
            first, last = stretch[0], stretch[-1]
            yield f"operations {first.i} to {last.i} ({len(stretch)}) {said}, from epoch {epoch} on"
        epoch = max([epoch, *(call.epoch for call in stretch)])


def linearizable(calls: Sequence[Call], start: int) -> bool | None:
    """Whether some order explains all ``calls``, which ascend by ``began_ns``, if the epoch is ``start`` before them.
    None: undecided after STEPS_MAX steps for each call.
    """
    tried: set[_Tried] = set()
    stack: list[_Tried] = [(0, 0, start)]
    for _ in range(STEPS_MAX * len(calls)):
        if not stack:
            return False
        state = stack.pop()
        if state[0] == len(calls):
            return True
        if state not in tried:
            tried.add(state)
            stack.extend(_next(calls, *state))
    return None


_Tried = tuple[int, int, int]
"""A state of the search, (low, mask, epoch): the calls below ``low`` have happened, and call ``low + k`` where bit k of
the mask is set.
"""


def _next(calls: Sequence[Call], low: int, done: int, epoch: int) -> list[_Tried]:
    """The states in which one more call has happened: one that began before any remaining call ended. The best guess,
    the earliest of them, comes last, since the search takes the last state first.
    """
    found: list[_Tried] = []
    earliest_end = calls[low].ended_ns
    for k in range(low, len(calls)):
        if calls[k].began_ns > earliest_end:
            break
        if done >> (k - low) & 1:
            continue
        earliest_end = min(earliest_end, calls[k].ended_ns)
        after = calls[k].then(epoch)
        if after is not None:
            found.append(_advanced(low, done | 1 << (k - low), after))
    return found[::-1]


def _advanced(low: int, done: int, epoch: int) -> _Tried:
    while done & 1:
        low, done = low + 1, done >> 1
    return low, done, epoch


def _stretches(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """The calls, cut wherever none is in flight; each stretch ascends by ``began_ns``."""
    stretch: list[Call] = []
    latest = 0
    for call in sorted(calls, key=lambda call: call.began_ns):
        if stretch and call.began_ns > latest:
            yield stretch
            stretch = []
        stretch.append(call)
        latest = max(latest, call.ended_ns)
    if stretch:
        yield stretch


def _calls(evidence: Evidence) -> Iterator[tuple[int, Call]]:
    known = [op for op in evidence.operations if op.outcome == "ok" and op.invoke.partition is not None]
    for op in known:
        if (call := _call(op)) is not None and op.invoke.partition is not None:
            yield op.invoke.partition, call
    yield from _unknown_grants(evidence, known)


def _call(op: Operation) -> Call | None:
    assert op.end is not None
    times = (op.invoke.t_mono_ns, op.end.t_mono_ns)
    if op.invoke.f in {"acquire", *_LOOKS} and op.end.epoch is not None:
        return Call(*times, op.end.epoch, op.invoke.f == "acquire", op.invoke.i)
    if op.invoke.f == "append" and op.invoke.epoch is not None and op.invoke.resource is None:
        return Call(*times, op.invoke.epoch, False, op.invoke.i)
    return None


def _unknown_grants(evidence: Evidence, known: Iterable[Operation]) -> Iterator[tuple[int, Call]]:
    """Grants whose answer was lost, but whose epoch was seen: each happened before its epoch was first seen."""
    given = {(op.invoke.partition, op.end.epoch) for op in known if op.invoke.f == "acquire" and op.end is not None}
    seen: dict[tuple[int, int], int] = {}
    for op in known:
        if op.invoke.f in _LOOKS and op.end is not None and op.end.epoch and op.invoke.partition is not None:
            place = (op.invoke.partition, op.end.epoch)
            if place not in given:
                seen[place] = min(seen.get(place, op.end.t_mono_ns), op.end.t_mono_ns)
    # "fail", too: a waiter whose session ended, and who was refused, may have been granted its slot before.
    unknown = sorted((op for op in evidence.ended("acquire", "info", "fail")), key=lambda op: op.invoke.t_mono_ns)
    for (partition, epoch), seen_ns in sorted(seen.items()):
        asked = next((op for op in unknown if op.invoke.partition == partition), None)
        if asked is not None and asked.invoke.t_mono_ns <= seen_ns:
            unknown.remove(asked)
            yield partition, Call(asked.invoke.t_mono_ns, seen_ns, epoch, True, asked.invoke.i)
