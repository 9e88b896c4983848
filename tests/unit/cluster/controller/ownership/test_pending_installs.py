"""What answers have to wait for: remembered by session, and cheap while much of it waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.cluster.controller.commands import FenceRef, ReaderRef
from stockade.cluster.controller.ownership.pending_installs import PendingInstalls


class Partitions:
    """Those that have committed what they were told; ``looks`` counts questions."""

    def __init__(self) -> None:
        self.over: set[int] = set()
        self.looks = 0

    def is_over(self, fence: FenceRef) -> bool:
        self.looks += 1
        return fence.group_id in self.over

    def is_installed(self, reader: ReaderRef) -> bool:
        self.looks += 1
        return reader.group_id in self.over


def test_the_end_of_many_sessions_does_not_scan_the_pending_installs_of_another() -> None:
    partitions = Partitions()
    pending = PendingInstalls(partitions.is_over, partitions.is_installed)
    readers = [ReaderRef(group, "g", 1) for group in range(1_000)]
    pending.add(["many"], (), readers)
    partitions.looks = 0
    for number in range(1_000):
        pending.add([f"none-{number}"], (), ())
        pending.add([f"one-{number}"], [FenceRef(number, 1)], ())
    assert partitions.looks <= 4 * 1_000
    assert pending.outstanding("many") == ([], readers)
    assert pending.outstanding("one-7") == ([FenceRef(7, 1)], [])


def test_committed_installs_are_forgotten_when_another_session_ends() -> None:
    partitions = Partitions()
    pending = PendingInstalls(partitions.is_over, partitions.is_installed)
    pending.add(["first"], [FenceRef(1, 1)], [ReaderRef(2, "g", 1)])
    partitions.over |= {1}
    pending.add(["second"], (), ())
    assert pending.save() == [("first", [FenceRef(1, 1)], [ReaderRef(2, "g", 1)])]
    pending.add(["first"], [FenceRef(3, 1)], ())
    assert pending.save() == [("first", [FenceRef(3, 1)], [ReaderRef(2, "g", 1)])]
    partitions.over |= {2, 3}
    pending.add(["third"], (), ())
    assert pending.save() == []


def test_the_end_of_many_sessions_does_not_scan_the_committed_installs_of_another() -> None:
    """One partition out of reach is enough for that: all installs of the oldest session before it were looked at."""
    partitions = Partitions()
    pending = PendingInstalls(partitions.is_over, partitions.is_installed)
    pending.add(["many"], (), [ReaderRef(group, "g", 1) for group in range(1_000)])
    partitions.over |= set(range(999))
    partitions.looks = 0
    for number in range(1_000):
        pending.add([f"one-{number}"], [FenceRef(1_000 + number, 1)], ())
    assert partitions.looks <= 4 * 1_000
    partitions.over |= {999}
    pending.add(["last"], [FenceRef(7_000, 1)], ())
    assert pending.sessions()[0] == "one-0"


REFS = st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=5)
STEPS = st.lists(st.tuples(st.lists(st.sampled_from("abcd"), unique=True), REFS, st.integers(0, 5)), max_size=12)


@given(STEPS, st.integers(1, 12))
def test_sessions_noted_together_are_noted_as_one_after_the_other(
    steps: list[tuple[list[str], list[tuple[bool, int]], int]], refs_max: int
) -> None:
    partitions = Partitions()
    together, singly = (PendingInstalls(partitions.is_over, partitions.is_installed) for _ in range(2))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stockade.cluster.controller.ownership.pending_installs.REFS_MAX", refs_max)
        for sessions, refs, changed in steps:
            fences = [FenceRef(group, 1) for is_fence, group in refs if is_fence]
            readers = [ReaderRef(group, "g", 1) for is_fence, group in refs if not is_fence]
            together.add(sessions, fences, readers)
            for session in sessions:
                singly.add([session], fences, readers)
            assert together.save() == singly.save()
            noted = sum(len(fences) + len(readers) for _, fences, readers in together.save())
            assert noted <= refs_max
            partitions.over ^= {changed}  # a partition may be owed another fence of the same group
            restored = PendingInstalls(partitions.is_over, partitions.is_installed)
            restored.load(together.save())
            assert [restored.outstanding(each) for each in "abcd"] == [together.outstanding(each) for each in "abcd"]
            singly = restored
