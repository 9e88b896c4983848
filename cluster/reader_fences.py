"""Which partitions have to be told who owns them as a resource of a group. Pure state of the controller's machine.

For each partition and group there is at most one thing to tell: the last (fence_epoch, owned). The partition takes
nothing that is older than what it knows, of one epoch having no owner comes after having one; so lost, repeated and
late installs do no harm.
"""

from collections.abc import Iterable

from .commands import GroupId
from .refs import ReaderRef
from .work import InstallReaderWork

Fence = tuple[int, bool]
"""fence_epoch, and whether somebody owns it."""

SavedReaderFences = list[tuple[GroupId, list[tuple[str, Fence]]]]


class ReaderFences:
    """``owed``: by partition, then by group."""

    def __init__(self) -> None:
        self.owed: dict[GroupId, dict[str, Fence]] = {}

    def owe(self, group_id: GroupId, group: str, fence_epoch: int, *, owned: bool) -> None:
        """The partition has to be told."""
        self.owed.setdefault(group_id, {})[group] = (fence_epoch, owned)

    def installed(self, group_id: GroupId, group: str, fence_epoch: int, *, owned: bool) -> None:
        """The partition knows this."""
        owed = self.owed.get(group_id, {})
        if owed.get(group) == (fence_epoch, owned):
            del owed[group]
            if not owed:
                del self.owed[group_id]

    def forget(self, groups: Iterable[GroupId]) -> None:
        """The partitions are no more."""
        for group_id in groups:
            self.owed.pop(group_id, None)

    def is_installed(self, ref: ReaderRef) -> bool:
        """Whether the partition is known to refuse older fence_epochs than this one, or is no more."""
        return ref.group not in self.owed.get(ref.group_id, ())

    def work_on(self, group_id: GroupId) -> list[InstallReaderWork]:
        """What to do on a partition now."""
        return [InstallReaderWork(group_id, group, *fence) for group, fence in self.owed.get(group_id, {}).items()]

    def save(self) -> SavedReaderFences:
        """Everything that decides future answers."""
        return [(group_id, list(owed.items())) for group_id, owed in self.owed.items()]

    def load(self, saved: SavedReaderFences) -> None:
        """Inverse of save, into an empty one."""
        self.owed = {group_id: dict(owed) for group_id, owed in saved}
