"""Who is admitted as the other end of a connection between nodes. Certificates are tls.py's."""

import ipaddress
import logging
from collections.abc import Container

from .messages import Hello

_log = logging.getLogger(__name__)

COMPLAINTS_MAX = 100
"""Complaints remembered so that each is logged once."""
STRANGER_CHARS_MAX = 300
"""Characters of a stranger's text that get into a log."""


def fault_of(hello: Hello, mine: Hello, dialled: str | None, peers: Container[str]) -> str | None:
    """Why the sender of ``hello`` is not who should be at the other end of a connection, if so.

    ``mine`` is this node's own hello, ``dialled`` the id of the node it dialled (None: it was dialled), ``peers``
    the ids of the nodes it knows. Of a pair, the node with the larger id dials.
    """
    if hello.version != mine.version:
        return f"it speaks version {hello.version} of the protocol, {mine.node_id} speaks {mine.version}"
    if hello.cluster_id != mine.cluster_id:
        return f"it belongs to cluster {hello.cluster_id!r}, {mine.node_id} to {mine.cluster_id!r}"
    if dialled is not None and hello.node_id != dialled:
        return f"it is node {hello.node_id!r}, not {dialled!r}"
    if hello.node_id not in peers:
        return f"{mine.node_id} knows no node {hello.node_id!r}"
    if dialled is None and hello.node_id <= mine.node_id:
        return f"{hello.node_id!r} must not dial {mine.node_id!r}: of two nodes, the one with the larger id dials"
    return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. Of host names, only ``localhost`` is trusted to be one."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def printable(text: str) -> str:
    """What a stranger said, fit for a log: one line of plain characters, not long."""
    line = text[:STRANGER_CHARS_MAX].encode("unicode_escape").decode()
    return line if len(text) <= STRANGER_CHARS_MAX else line + " ..."


class Complaints:
    """Logs each complaint once: a refused node tries again several times a second."""

    def __init__(self) -> None:
        self._made: set[str] = set()

    def tell(self, complaint: str) -> None:
        """Log it, unless that was done since the last ``clear``."""
        if complaint in self._made:
            return
        if len(self._made) >= COMPLAINTS_MAX:
            self.clear()
        self._made.add(complaint)
        _log.warning(complaint)

    def clear(self) -> None:
        """Something changed for the better: what is wrong after this is worth telling again."""
        self._made.clear()
