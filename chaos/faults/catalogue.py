"""Every fault by its name."""

from collections.abc import Mapping

from ..fault import Fault
from .partitions import PARTITION_FAULTS
from .processes import PROCESS_FAULTS
from .proxied import PROXY_FAULTS

_ALL: tuple[Fault, ...] = (*PROCESS_FAULTS, *PROXY_FAULTS, *PARTITION_FAULTS)

CATALOGUE: Mapping[str, Fault] = {fault.name: fault for fault in _ALL}
"""In the order in which they are listed for people."""
