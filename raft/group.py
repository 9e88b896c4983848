"""One Raft group on this node, as the floors above use it: propose, read, change members, hand over, checkpoint.

Everything here asks something of the replica, and answers when it has come true or cannot any more.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

from ..partition.switches import has_defect
from .configuration import AddLearner, ChangeRefused, Refused, RemoveMember
from .machine import CheckpointedMachine
from .origin import Captured, Installable, Origin
from .outcomes import Committed, NotLeader, Outcome, Overloaded, Rejected, Unknown
from .proposals import Barrier, Handover, PendingProposal
from .replica import Replica

_READS_ALONE = has_defect("stale-reads")

__all__ = ["ChangeRefused", "Committed", "Group", "NotLeader", "Outcome", "Overloaded", "Rejected", "Unknown"]


class Group(Replica):
    """A replica of one group, and what can be asked of it."""

    async def propose(self, command: bytes, timeout_s: float) -> Outcome:
        """Append ``command`` to the replicated log and wait until it is applied here.

        Proposals that arrive in one turn of the loop share one message a follower and one disk sync. Returns:

        - Committed: durable on a majority, applied here; its result is the machine's answer (a refusal, too).
        - Rejected: this node does not lead; surely not appended.
        - Overloaded: beyond ``pending_count_max`` or ``pending_bytes_max``, or the disk is far behind; surely not
          appended.
        - Unknown: the deadline passed, leadership was lost or the group closed while the command was under way.

        Raises ValueError for a command longer than ``entry_bytes_max``. Cancelling the wait does not withdraw the
        command.
        """
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.submit(command, timeout_s, lambda outcome: None if future.done() else future.set_result(outcome))
        return await future

    def submit(self, command: bytes, timeout_s: float, settle: Callable[[Outcome], None]) -> None:
        """Like ``propose``; ``settle`` is called with the outcome, exactly once."""
        if len(command) > self._settings.entry_bytes_max:
            raise ValueError(f"a command of {len(command)} bytes exceeds {self._settings.entry_bytes_max}")
        proposal = self._admit(len(command), timeout_s, settle)
        if proposal is not None:
            self._member.propose(command, proposal)
            self._schedule()

    def _admit(self, size: int, timeout_s: float, settle: Callable[[Outcome], None]) -> PendingProposal | None:
        """Take in a proposal of ``size`` bytes; None if it was answered at once."""
        if self._is_stopped or not self.is_leader:
            settle(Rejected(self.leader, self.term))
            return None
        proposal = None
        if not self._around.log_is_full():
            proposal = self._proposals.add(size, self._around.time() + timeout_s, settle)
        if proposal is None:
            settle(Overloaded())
        return proposal

    async def read_barrier(self, timeout_s: float) -> None:
        """Return when a read of the machine here is linearizable.

        That is: a round of messages begun after the call proved to a majority that this node leads its term, and
        everything committed at the call, including an entry of this term, is applied here. Barriers called in one turn
        of the loop share a round. Raises NotLeader (at once, or when leadership is lost meanwhile) or TimeoutError.
        """
        future: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.submit_barrier(timeout_s, lambda error: None if future.done() else future.set_result(error))
        error = await future
        if error is not None:
            raise error

    def submit_barrier(self, timeout_s: float, settle: Callable[[Exception | None], None]) -> None:
        """Like ``read_barrier``; ``settle`` is called with None or the exception, exactly once."""
        leading = self._member.leading
        if self._is_stopped or leading is None:
            settle(NotLeader(self.leader, self.term))
            return
        if _READS_ALONE:
            settle(None)
            return
        index = max(self.commit_index, leading.no_op_index)
        deadline = self._around.time() + timeout_s
        self._barriers.add(Barrier(leading, self._member.want_round(), index, deadline, settle))
        self._schedule()

    async def change(self, change: AddLearner | RemoveMember, timeout_s: float) -> Outcome | ChangeRefused:
        """Change the members, and wait until that is committed and applied here.

        The result of Committed is the Configuration. A learner becomes a voter by itself once it has caught up; a voter
        whose disk was wiped becomes a learner by itself. One change at a time: ChangeRefused, with nothing begun, while
        another one is not committed, before the leader has committed anything of its term, while it hands over, if the
        change makes no sense, or if no majority of the new voters is connected. Otherwise the outcomes of ``propose``.
        """
        future: asyncio.Future[Outcome | ChangeRefused] = asyncio.get_running_loop().create_future()
        self.submit_change(change, timeout_s, lambda it: None if future.done() else future.set_result(it))
        return await future

    def submit_change(
        self,
        change: AddLearner | RemoveMember,
        timeout_s: float,
        settle: Callable[[Outcome | ChangeRefused], None],
    ) -> None:
        """Like ``change``; ``settle`` is called with the outcome, exactly once."""
        proposal = self._admit(0, timeout_s, settle)
        if proposal is not None:
            try:
                self._member.change(change, proposal)
            except Refused as refusal:
                self._proposals.remove(proposal)
                settle(ChangeRefused(str(refusal)))
            else:
                self._schedule()

    async def transfer(self, node_id: str | None, timeout_s: float) -> None:
        """Hand the leadership to a voter, or to the one that is furthest. Returns when it leads.

        What is proposed while it takes in the last entries waits, and is rejected when it leads. Raises NotLeader if
        this node does not lead or another one takes over, ValueError if it is no other voter, TimeoutError if it did
        not get to lead in time: then this node goes on leading, as far as it can.
        """
        future: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.submit_transfer(node_id, timeout_s, lambda error: None if future.done() else future.set_result(error))
        error = await future
        if error is not None:
            raise error

    def submit_transfer(
        self, node_id: str | None, timeout_s: float, settle: Callable[[Exception | None], None]
    ) -> None:
        """Like ``transfer``; ``settle`` is called with None or the exception, exactly once."""
        if self._is_stopped or not self.is_leader:
            settle(NotLeader(self.leader, self.term))
            return
        try:
            self._member.hand_over(node_id)
        except ValueError as error:
            settle(error)
            return
        self._handovers.waiting.append(Handover(node_id, self.term, self._around.time() + timeout_s, settle))
        self._schedule()

    def step_down(self) -> None:
        """Stop leading, and ask the follower that is furthest to take over. Does nothing on a node that does not lead.

        Proposals under way end as Unknown, barriers as NotLeader.
        """
        self._run(self._member.step_down)

    # Checkpoints.

    def capture(self) -> Captured | None:
        """The machine's image after the last apply, and its place in the log.

        None while the configuration there is not known, as on a node that joins and has only begun to catch up.
        """
        journal, index = self._member.journal, self.applied_index
        configuration = journal.configuration_at(index)
        if not configuration.voters:
            return None
        image = cast(CheckpointedMachine, self._machine).capture()
        return Captured(index, journal.term_at(index), configuration, image)

    def checkpointed(self, index: int) -> None:
        """A checkpoint of what was captured at ``index`` is on disk: followers that lack older entries are offered it.

        The entries up to there may be dropped from now on, with ``Journal.compact``.
        """
        self._member.journal.checkpointed(index)

    def install(self, checkpoint: Installable, directory: Path) -> bool:
        """Take the state of a checkpoint of another node, all of which is on disk here, its files in ``directory``.

        False if nothing in it is new here: nothing has changed then. What the machine raises stops the node.
        """
        machine = cast(CheckpointedMachine, self._machine)
        origin = Origin(checkpoint.index, checkpoint.term, checkpoint.configuration)
        installed = False

        def install() -> None:
            nonlocal installed
            installed = self._member.install(
                origin, lambda: machine.restore(directory, checkpoint.state, checkpoint.files)
            )

        self._run(install)
        return installed
