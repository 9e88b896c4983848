"""The commands of balance: moves that were planned together, the settings of balance, and the choice of controllers.
From feature level 2 on. topology/replica_assignment.py decides them.
"""

from typing import Any

import msgspec

from .timed import Asked


class PlacedMove(msgspec.Struct, frozen=True, array_like=True):
    """One move of a Rebalance: the replicas of a partition go from the nodes ``replicas`` to ``target``."""

    group_id: int
    replicas: list[str]
    target: list[str]


class Rebalance(Asked, frozen=True, tag="rebalance"):
    """Begin all of these moves if each partition is where the command says and does not move; otherwise none of them.
    A repetition is refused: the moves have begun.

    ``if_plan``: the digest of the plan that an operator orders (None: the cluster, or another act, begins the moves),
    and ``plan`` that of the plan as it is now; where they differ, nothing moves. ``leaders`` (topic, partition, from,
    to) are asked to go home afterwards: the command names them for the ledger, and changes nothing about them.

    Answers Arranged, or PlanChanged, NotFound (a node), InvalidRequest.
    """

    moves: list[PlacedMove]
    leaders: list[tuple[str, int, str, str]] = msgspec.field(default_factory=list)
    plan: str = ""
    if_plan: str | None = None

    @property
    def is_ordered(self) -> bool:
        """Whether an operator ordered it: then it is an act of administration, with one entry in the ledger always."""
        return self.if_plan is not None


class SetBalance(Asked, frozen=True, tag="set_balance"):
    """Change those of the BalanceSettings that ``changes`` names. Answers Arranged, or InvalidRequest."""

    changes: dict[str, Any]


class ChooseControllers(Asked, frozen=True, tag="choose_controllers"):
    """Place the controller group on these nodes; None: let the cluster spread it over nodes and zones by itself,
    beginning with the nodes where it is.

    ``if_plan``: only if this is the digest of what changes (None: in any case). Answers Arranged, or NotFound (a node),
    InvalidRequest, PlanChanged.
    """

    node_ids: list[str] | None
    if_plan: str | None = None


BalanceCommand = Rebalance | SetBalance | ChooseControllers
