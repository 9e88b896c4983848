"""Raft groups as this node serves them: leaders, the leader's lease clock, proposals, barriers, leadership transfers;
and calls to the leader of a group on another node.

Outcomes become answers and refusals here, the same for partitions and the controller.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar

from ..partition import commands as partition_commands
from ..partition.errors import (
    LeaderNotAvailable,
    NotEnoughReplicas,
    NotFound,
    NotLeaderOrFollower,
    RequestTimedOut,
    StockadeError,
    ThrottlingQuotaExceeded,
)
from ..raft.core.group import Committed, Group, NotLeader, Outcome, Overloaded, Rejected, Unknown
from ..raft.host import RaftHost
from ..raft.net.rpc import CallFailed
from . import rpc
from .controller import commands as controller_commands
from .controller.topology.catalog import CONTROLLER_GROUP
from .features import Features
from .model import Leader
from .rpc import Message

TRANSFER_S_MAX = 3.0
"""Time that a leadership transfer may take. Writers wait an election timeout at most if the transferee stands still."""
RETRY_PAUSE_S = 0.05
"""Pause between two rounds over the replicas of a group that has no leader."""

Watch = Callable[[float, float, float], None]
"""Called when a command has its outcome, with three times in seconds on the loop's clock: of its proposal, of the
beginning of the run of applies that followed its commit (its entry is then on the disks of a majority), and of the end
of that run.
"""
WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)
"""The watch of the request that this task works on; None: the request is not traced."""


class ServedGroup:
    """A group of which this node holds a replica. Replica and ControllerGroup are its two kinds."""

    def __init__(
        self,
        group: Group,
        features: Features,
        urls: Mapping[str | None, str],
        timeout_s: float,
        retry_after_ms: int,
    ) -> None:
        """``features`` says which commands may be proposed; ``urls`` has the base URL of each node that is known now;
        ``timeout_s`` bounds every call; what was not proposed because the log is full may be tried again after
        ``retry_after_ms``.
        """
        self.features: Features = features
        self.group: Group = group
        self.timeout_s: float = timeout_s
        self._urls = urls
        self._retry_after_ms = retry_after_ms
        self._monotonic = time.monotonic  # as it is now: it may be that of a loop with virtual time
        self._clock_start: tuple[int, int, float] = (-1, 0, 0.0)  # term, replicated clock at its start, own time then

    @property
    def replicated_ms(self) -> int:
        """The lease clock as the machine has applied it, in ms."""
        raise NotImplementedError

    def now_ms(self) -> int:
        """The lease clock in ms, to stamp commands (SEMANTICS 8): only the leader reads it; replicas use the stamps.

        ``now = where the replicated clock stood when this node's term began + this node's own time since``: the clock
        stands still while no node leads, which costs the holders of leases nothing.
        """
        term, replicated_ms = self.group.term, self.replicated_ms
        start_term, start_ms, start_s = self._clock_start
        now_s = self._monotonic()
        now_ms = start_ms + int((now_s - start_s) * 1000)
        # A leader that has not applied the entries before its term does not know yet where the clock stood.
        if term != start_term or now_ms < replicated_ms:
            now_ms = replicated_ms
            self._clock_start = term, now_ms, now_s
        return now_ms

    def leader(self) -> Leader:
        """The leader of the group, as far as this node knows."""
        group = self.group
        return Leader(group.leader, self._urls.get(group.leader), group.term)

    def not_leading(self) -> NotLeaderOrFollower:
        """The refusal that sends the caller to the leader."""
        leader = self.leader()
        return NotLeaderOrFollower(leader.url, leader.term if leader.url else None)

    async def answer_to(self, command: bytes, timeout_s: float) -> object:
        """Propose a command; returns the machine's answer.

        Raises the refusal that the machine answers, NotLeaderOrFollower, ThrottlingQuotaExceeded, RequestTimedOut.
        """
        watch = WATCH.get()
        outcome = await (
            self.group.propose(command, timeout_s) if watch is None else self._watched(command, timeout_s, watch)
        )
        found = outcome.result if isinstance(outcome, Committed) else self.undecided(outcome)
        if isinstance(found, StockadeError):
            raise found
        return found

    async def _watched(self, command: bytes, timeout_s: float, watch: Watch) -> Outcome:
        """Propose a command, and call ``watch`` with the times of its commit and its apply, if there were such."""
        loop, group = asyncio.get_running_loop(), self.group
        proposed_s, decided = loop.time(), loop.create_future()

        def settle(outcome: Outcome) -> None:
            if isinstance(outcome, Committed):
                watch(proposed_s, group.apply_began, loop.time())
            if not decided.done():
                decided.set_result(outcome)

        group.submit(command, timeout_s, settle)
        outcome: Outcome = await decided
        return outcome

    def undecided(self, outcome: Rejected | Unknown | Overloaded) -> StockadeError:
        """The refusal for a command that the machine did not answer: not proposed, or of unknown outcome."""
        if isinstance(outcome, Rejected):
            return self.not_leading()
        if isinstance(outcome, Unknown):
            return RequestTimedOut(raft_index=outcome.index)
        return ThrottlingQuotaExceeded(retry_after_ms=self._retry_after_ms)

    async def barrier(self) -> None:
        """Return when a read of the machine is linearizable. Raises NotLeaderOrFollower, LeaderNotAvailable."""
        try:
            await self.group.read_barrier(self.timeout_s)
        except NotLeader as error:
            raise self.not_leading() from error
        except TimeoutError as error:
            raise LeaderNotAvailable("no majority confirmed that this node leads") from error

    async def transfer_leadership(self, node_id: str | None) -> Leader:
        """Transfer the leadership to a voter (None: any other); returns the leader when it is that voter.

        Raises NotFound (no voter), NotEnoughReplicas (there is no other), RequestTimedOut, NotLeaderOrFollower.
        """
        group = self.group
        if not group.is_leader:
            raise self.not_leading()
        if group.leader != node_id:
            try:
                await group.transfer(node_id, min(self.timeout_s, TRANSFER_S_MAX))
            except NotLeader as error:  # another one took over, perhaps because this node gave the leadership up
                raise self.not_leading().had_effects() from error
            except ValueError as error:
                if node_id is None:
                    raise NotEnoughReplicas(str(error)) from error
                raise NotFound(f"{node_id} holds no replica that may lead", what="node") from error
            except TimeoutError as error:
                raise RequestTimedOut("the other replica was not elected in time") from error
        return self.leader()


async def transfer_leaderships(leaving: Sequence[tuple[Group, str | None]]) -> list[Group]:
    """Transfer the leadership of each group to a voter (None: any other); returns the groups that those lead then.
    Takes TRANSFER_S_MAX at most. A group that this node keeps elects a leader when this node is gone.
    """
    transfers = (group.transfer(heir, TRANSFER_S_MAX) for group, heir in leaving)
    outcomes = await asyncio.gather(*transfers, return_exceptions=True)
    return [group for (group, _), failure in zip(leaving, outcomes, strict=True) if failure is None]


class Router:
    """Calls to other nodes, and proposals to the leader of a group wherever it is: here, or one call away.

    Only commands whose outcome is settled by their group pass here (fences, enrolment). A command that was surely not
    proposed is tried again elsewhere until the deadline; one whose outcome is unknown never is: the caller decides,
    knowing its command.
    """

    def __init__(self, node_id: str, host: RaftHost) -> None:
        """``node_id`` is this node."""
        self._node_id = node_id
        self._host = host

    async def ask(self, node_id: str, message: Message, timeout_s: float) -> Message:
        """Call another node. Raises ConnectionError when the call surely did not leave, TimeoutError when unknown."""
        try:
            return rpc.decode(await self._host.call(node_id, rpc.encode(message), timeout_s))
        except CallFailed as error:
            # How far the other node came before it failed is not known here.
            raise TimeoutError(f"{node_id} failed to answer: {error}") from error

    async def propose(self, group_id: int, voters: Sequence[str], command: bytes, timeout_s: float) -> bytes:
        """Propose a command to a group's leader; returns the machine's answer, encoded. Raises LeaderNotAvailable (it
        was not proposed) or RequestTimedOut (its outcome is unknown).
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        hint: str | None = None
        while (remaining := deadline - loop.time()) > 0:
            group = self._host.groups.get(group_id)
            likely = hint or (group.leader if group is not None else None)
            for node_id in sorted(voters, key=lambda node_id: node_id != likely):
                try:
                    if node_id == self._node_id:
                        answer = await self.propose_here(group_id, command, remaining)
                    else:
                        request = rpc.Propose(group_id, command, int(remaining * 1000))
                        answer = await self.ask(node_id, request, remaining)
                except TimeoutError as error:
                    raise RequestTimedOut(f"{node_id} did not answer") from error
                except ConnectionError:  # the call surely did not leave
                    answer = rpc.NotLeading(None)
                match answer:
                    case rpc.Proposed(result):
                        return result
                    case rpc.NotLeading(leader):
                        hint = leader
                    case _:
                        raise RequestTimedOut()
            await asyncio.sleep(RETRY_PAUSE_S)
        raise LeaderNotAvailable(f"group {group_id} has no leader")

    async def decide(
        self, controllers: Sequence[str], command: controller_commands.Command, timeout_s: float
    ) -> controller_commands.Result:
        """Propose a command to the controller group; returns its answer. The command has ``now_ms`` 0: only the group's
        leader knows the lease clock. Raises the refusal, LeaderNotAvailable, RequestTimedOut.
        """
        data = controller_commands.encode_command(command)
        result = controller_commands.decode_result(await self.propose(CONTROLLER_GROUP, controllers, data, timeout_s))
        if isinstance(result, StockadeError):
            raise result
        return result

    async def propose_here(self, group_id: int, command: bytes, timeout_s: float) -> Message:
        """Propose to a group of this node, for a node that asked; returns the message to answer with."""
        group = self._host.groups.get(group_id)
        if group is None:
            return rpc.NotLeading(None)
        if not group.is_leader:
            return rpc.NotLeading(group.leader)
        outcome = await group.propose(command, timeout_s)
        if isinstance(outcome, Committed):
            codec = controller_commands if group_id == CONTROLLER_GROUP else partition_commands
            return rpc.Proposed(codec.encode_result(outcome.result))
        if isinstance(outcome, Unknown):
            return rpc.OutcomeUnknown()
        return rpc.NotLeading(group.leader)
