"""Every workload by its name."""

from collections.abc import Mapping

from .append import Append
from .group import Group
from .owning import Owning
from .protocol import Workload
from .rush import Rush
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
"""Not meant by ``all``: with them there would be room for nothing else."""
