"""File descriptors of a node: what the system allows it, and how many are left for connections of clients."""

import resource

from ...cluster.config import ConfigError, LimitsSection
from ...http_api.request.connections import ConnectionBounds

DESCRIPTORS_MIN = 512
"""The least limit with which a node starts."""
RESERVED_MIN = 256
"""Descriptors that connections of clients never get, at least: for the files of the log and of segments, checkpoints,
the other nodes, and the connections that the kernel hands over at once before one of them is judged. Of a larger limit
a quarter is reserved: a node with many partitions holds two files open for each. DESCRIPTORS_KEPT of them are held
back even from the node itself, so that its log opens files when all others are in use.
"""


def allowed() -> int:
    """How many descriptors a node may have open, once it has raised its limit."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def raise_limit() -> None:
    """Make the hard limit of this process its limit."""
    hard = allowed()
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def bounds(limits: LimitsSection, descriptors: int) -> ConnectionBounds:
    """How many connections a node with so many descriptors takes. Raises ConfigError if they are too few to run."""
    if descriptors < DESCRIPTORS_MIN:
        raise ConfigError(
            [
                f"open files: the limit is {descriptors}, and a node needs {DESCRIPTORS_MIN}, better 65536"
                " (ulimit -n 65536, or LimitNOFILE=65536 in its unit)"
            ]
        )
    for_clients = descriptors - max(RESERVED_MIN, descriptors // 4)
    return ConnectionBounds(
        min(limits.http_connections_max, for_clients),
        min(limits.http_address_connections_max, for_clients),
        for_clients,
    )


def said(found: ConnectionBounds, descriptors: int) -> str:
    """The bounds, for people."""
    return (
        f"at most {found.connections_max} connections of clients, {found.address_connections_max} of one address;"
        f" of its {descriptors} open files {descriptors - found.descriptors_max} are kept for the log"
    )
