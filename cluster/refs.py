"""What a partition must be known to have committed before a client is answered. Part of commands' answers."""

import msgspec


class FenceRef(msgspec.Struct, frozen=True):
    """A grant left one partition by this decision; its slot may hold it still (ControllerMachine.is_over tells)."""

    group_id: int
    order: int


class ReaderRef(msgspec.Struct, frozen=True):
    """A fence_epoch of a resource, by which a partition must refuse every older one."""

    group_id: int
    group: str
    fence_epoch: int
