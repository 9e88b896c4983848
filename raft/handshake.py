"""Who is admitted as the other end of a connection between nodes. Pure; certificates are tls.py's."""

from collections.abc import Container

from .messages import Hello

COMPLAINTS_MAX = 100
"""Complaints remembered so that each is logged once."""


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


class Complaints:
    """Tells new complaints from those made already: a refused node tries again several times a second."""

    def __init__(self) -> None:
        self._made: set[str] = set()

    def is_new(self, complaint: str) -> bool:
        """Whether it was not made since the last ``clear``."""
        if complaint in self._made:
            return False
        if len(self._made) >= COMPLAINTS_MAX:
            self.clear()
        self._made.add(complaint)
        return True

    def clear(self) -> None:
        """Something changed for the better: what is wrong after this is worth telling again."""
        self._made.clear()
