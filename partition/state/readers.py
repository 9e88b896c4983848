"""Consumer groups on one partition: the owner that guarded reads need, and positions (SEMANTICS 5.5, 5.10).

The controller decides which session owns the partition as a resource; the partition judges guarded requests by the
fence_epoch that was installed here, which never goes down.
"""

import msgspec

from ..commands import (
    CommitPosition,
    InstallReader,
    Offset,
    PositionCommitted,
    ReaderInstalled,
    belongs_to_another,
)
from ..errors import NotOwner, OffsetOutOfRange, PermissionDenied, StockadeError, ThrottlingQuotaExceeded

GROUPS_MAX = 10_000
"""Most groups that may have a position on one partition."""


class Reader(msgspec.Struct, frozen=True, array_like=True):
    """A group's fence on the partition: its epoch, whether the partition has an owner in the group, and the owner's
    principal.
    """

    fence_epoch: int
    owned: bool
    principal: str = ""


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a group continues: the next offset to read, and metadata of the group's own."""

    offset: Offset
    metadata: str | None


class Readers:
    """Fences and positions, by group."""

    def __init__(self) -> None:
        self.fences: dict[str, Reader] = {}
        self.positions: dict[str, Position] = {}

    def install(self, command: InstallReader) -> ReaderInstalled:
        """Raise a group's fence. A late install changes nothing."""
        known = self.fences.get(command.group, Reader(0, False))
        # Within one epoch the install with an owner comes first, then the one without.
        if (command.fence_epoch, not command.owned) > (known.fence_epoch, not known.owned):
            known = self.fences[command.group] = Reader(command.fence_epoch, command.owned, command.principal)
        return ReaderInstalled(known.fence_epoch)

    def judge(self, group: str, fence_epoch: int | None, principal: str = "") -> NotOwner | PermissionDenied | None:
        """The refusal of a request that only the owner of the partition in this group may make; None accepts it."""
        known = self.fences.get(group, Reader(0, False))
        if known.owned and known.fence_epoch == fence_epoch:
            if belongs_to_another(known.principal, principal):
                return PermissionDenied(f"another principal owns the partition in group {group}")
            return None
        return NotOwner(fence_epoch=known.fence_epoch, group=group)

    def commit(self, command: CommitPosition, log_start: Offset, log_end: Offset) -> PositionCommitted | StockadeError:
        """Remember a position, or forget it. Only for a group that never owned the partition the command may lack a
        fence_epoch.
        """
        group = command.group
        is_guarded = group in self.fences or command.fence_epoch is not None
        refusal = self.judge(group, command.fence_epoch, command.principal) if is_guarded else None
        if refusal is not None:
            return refusal
        if command.offset is None:
            self.positions.pop(group, None)
            return PositionCommitted()
        if command.offset > log_end:
            return OffsetOutOfRange(command.offset, log_start, log_end)
        if group not in self.positions and len(self.positions) >= GROUPS_MAX:
            return ThrottlingQuotaExceeded(
                f"{GROUPS_MAX} groups have a position on this partition already", retry_after_ms=60_000
            )
        self.positions[group] = Position(command.offset, command.metadata)
        return PositionCommitted()
