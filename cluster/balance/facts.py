"""What a plan rests on. Safety never rests on it: figures may be old, and what a plan wants is checked where it is
decided and where it is carried out.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

Bar = Literal["leaving", "announced", "away", "unstable", "slow", "full"]
"""Why a node is given nothing: it is being removed; it has never come; it does not answer; it has answered, or has run,
for too short a time; its disk takes long to sync; its disk has too little room.
"""


Hold = Literal["away", "unstable", "version"]
"""Why replicas move nowhere by themselves, as long as a node is like that: it does not answer, it has answered or has
run for too short a time, it runs other software than the rest. So a restart, an upgrade and an outage move nothing.
"""


class Disk(msgspec.Struct, frozen=True):
    """A node's disk. ``soft_free_bytes``: with less free, the node takes no appends. ``is_ok``: it takes them now."""

    free_bytes: int
    total_bytes: int
    soft_free_bytes: int
    is_ok: bool = True


class NodeFacts(msgspec.Struct, frozen=True):
    """A node. ``zone`` None: a zone of its own. ``bar`` None: there is nothing against it but perhaps its disk, which
    is None while it is not known. ``is_given_up``: it has been away for so long that the others do not wait for it.
    ``version`` of its software; None: not known.
    """

    node_id: str
    zone: str | None
    disk: Disk | None
    bar: Bar | None = None
    is_given_up: bool = False
    version: str | None = None


class PartitionFacts(msgspec.Struct, frozen=True):
    """A partition. ``replicas``: where they are or, while it moves, will be, the home of the leader first.

    ``leader`` and ``stored_bytes`` None: not known. ``behind``: the replicas that could not take over now. ``coming``
    and ``going``: the nodes that a move under way fills and empties.
    """

    group: int
    replicas: Sequence[str]
    leader: str | None
    stored_bytes: int | None
    behind: Sequence[str] = ()
    coming: Sequence[str] = ()
    going: Sequence[str] = ()
    is_moving: bool = False


class Facts(msgspec.Struct, frozen=True):
    """Facts of the whole cluster. ``disk_used_percent_max``: a disk that is fuller than this is relieved."""

    nodes: Sequence[NodeFacts]
    partitions: Sequence[PartitionFacts]
    disk_used_percent_max: int


Why = Literal["disk", "zone", "spread", "home"]
"""Reason of a move: its node's disk is full; two replicas are in one zone and need not be; its node holds more than
others; nothing but the order of the replicas changes, so that homes of leaders are spread.
"""


class Move(msgspec.Struct, frozen=True):
    """A group's replicas go from ``replicas`` to ``target``. ``copied_bytes``: what that copies, as of now."""

    group: int
    replicas: Sequence[str]
    target: Sequence[str]
    copied_bytes: int
    why: Why


class Transfer(msgspec.Struct, frozen=True):
    """The leader of a group goes home."""

    group: int
    leader: str
    home: str


class Plan(msgspec.Struct, frozen=True):
    """``moves`` in the order in which they are to be begun. ``barred``: nodes that are given nothing. ``held``: nodes
    for whose sake none of the moves begins by itself; an operator may begin them. ``is_cut``: there is more to do than
    a plan holds.
    """

    moves: Sequence[Move]
    transfers: Sequence[Transfer]
    barred: dict[str, Bar]
    held: dict[str, Hold]
    is_cut: bool
