"""File descriptors of a node: how many the system allows, and how many of them client connections may use."""

import resource

from ...cluster.config import ConfigError, LimitsSection
from ...http_api.request.connections import ConnectionBounds

DESCRIPTORS_MIN = 512
"""The lowest limit of open files with which a node starts."""
RESERVED_MIN = 256
"""Fewest descriptors that are reserved from client connections: for files of the log, segments and checkpoints, for
connections to other nodes, and for connections that the kernel hands over in one go before the node judges the first.
Of a larger limit a quarter is reserved, because a node holds two files open for each partition. Half of the reserved
ones are for what requests open as well: files of answers, and connections on which nodes forward requests.
DESCRIPTORS_KEPT of the rest are withheld even from the node, so that its log can open files when all others are in use.
"""


def allowed() -> int:
    """How many descriptors a node may have open once ``raise_limit`` has run: the hard limit."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def raise_limit() -> None:
    """Raise the soft limit of open files of this process to its hard limit."""
    hard = allowed()
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def bounds(limits: LimitsSection, descriptors: int) -> ConnectionBounds:
    """The bounds of client connections for a node that may open ``descriptors`` files. Raises ConfigError below
    DESCRIPTORS_MIN.
    """
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
        for_clients + (descriptors - for_clients) // 2,
    )


def said(found: ConnectionBounds, descriptors: int) -> str:
    """The bounds in words, for the log and for ``--check``."""
    return (
        f"at most {found.connections_max} connections of clients, {found.address_connections_max} of one address;"
        f" of its {descriptors} open files {descriptors - found.descriptors_max} are kept for the log"
    )
