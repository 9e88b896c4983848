"""Exclusive ownership of anything that has a name, as long as a session lives."""

from collections.abc import Awaitable, Callable, Sequence

from ..partition.errors import NotOwner
from .holding import Holding
from .model import Owned, Resource

ASK_AGAIN_S = 0.5
"""Between two claims while somebody else owns it."""


class Ownership(Holding):
    """A resource of a group that a session owns, until ``lost`` is set; then ``error`` says why.

    ``fence_epoch`` is the fencing token for other stores: it grows with every owner. ``generation`` is the one that it
    was claimed under. ``async with owned.guard():`` is work that ends with the ownership.
    """

    def __init__(self, group: str, owned: Owned, release: "Callable[[Ownership], Awaitable[None]]") -> None:
        super().__init__()
        self.group: str = group
        self.resource: str = owned.resource
        self.generation: int = owned.generation
        self.fence_epoch: int = owned.fence_epoch
        self._release = release

    def __repr__(self) -> str:
        state = "owned" if self.error is None else f"lost: {self.error.code}"
        return f"<Ownership: {self.group}/{self.resource}, fence epoch {self.fence_epoch}, {state}>"

    def compare(self, resources: Sequence[Resource]) -> None:
        """What the cluster says of the group may show that somebody else owned it meanwhile."""
        row = next((each for each in resources if each.resource == self.resource), None)
        if row is None or not row.owned or row.fence_epoch != self.fence_epoch:
            now = row.fence_epoch if row is not None else None
            detail = "somebody else owns it, or has owned it since"
            self.lose(NotOwner(detail, fence_epoch=now, resource=self.resource, group=self.group))

    async def release(self) -> None:
        """Give it up: the next one may own it."""
        await self._release(self)
