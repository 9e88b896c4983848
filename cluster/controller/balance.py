"""The commands of balance: moves that were planned together, how balance is kept, which nodes are the controllers. From
feature level 2 on. topology/replica_assignment.py decides them.
"""

from typing import Any

import msgspec

from .timed import Asked


class PlacedMove(msgspec.Struct, frozen=True, array_like=True):
    """Of Rebalance: the replicas of a partition go from the nodes ``replicas`` to ``target``."""

    group_id: int
    replicas: list[str]
    target: list[str]


class Rebalance(Asked, frozen=True, tag="rebalance"):
    """Move all of these partitions, each of which is where the command says and does not move; or none of them. The
    same again is refused: it began already.

    Answers Arranged, or PlanChanged, NotFound (a node), InvalidRequest.
    """

    moves: list[PlacedMove]


class SetBalance(Asked, frozen=True, tag="set_balance"):
    """Change those of the BalanceSettings that ``changes`` names. Answers Arranged, or InvalidRequest."""

    changes: dict[str, Any]


class ChooseControllers(Asked, frozen=True, tag="choose_controllers"):
    """The controller group shall be on these nodes; None: on nodes that the cluster spreads by itself, from those on
    which it is.

    ``if_plan``: only if this is the digest of what changes (None: in any case). Answers Arranged, or NotFound (a node),
    InvalidRequest, PlanChanged.
    """

    node_ids: list[str] | None
    if_plan: str | None = None


BalanceCommand = Rebalance | SetBalance | ChooseControllers
