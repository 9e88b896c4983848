"""The needs of faults: the options with which a fault can strike, and what this machine lacks for them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...chaos.faults import clock
from ...chaos.faults.fault import Fault
from .arena import SETUPS, LocalArena, why_not

NODES, MORE_NODES = 3, 4
"""Nodes of a cluster by default; nodes that the faults of membership need."""


class Needs(NamedTuple):
    """What a fault needs on this machine."""

    options: str
    """Options of `stockade chaos run`."""
    lacks: str | None
    """What this machine lacks for it, with the command that installs it; None if nothing."""


def needs(fault: Fault) -> Needs:
    """What this fault needs, with the first setup of SETUPS in which it can strike."""
    refusals = {setup: _refusal(fault, [setup], MORE_NODES) for setup in SETUPS}
    plain = refusals[SETUPS[0]]
    # If no setup alone allows the fault, take the first one whose refusal differs from that of plain processes: the
    # fault finds there what it needs, and its refusal names what else is missing.
    setup = next((setup for setup, refusal in refusals.items() if refusal is None), None) or next(
        (setup for setup, refusal in refusals.items() if refusal != plain), SETUPS[0]
    )
    options = f"--setup {setup}"
    if refusals[setup] is None and _refusal(fault, [setup], NODES) is not None:
        options = f"--nodes {MORE_NODES}" if setup == SETUPS[0] else f"{options} --nodes {MORE_NODES}"
    return Needs(options, why_not([setup]) or refusals[setup])


def refusal(fault: Fault, setups: Sequence[str], nodes: int) -> str | None:
    """Why this fault cannot strike a cluster of this kind, and what to do; None if it can."""
    if _refusal(fault, setups, nodes) is None:
        return None
    options, lacks = needs(fault)
    return f"{fault.name} needs {options}" + (f", which this machine does not allow: {lacks}" if lacks else "")


def _refusal(fault: Fault, setups: Sequence[str], nodes: int) -> str | None:
    """Why the fault could not strike a cluster that was started with these setups; None if it could."""
    if fault in clock.CLOCK_FAULTS:  # its own check looks at the nodes' processes; here there are none
        return None if "clocks" in setups else "no node was started under libfaketime"
    return fault.why_not(_Planned(setups, nodes))


class _Planned(LocalArena):
    """A cluster that is not started: `why_not` of a fault looks only at which attributes it has."""

    def __init__(self, setups: Sequence[str], nodes: int) -> None:
        there: Any = object()
        self.proxies = there if "toxiproxy" in setups else None
        self.hosts = there if "namespaces" in setups else None
        self.disks = {"n1": there} if "disks" in setups else {}
        self.topics, self.clients = (), {}
        self._by_name = {f"n{k + 1}": there for k in range(nodes)}
