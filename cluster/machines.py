"""A machine that runs several nodes: their names, ports and zone follow from one member of the configuration. Pure.

Node k of machine ``a``, counted from 1, is ``a.k``; its ports are the machine's plus k - 1; its zone is the machine
unless one is configured, so that no two replicas of a partition are on one machine while there are zones enough.
"""

from collections.abc import Iterator, Sequence

import msgspec

PROCESSES_MAX = 64
"""Node processes of one machine."""
PORT_MAX = 65535
_WILDCARDS = {"0.0.0.0", "::", "[::]"}  # compared, not listened on  # noqa: S104  # nosec B104


class Member(msgspec.Struct, frozen=True):
    """A node as the others reach it: base URL of its HTTP interface, host:port of its Raft port, its zone.

    With ``processes`` it is a machine of so many nodes, and the ports are those of its first one.
    """

    node_id: str
    url: str
    raft: str
    zone: str | None = None
    processes: int | None = None

    def nodes(self, processes: int | None) -> "list[Member]":
        """The nodes of a machine: so many as the member says, or else ``processes``. A member for which neither says a
        number is a node, and is returned as it is.
        """
        count = processes if self.processes is None else self.processes
        if count is None:
            return [self]
        zone = self.node_id if self.zone is None else self.zone
        return [
            Member(node_name(self.node_id, k), shifted(self.url, k), shifted(self.raft, k), zone)
            for k in range(1, count + 1)
        ]


def node_name(machine: str, number: int) -> str:
    """The node id of a machine's node; the first one is 1."""
    return f"{machine}.{number}"


def shifted(address: str, number: int) -> str:
    """The address (one that ends with a port) of a machine's node; the first one has the machine's own."""
    before, _, port = address.rpartition(":")
    return f"{before}:{int(port) + number - 1}"


def port_of(address: str) -> int | None:
    """The port with which an address or a base URL ends; None: it names none."""
    port = address.rpartition(":")[2]
    return int(port) if port.isascii() and port.isdigit() else None


def count_faults(where: str, processes: int | None) -> Iterator[str]:
    """The faults of a number of processes."""
    if processes is not None and not 1 <= processes <= PROCESSES_MAX:
        yield f"{where}: 1 to {PROCESSES_MAX}, not {processes}"


def member_faults(member: Member, processes: int | None) -> Iterator[str]:
    """Why a member cannot be a machine, of ``processes`` nodes unless the member says another number."""
    count = processes if member.processes is None else member.processes
    if count is None:
        return
    if 1 <= count <= PROCESSES_MAX:
        yield from port_faults(f"members: url of {member.node_id}", member.url, count)
        yield from port_faults(f"members: raft of {member.node_id}", member.raft, count)
    else:
        yield from count_faults(f"members: processes of {member.node_id}", count)


def port_faults(where: str, address: str, processes: int) -> Iterator[str]:
    """Why an address cannot be that of the first of ``processes`` nodes, which listen on consecutive ports."""
    first = port_of(address)
    if first is None:
        yield f"{where}: {address} names no port, and {processes} processes need consecutive ones"
    elif first + processes - 1 > PORT_MAX:
        last = first + processes - 1
        yield f"{where}: {processes} processes from port {first} on need ports up to {last}; the last one is {PORT_MAX}"


def listening_faults(http: str, raft_listen: str, processes: int) -> Iterator[str]:
    """Why a machine's nodes cannot listen there."""
    own = [(name, address) for name, address in (("http", http), ("raft_listen", raft_listen)) if port_of(address)]
    for name, address in own:
        yield from port_faults(name, address, processes)
    if len(own) == 2 and _meet(_host(http), _host(raft_listen)):
        first, second = int(port_of(http) or 0), int(port_of(raft_listen) or 0)
        if abs(first - second) < processes:
            ranges = f"{first} to {first + processes - 1} and {second} to {second + processes - 1}"
            yield f"http, raft_listen: {processes} processes take the ports {ranges}, which overlap"


def sharing_faults(nodes: Sequence[Member]) -> Iterator[str]:
    """Nodes that would be reached under one and the same address; one fault for each pair of machines."""
    owners: dict[str, tuple[str, str]] = {}
    told: set[tuple[str, str]] = set()
    for node in nodes:
        for what, address in (("url", node.url.partition("://")[2]), ("raft", node.raft)):
            owner, kind = owners.setdefault(address, (node.node_id, what))
            pair = (owner.rpartition(".")[0], node.node_id.rpartition(".")[0])
            if (owner, kind) != (node.node_id, what) and pair not in told:
                told.add(pair)
                yield f"members: {address} is {kind} of {owner} and {what} of {node.node_id}"


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _meet(host: str, other: str) -> bool:
    """Whether one port cannot be listened on at both hosts, since they are equal or one is a wildcard."""
    return host == other or not _WILDCARDS.isdisjoint((host, other))
