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
"""In the order in which they are listed for people."""

BY_NAME_ONLY = frozenset({Rush.name})
"""Left out of ``all``, because they would leave no room for others. A soak gives them runs of their own."""
