"""Every fault by its name."""

from collections.abc import Mapping

from .clock import CLOCK_FAULTS
from .corruption import CORRUPTION_FAULTS
from .disks import DISK_FAULTS
from .divergence import DivergentTail
from .fault import Fault
from .membership import MEMBERSHIP_FAULTS
from .partitions import PARTITION_FAULTS
from .processes import PROCESS_FAULTS
from .proxied import PROXY_FAULTS
from .resources import RESOURCE_FAULTS

_ALL: tuple[Fault, ...] = (
    *PROCESS_FAULTS,
    DivergentTail(),
    *PROXY_FAULTS,
    *PARTITION_FAULTS,
    *DISK_FAULTS,
    *CLOCK_FAULTS,
    *CORRUPTION_FAULTS,
    *RESOURCE_FAULTS,
    *MEMBERSHIP_FAULTS,
)

CATALOGUE: Mapping[str, Fault] = {fault.name: fault for fault in _ALL}
"""All faults by name, in the order of the lists that users see."""

DESTRUCTIVE = frozenset(fault.name for fault in CORRUPTION_FAULTS)
"""Faults that destroy data of a node. A cluster survives this on a minority of its nodes, until they have copied the
data again: so at most one of them strikes in a round.
"""
