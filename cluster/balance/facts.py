"""The facts from which a plan is made, and the plan. Safety never rests on them: figures may be old, and each move is
checked where it is decided and where it is carried out.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

Bar = Literal["leaving", "announced", "away", "unstable", "slow", "full"]
"""Why a node gets no replicas: it is being removed; it has never come; it does not answer; it has answered, or has run,
for too short a time; its disk syncs slowly; its disk has too little room. All but the last bar leaders, too.
"""


Hold = Literal["away", "unstable", "version"]
"""Why a node holds up all moves that no operator orders: it does not answer, it has answered or has run for too short a
time, or it runs other software than most nodes. So a restart, an upgrade and an outage move nothing.
"""


class Disk(msgspec.Struct, frozen=True):
    """A node's disk. ``soft_free_bytes``: with less free, the node takes no appends. ``is_ok``: it takes them now."""

    free_bytes: int
    total_bytes: int
    soft_free_bytes: int
    is_ok: bool = True


class NodeFacts(msgspec.Struct, frozen=True):
    """A node. ``zone`` None: a zone of its own. ``bar`` None: no bar is known but, perhaps, a full disk. ``disk`` None:
    not known. ``is_given_up``: it has been away for so long that the others do not wait for it. ``version`` of its
    software; None: not known.
    """

    node_id: str
    zone: str | None
    disk: Disk | None
    bar: Bar | None = None
    is_given_up: bool = False
    version: str | None = None


class PartitionFacts(msgspec.Struct, frozen=True):
    """A partition. ``replicas``: its nodes (while it moves: those of the target), the home of the leader first.

    ``leader`` and ``stored_bytes`` None: not known. ``behind``: the replicas that could not take over now. ``coming``
    and ``going``: the nodes to which, and from which, a move under way brings replicas.
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
    """Facts of the whole cluster. ``disk_used_percent_max``: replicas leave a disk that is fuller than this."""

    nodes: Sequence[NodeFacts]
    partitions: Sequence[PartitionFacts]
    disk_used_percent_max: int


Why = Literal["disk", "zone", "spread", "home"]
"""Reason of a move: its node's disk is full; two replicas are in one zone and need not be; its node has more replicas
than others; only the order of the replicas changes, so that homes of leaders are spread.
"""


class Move(msgspec.Struct, frozen=True):
    """A group's replicas go from ``replicas`` to ``target``. ``copied_bytes``: the bytes to copy, as of now."""

    group: int
    replicas: Sequence[str]
    target: Sequence[str]
    copied_bytes: int
    why: Why


class Transfer(msgspec.Struct, frozen=True):
    """The leader of a group goes from the node ``leader`` to the node ``home``."""

    group: int
    leader: str
    home: str


class Plan(msgspec.Struct, frozen=True):
    """The plan: ``moves`` in the order in which they are to begin, and ``transfers`` of leaders. ``barred``: the nodes
    that get no replicas, with the reason. ``held``: the nodes that hold up the moves, with the reason; an operator may
    begin the moves all the same. ``is_cut``: a plan cannot hold all that is to be done.
    """

    moves: Sequence[Move]
    transfers: Sequence[Transfer]
    barred: dict[str, Bar]
    held: dict[str, Hold]
    is_cut: bool
