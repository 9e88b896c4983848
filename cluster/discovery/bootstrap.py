"""The bootstrap of a new cluster: which disks form the first controller group.

One cluster must never become two: a node with an empty disk may be new, or may have lost everything. So the first of
the configured controllers founds the cluster only when every other one has answered that its disk is new, too; the rest
take over its decision. From then on the founders are on disk, and a node with another disk joins. A node that is
writing a decision down no longer answers that it is new.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ...partition.log.fsutil import write_durably
from ...raft.threads import in_thread
from ...raft.wal.errors import DiskRefused
from ..rpc import Founders, Standing

ASK_AGAIN_S = 0.05
"""Pause between two rounds of questions."""
REMIND_S = 10.0
"""Pause between two log lines about the same missing nodes."""

_log = logging.getLogger(__name__)


class BootstrapNow(msgspec.Struct, frozen=True):
    """This node founds the cluster, with these founders."""

    founders: Founders


class JoinBootstrapped(msgspec.Struct, frozen=True):
    """Another node knows that the cluster is founded, by these founders."""

    founders: Founders


class AwaitMembers(msgspec.Struct, frozen=True):
    """This node cannot decide before these nodes have answered."""

    node_ids: tuple[str, ...]


def decide(
    node_id: str, incarnation: int, controllers: Sequence[str], standings: Mapping[str, Standing]
) -> BootstrapNow | JoinBootstrapped | AwaitMembers:
    """The step of a node with a new disk, given the answers of those other nodes that have answered."""
    for standing in standings.values():
        if standing.state == "founded":
            return JoinBootstrapped(standing.founders)
    first, others = controllers[0], [other for other in controllers if other != node_id]
    if node_id != first:
        return AwaitMembers((first,))
    missing = [other for other in others if other not in standings or standings[other].state != "new"]
    if missing:
        return AwaitMembers(tuple(missing))
    known = {node_id: incarnation} | {other: standings[other].incarnation for other in others}
    return BootstrapNow({controller: known[controller] for controller in controllers})


class Bootstrap:
    """A node's knowledge of the founders, which it keeps in a file. ``waiting_for``: the controllers whose answers it
    lacks.
    """

    def __init__(
        self,
        node_id: str,
        incarnation: int,
        path: Path,
        ask: Callable[[str], Awaitable[Standing | None]],
        *,
        is_member: Callable[[], bool],
    ) -> None:
        """Read the file. ``incarnation``: of this node's disk; ``is_member``: whether the node has a catalog on it;
        ``ask``: asks another node for its standing, None when that node is away. Raises DiskRefused.
        """
        self.incarnation: int = incarnation
        self.waiting_for: tuple[str, ...] = ()
        self.on_founded: Callable[[], None] = lambda: None
        """Called when this node has decided that there is a new cluster."""
        self._node_id = node_id
        self._path = path
        self._ask = ask
        self._is_member = is_member
        self._is_settling = self._is_writing = False
        self._founders: Founders | None = None
        if path.exists():
            try:
                self._founders = msgspec.json.decode(path.read_bytes(), type=Founders)
            except msgspec.DecodeError as error:
                raise DiskRefused(path, f"damaged ({error})") from error
        elif is_member():
            self._founders = {}

    def standing(self) -> Standing:
        """This node's standing, which it answers to other nodes. A member is not new, also if it never had to settle
        and so knows no founders.
        """
        if self._founders is not None:
            return Standing("founded", self.incarnation, self._founders)
        if self._is_member() and not self._is_settling:
            return Standing("founded", self.incarnation)
        return Standing("busy" if self._is_writing else "new", self.incarnation)

    def status(self) -> str | None:
        """The reason why this node waits, for people; None when it does not wait."""
        if not self.waiting_for:
            return None
        return f"waiting for {', '.join(self.waiting_for)} to be sure that this is a new cluster"

    async def settle(self, controllers: Sequence[str], node_ids: Sequence[str]) -> Founders:
        """The founders with which this node opens the controller group, empty if it joins. Waits until the controllers
        on which the decision depends have answered.

        ``controllers`` are the configured ones; ``node_ids`` are all nodes, of which any may know of the cluster.
        """
        reminded = -REMIND_S
        self._is_settling = True
        while self._founders is None:
            standings = await self._ask_all([node_id for node_id in node_ids if node_id != self._node_id])
            match decide(self._node_id, self.incarnation, controllers, standings):
                case BootstrapNow(founders) | JoinBootstrapped(founders) as decision:
                    await self.keep(founders)
                    if isinstance(decision, BootstrapNow):
                        self.on_founded()
                case AwaitMembers(missing):
                    now = asyncio.get_running_loop().time()
                    if missing != self.waiting_for or now - reminded >= REMIND_S:
                        self.waiting_for, reminded = missing, now
                        _log.info("%s", self.status())
                    await asyncio.sleep(ASK_AGAIN_S)
        self._is_settling, self.waiting_for = False, ()
        return self.founders()

    def founders(self) -> Founders:
        """The founders, if this node with this disk is one of them; empty for a node that joins."""
        founders = self._founders or {}
        return founders if founders.get(self._node_id) == self.incarnation else {}

    async def keep(self, founders: Founders) -> None:
        """Write the founders to disk, durably."""
        self._is_writing = True
        await in_thread(write_durably, self._path, msgspec.json.encode(founders))
        self._founders = founders
        self._is_writing = False
        _log.info("the cluster was founded by %s", ", ".join(founders) or "others: this node joins")

    async def _ask_all(self, node_ids: Sequence[str]) -> dict[str, Standing]:
        answers = await asyncio.gather(*map(self._ask, node_ids))
        return {n: answer for n, answer in zip(node_ids, answers, strict=True) if answer is not None}
