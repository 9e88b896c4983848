"""Every workload by its name."""

from collections.abc import Mapping

from .append import Append, Rush
from .group import Group
from .owning import Owning
from .protocol import Workload
from .slots import Slots
from .storm import Storm
from .takeover import TakeOver
from .upkeep import CatchUp, Membership, RollingRestart

_ALL: tuple[Workload, ...] = (
    Append(),
    Slots(),
    Owning(),
    Storm(),
    TakeOver(),
    CatchUp(),
    Group(),
    RollingRestart(),
    Membership(),
    Rush(),
)

WORKLOADS: Mapping[str, Workload] = {workload.name: workload for workload in _ALL}
"""All workloads by name, in the order of the lists that users see."""

BY_NAME_ONLY = frozenset({Rush.name})
"""Left out of ``all``, because they would leave no room for others. A soak gives them runs of their own."""
