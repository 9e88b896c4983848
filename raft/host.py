"""All Raft groups of a node: one log, one transport and one event loop for the lot."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from .group import Group
from .machine import Machine
from .settings import RaftSettings

__all__ = ["RaftHost", "RaftSettings"]

Address = tuple[str, int]


class RaftHost:
    """Opens the node's log, listens to its peers, and runs the groups that are opened in it.

    ``peers`` are the other nodes' Raft addresses by node id (an entry for this node is ignored). ``on_fatal`` is called once,
    on the loop, when this node must stop: a disk error, an exception in a machine's apply, a broken invariant. From then on
    no group accepts anything and nothing more is sent; the process should end.
    """

    groups: dict[int, Group]
    """The open groups by id. Do not change it."""
    on_call: Callable[[str, bytes], Awaitable[bytes]] | None
    """Answers ``call`` of other nodes: (node id, payload) -> payload. Set it before ``start``."""

    def __init__(  # noqa: PLR0913
        self,
        node_id: str,
        cluster_id: str,
        listen: Address,
        peers: Mapping[str, Address],
        data_dir: Path,
        settings: RaftSettings,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        raise NotImplementedError

    @property
    def connected(self) -> set[str]:
        """Ids of the nodes with a live connection."""
        raise NotImplementedError

    async def start(self) -> None:
        """Recover the log, then listen and dial. Raises when the log is damaged or the address is taken."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Close every group (what is under way ends as Unknown), the connections and the log. Idempotent."""
        raise NotImplementedError

    def open_group(self, group_id: int, voters: Sequence[str], machine: Machine) -> Group:
        """Run a replica of a group here. Call it after ``start``; this node must be one of ``voters``.

        What the log holds of the group is applied to ``machine`` (a fresh one) as its leader confirms that it is committed.
        Raises ValueError if the group is open already or this node is no voter.
        """
        raise NotImplementedError

    async def close_group(self, group_id: int, *, erase: bool) -> None:
        """Stop the replica. With ``erase`` its entries and vote are forgotten, durably: only for a group that is gone for good,
        since a voter that forgot its vote may vote twice. Unknown groups are ignored, so it may be repeated.
        """
        raise NotImplementedError

    async def call(self, node_id: str, payload: bytes, timeout_s: float) -> bytes:
        """Ask another node; its ``on_call`` answers. Raises ConnectionError when surely not sent, TimeoutError when unknown."""
        raise NotImplementedError
