"""Every fault by its name."""

from collections.abc import Mapping

from ..fault import Fault
from .processes import KillLeader, StallLeader

_ALL: tuple[Fault, ...] = (KillLeader(), StallLeader())

CATALOGUE: Mapping[str, Fault] = {fault.name: fault for fault in _ALL}
"""In the order in which they are listed for people."""
