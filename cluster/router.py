"""Reaches the leader of a group from any node: here, or with one call over the Raft connection.

Only commands whose outcome is settled by their group pass here (fences, enrolment). A command that was surely not
proposed is tried again elsewhere until the deadline; one whose outcome is unknown never is: the caller decides,
knowing its command.
"""

import asyncio
from collections.abc import Callable, Sequence

from ..partition.errors import LeaderNotAvailable, RequestTimedOut
from ..raft.calls import CallFailed
from ..raft.group import Committed, Group, Unknown
from ..raft.host import RaftHost
from . import messages
from .messages import Message

RETRY_PAUSE_S = 0.05
"""Between two rounds over the replicas of a group that has no leader."""


class Router:
    """Calls to other nodes, and proposals to the leader of a group wherever it is."""

    def __init__(self, node_id: str, host: RaftHost, encode_result: Callable[[int, object], bytes]) -> None:
        """``node_id`` is this node; ``encode_result`` turns what the machine of a group id answered into bytes."""
        self._node_id = node_id
        self._host = host
        self._encode_result = encode_result

    async def ask(self, node_id: str, message: Message, timeout_s: float) -> Message:
        """Call another node. Raises ConnectionError when the call surely did not leave, TimeoutError when unknown."""
        try:
            return messages.decode(await self._host.call(node_id, messages.encode(message), timeout_s))
        except CallFailed as error:
            # How far the other node came before it failed is not known here.
            raise TimeoutError(f"{node_id} failed to answer: {error}") from error

    async def propose(self, group_id: int, voters: Sequence[str], command: bytes, timeout_s: float) -> bytes:
        """Bytes of the machine's answer. Raises LeaderNotAvailable (not proposed) or RequestTimedOut (unknown)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        hint: str | None = None
        while (remaining := deadline - loop.time()) > 0:
            for node_id in _order(hint or self._known_leader(group_id), voters):
                answer = await self._propose_at(node_id, group_id, command, remaining)
                if isinstance(answer, bytes):
                    return answer
                hint = answer
            await asyncio.sleep(RETRY_PAUSE_S)
        raise LeaderNotAvailable(f"group {group_id} has no leader")

    async def propose_here(self, group_id: int, command: bytes, timeout_s: float) -> Message:
        """Propose to a group of this node, for another node that asked."""
        group = self._host.groups.get(group_id)
        if group is None:
            return messages.NotLeading(None)
        if not group.is_leader:
            return messages.NotLeading(group.leader)
        outcome = await group.propose(command, timeout_s)
        if isinstance(outcome, Committed):
            return messages.Proposed(self._encode_result(group_id, outcome.result))
        if isinstance(outcome, Unknown):
            return messages.OutcomeUnknown()
        return messages.NotLeading(group.leader)

    async def _propose_at(self, node_id: str, group_id: int, command: bytes, timeout_s: float) -> bytes | str | None:
        """Bytes of the answer, or the leader's id, if known, when the command was surely not proposed."""
        if node_id == self._node_id:
            answer = await self.propose_here(group_id, command, timeout_s)
        else:
            request = messages.Propose(group_id, command, int(timeout_s * 1000))
            try:
                answer = await self.ask(node_id, request, timeout_s)
            except TimeoutError as error:
                raise RequestTimedOut(f"{node_id} did not answer") from error
            except ConnectionError:
                return None
        match answer:
            case messages.Proposed(result):
                return result
            case messages.NotLeading(leader):
                return leader
            case _:
                raise RequestTimedOut()

    def _known_leader(self, group_id: int) -> str | None:
        group: Group | None = self._host.groups.get(group_id)
        return group.leader if group is not None else None


def _order(first: str | None, voters: Sequence[str]) -> list[str]:
    """The voters, the likely leader first."""
    return sorted(voters, key=lambda node_id: node_id != first)
