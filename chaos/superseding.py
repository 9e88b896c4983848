"""What was granted to somebody else before an operation began: by it, whoever holds less must be refused. Pure."""

from bisect import bisect_left
from collections.abc import Hashable, Iterable
from itertools import accumulate

from .evidence import Evidence
from .history import Event, Operation

Seat = tuple[str, Hashable]
"""What epochs are counted for: the slot of a partition, a resource, a producer id."""


class Grants:
    """For each seat: the highest epoch that was answered to anybody, over time."""

    def __init__(self, granted: Iterable[tuple[Seat, int, int]]) -> None:
        """``granted``: (seat, when it was answered, epoch)."""
        seats: dict[Seat, list[tuple[int, int]]] = {}
        for seat, at_ns, epoch in granted:
            seats.setdefault(seat, []).append((at_ns, epoch))
        self._known: dict[Seat, tuple[list[int], list[int]]] = {}
        for seat, pairs in seats.items():
            pairs.sort()
            self._known[seat] = ([at for at, _ in pairs], list(accumulate((epoch for _, epoch in pairs), max)))

    @classmethod
    def of(cls, evidence: Evidence) -> "Grants":
        """Every grant of a slot, every ownership and every identity that was answered."""
        return cls(
            (seat, op.end.t_mono_ns, epoch)
            for op in evidence.operations
            if op.end is not None and op.outcome == "ok" and op.invoke.f in {"acquire", "own", "init"}
            for seat, epoch in granted(op)
        )

    def newer(self, seat: Seat, epoch: int, at_ns: int) -> int | None:
        """A higher epoch of the seat that had been answered before ``at_ns``; None: there was none."""
        times, epochs = self._known.get(seat, ([], []))
        before = bisect_left(times, at_ns)
        highest = epochs[before - 1] if before else epoch
        return highest if highest > epoch else None


def granted(op: Operation) -> list[tuple[Seat, int]]:
    """What an acquire, own or init that ended well was given."""
    assert op.end is not None
    if op.invoke.f == "init" and op.end.producer_id is not None and op.end.producer_epoch is not None:
        return [(("producer", op.end.producer_id), op.end.producer_epoch)]
    if op.end.epoch is None:
        return []
    if op.invoke.f == "own":
        return [(("resource", op.invoke.resource), op.end.epoch)]
    return [(("slot", op.invoke.partition), op.end.epoch)] if op.invoke.f == "acquire" else []


def claimed(invoked: Event) -> list[tuple[Seat, int]]:
    """Under what an append was sent: its token or fence_epoch, and its producer's epoch."""
    seats: list[tuple[Seat, int]] = []
    if invoked.epoch is not None:
        seat = ("slot", invoked.partition) if invoked.resource is None else ("resource", invoked.resource)
        seats.append((seat, invoked.epoch))
    if invoked.producer_id is not None and invoked.producer_epoch is not None:
        seats.append((("producer", invoked.producer_id), invoked.producer_epoch))
    return seats
