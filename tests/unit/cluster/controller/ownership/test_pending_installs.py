"""What answers have to wait for: remembered by session, and cheap while much of it waits."""

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
    pending.add("many", (), readers)
    partitions.looks = 0
    for number in range(1_000):
        pending.add(f"none-{number}", (), ())
        pending.add(f"one-{number}", [FenceRef(number, 1)], ())
    assert partitions.looks <= 4 * 1_000
    assert pending.outstanding("many") == ([], readers)
    assert pending.outstanding("one-7") == ([FenceRef(7, 1)], [])


def test_committed_installs_are_forgotten_when_another_session_ends() -> None:
    partitions = Partitions()
    pending = PendingInstalls(partitions.is_over, partitions.is_installed)
    pending.add("first", [FenceRef(1, 1)], [ReaderRef(2, "g", 1)])
    partitions.over |= {1}
    pending.add("second", (), ())
    assert pending.save() == [("first", [FenceRef(1, 1)], [ReaderRef(2, "g", 1)])]
    pending.add("first", [FenceRef(3, 1)], ())
    assert pending.save() == [("first", [FenceRef(3, 1)], [ReaderRef(2, "g", 1)])]
    partitions.over |= {2, 3}
    pending.add("third", (), ())
    assert pending.save() == []
