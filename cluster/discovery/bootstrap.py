"""How a new cluster begins: which disks form the first controller group.

Two clusters must never come of one: a node with an empty disk may be new, or may have lost everything. So the first of
the configured controllers founds the cluster only when it has heard from every other one that its disk is new, too; the
rest take over what it decided. From then on the founders are on disk, and whoever comes with another disk joins. A
node that is taking over a decision tells nobody any more that it is new.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ..raft.durable import write_durably
from .messages import Founders, Standing

ASK_AGAIN_S = 0.05
"""Between two rounds of questions."""
REMIND_S = 10.0
"""Between two log lines about the same nodes that are missing."""

_log = logging.getLogger(__name__)


class Found(msgspec.Struct, frozen=True):
    """This node decides: these are the founders."""

    founders: Founders


class Adopt(msgspec.Struct, frozen=True):
    """The cluster is founded already."""

    founders: Founders


class WaitFor(msgspec.Struct, frozen=True):
    """Nothing can be known before these nodes have answered."""

    node_ids: tuple[str, ...]


def decide(
    node_id: str, incarnation: int, controllers: Sequence[str], standings: Mapping[str, Standing]
) -> Found | Adopt | WaitFor:
    """What a node with a new disk may do, given what the others answered, as far as they did."""
    for standing in standings.values():
        if standing.state == "founded":
            return Adopt(standing.founders)
    first, others = controllers[0], [other for other in controllers if other != node_id]
    if node_id != first:
        return WaitFor((first,))
    missing = [other for other in others if other not in standings or standings[other].state != "new"]
    if missing:
        return WaitFor(tuple(missing))
    known = {node_id: incarnation} | {other: standings[other].incarnation for other in others}
    return Found({controller: known[controller] for controller in controllers})


class Founding:
    """One node's knowledge of the founders, kept in a file."""

    def __init__(self, node_id: str, path: Path, ask: Callable[[str], Awaitable[Standing | None]]) -> None:
        """``ask`` another node for its standing; None when it is away."""
        self._node_id = node_id
        self._path = path
        self._ask = ask
        self._is_busy = True  # nobody may take this node for new before it has looked
        self._founders: Founders | None = None
        self.incarnation: int = 0
        self.waiting_for: tuple[str, ...] = ()

    def recall(self, incarnation: int, *, is_member: bool) -> None:
        """Read the file; this node's disk has this incarnation now. ``is_member``: it was in a cluster before."""
        self.incarnation = incarnation
        if self._path.exists():
            self._founders = msgspec.json.decode(self._path.read_bytes(), type=Founders)
        elif is_member:
            self._founders = {}
        self._is_busy = False

    def standing(self) -> Standing:
        """For whoever asks."""
        if self._founders is not None:
            return Standing("founded", self.incarnation, self._founders)
        return Standing("busy" if self._is_busy else "new", self.incarnation)

    def status(self) -> str | None:
        """Why this node cannot begin; None when it can."""
        if not self.waiting_for:
            return None
        return f"waiting for {', '.join(self.waiting_for)} to be sure that this is a new cluster"

    async def settle(self, controllers: Sequence[str], everybody: Sequence[str]) -> Founders:
        """The founders with which this node opens the controller group, empty if it joins. Waits for who must be heard.

        ``controllers`` are those configured, ``everybody`` all nodes: any of them may know of the cluster.
        """
        reminded = -REMIND_S
        while self._founders is None:
            standings = await self._ask_all([node_id for node_id in everybody if node_id != self._node_id])
            match decide(self._node_id, self.incarnation, controllers, standings):
                case Found(founders) | Adopt(founders):
                    await self.keep(founders)
                case WaitFor(node_ids):
                    now = asyncio.get_running_loop().time()
                    if node_ids != self.waiting_for or now - reminded >= REMIND_S:
                        self.waiting_for, reminded = node_ids, now
                        _log.info("%s", self.status())
                    await asyncio.sleep(ASK_AGAIN_S)
        self.waiting_for = ()
        return self.founders()

    def founders(self) -> Founders:
        """Empty for a node that joins: it has another disk than the founder of its name, or was none."""
        founders = self._founders or {}
        return founders if founders.get(self._node_id) == self.incarnation else {}

    async def keep(self, founders: Founders) -> None:
        """Write them down, durably."""
        self._is_busy = True
        await asyncio.to_thread(write_durably, self._path, msgspec.json.encode(founders))
        self._founders = founders
        self._is_busy = False
        _log.info("the cluster was founded by %s", ", ".join(founders) or "others: this node joins")

    async def _ask_all(self, node_ids: Sequence[str]) -> dict[str, Standing]:
        answers = await asyncio.gather(*map(self._ask, node_ids))
        return {n: answer for n, answer in zip(node_ids, answers, strict=True) if answer is not None}
