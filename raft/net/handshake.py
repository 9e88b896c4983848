"""The rules by which a node is admitted as the other end of a connection, and a protocol version is agreed on. tls.py
judges certificates.

The node that dials says hello in the newest version that it speaks, and the other node answers in the same one. A node
that does not know this version refuses it by a text that begins as NOT_SPOKEN does, and is dialled again in the older
version at once. The refusal of protocol 6 had that text already, so a node of the release before this one needs no
change for it. Which of its versions a node accepts follows from the cluster's feature level: once that is raised, the
older version is refused.
"""

import ipaddress
import logging
from collections import Counter
from collections.abc import Container, Sequence
from typing import NamedTuple

from ..messages import Hello
from .codec import PROTOCOL_OLDEST, PROTOCOL_VERSION

_log = logging.getLogger(__name__)

REJECTIONS_MAX = 100
"""Most rejections that are remembered, so that each is logged once."""
STRANGER_CHARS_MAX = 300
"""Most characters of a stranger's text that get into a log."""


NOT_SPOKEN = "it speaks version {} of the protocol"
"""How the refusal of a version begins, in every release: never change it."""


class Accepted(NamedTuple):
    """The oldest version of the protocol that a node accepts of others, and the cluster's feature level, which their
    software must support.
    """

    protocol: int = PROTOCOL_OLDEST
    level: int = 1


def wants_older(reason: str) -> bool:
    """Whether a refusal says that the node does not know PROTOCOL_VERSION: then it may know PROTOCOL_OLDEST."""
    return reason.startswith(NOT_SPOKEN.format(PROTOCOL_VERSION))


def hello_fault(
    hello: Hello,
    mine: Hello,
    dialled: str | None,
    peers: Container[str],
    accepted: Accepted,
    *,
    is_stream: bool,
) -> str | None:
    """The reason to refuse the sender of ``hello`` as the other end of a connection; None: it is admitted.

    ``mine`` is this node's own hello, ``dialled`` the id of the node that this node dialled (None: it was dialled),
    ``peers`` the ids of the nodes that it knows. Of a pair, only the node with the larger id dials, except for a
    stream.
    """
    if (fault := _version_fault(hello, mine, accepted)) is not None:
        return fault
    if hello.cluster_id != mine.cluster_id:
        return f"it belongs to cluster {hello.cluster_id!r}, {mine.node_id} to {mine.cluster_id!r}"
    if dialled is not None and hello.node_id != dialled:
        return f"it is node {hello.node_id!r}, not {dialled!r}"
    if hello.node_id not in peers:
        return f"{mine.node_id} knows no node {hello.node_id!r}: it was removed, or not added yet"
    if dialled is None and not is_stream and hello.node_id <= mine.node_id:
        return f"{hello.node_id!r} must not dial {mine.node_id!r}: of two nodes, the one with the larger id dials"
    return _level_fault(hello, accepted.level)


def _version_fault(hello: Hello, mine: Hello, accepted: Accepted) -> str | None:
    spoken = f"{NOT_SPOKEN.format(hello.version)}, {mine.node_id} speaks "
    if not PROTOCOL_OLDEST <= hello.version <= PROTOCOL_VERSION:
        older = "" if accepted.protocol == PROTOCOL_VERSION else f"{accepted.protocol} to "
        return f"{spoken}{older}{PROTOCOL_VERSION}"
    if hello.version < accepted.protocol:
        return f"{spoken}{PROTOCOL_VERSION}: its software is older than feature level {accepted.level} of the cluster"
    return None


def _level_fault(hello: Hello, level: int) -> str | None:
    software = hello.software
    if software.supports(level):
        return None
    version, supported = printable(software.version), f"the feature levels {software.oldest} to {software.newest}"
    return f"its software ({version or 'unknown'}) supports {supported}, and the cluster has level {level}"


def stranger_to_drop(hosts: Sequence[str], peers: Container[str]) -> int:
    """The index in ``hosts`` of the connection to close when too many have sent no hello. ``hosts`` has the host that
    each such connection comes from, oldest first; ``peers`` are the known hosts of the cluster's nodes.

    The oldest connection of the host with the most goes, so that a newcomer with a hello to send is heard. A host in
    ``peers`` loses a connection only if all of them come from such hosts.
    """
    counts = Counter(host for host in hosts if host not in peers) or Counter(hosts)
    return hosts.index(max(counts, key=counts.__getitem__))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. The only host name that counts as loopback is ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def printable(text: str) -> str:
    """Another node's text, fit for a log: one line of plain characters, STRANGER_CHARS_MAX of them at most."""
    line = text[:STRANGER_CHARS_MAX].encode("unicode_escape").decode()
    return line if len(text) <= STRANGER_CHARS_MAX else line + " ..."


class RejectionLog:
    """Logs each rejection once: a rejected node tries again several times a second."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def add(self, rejection: str) -> None:
        """Log a rejection, unless it was logged since the last ``clear``."""
        if rejection in self._logged:
            return
        if len(self._logged) >= REJECTIONS_MAX:
            self.clear()
        self._logged.add(rejection)
        _log.warning(rejection)

    def clear(self) -> None:
        """Forget all rejections, as a node was admitted: the same rejection after this is news, and logged again."""
        self._logged.clear()
