"""What changes the shape of a group while it works: its members, who leads it, and where its log begins.

Single-server changes (Ongaro's thesis, chapter 4): a configuration is in force as soon as it is in a journal. Two in a
row differ by one voter at most, so their majorities meet. The next one begins only when the last one is committed, so
no leader holds two that are open; and only when the leader has committed an entry of its own term, so that whatever an
earlier leader had begun is settled: it is in our journal, or can no longer be committed.
"""

from collections.abc import Callable
from contextlib import suppress

from .configuration import Change, Refused, changed
from .engine import Engine
from .leading import Leading
from .messages import TimeoutNow
from .origin import Origin
from .ports import Proposal


class Steering(Engine):
    """An engine that changes its members, hands over, and takes in checkpoints."""

    _pushed_at = float("-inf")

    @property
    def changing(self) -> bool:
        """Whether the configuration in force is not known to be committed."""
        return self.journal.configuration_index > self.commit_index

    def change(self, change: Change, proposal: Proposal | None = None) -> None:
        """Put the configuration after ``change`` in force. For a leader only. Raises Refused, with nothing begun."""
        leading = self.leading
        assert leading is not None
        if self.changing:
            raise Refused("another change is under way")
        if self.commit_index < leading.no_op_index:
            raise Refused("the leader has not committed anything of its term yet")
        if leading.heir is not None:
            raise Refused("the leadership is being handed over")
        configuration = changed(self.journal.configuration, change)
        if not self.membership.reaches_majority(configuration):
            raise Refused("it would leave no majority within reach")
        self._append(configuration.entry(), [] if proposal is None else [proposal])
        leading.reconfigure(self._ports.clock())

    def _advance_commit(self, leading: Leading) -> None:
        """With what is committed known, see whether members have to be changed."""
        super()._advance_commit(leading)
        change = None if leading.is_settled or self.changing else leading.next_change()
        if change is not None:
            with suppress(Refused):  # not yet, then: it is looked at again after every event
                self.change(change)

    def _leave(self) -> None:
        """A leader that is no voter any more leads until that is committed and applied, without counting itself."""
        if self.leading is None or self.leading.is_settled:
            return
        if self.applied_index >= self.journal.configuration_index and not self.membership.is_voter:
            self.step_down()

    # Handing over.

    def hand_over(self, node_id: str | None) -> str:
        """Begin to hand over to a voter, or the one that is furthest; answers its id. For a leader only.

        Until it leads, what is proposed from when it has nearly caught up waits. Raises ValueError if it is no other
        voter.
        """
        leading = self.leading
        assert leading is not None
        if node_id is None:
            furthest = leading.furthest()
            node_id = None if furthest is None else furthest.node_id
        if node_id not in self.membership.others:
            raise ValueError(f"{node_id} is no voter to hand over to" if node_id else "no other voter is connected")
        leading.heir = node_id
        self._pushed_at = float("-inf")
        return node_id

    def keep_leading(self) -> None:
        """The handover took too long: what was held goes on."""
        if self.leading is not None:
            self.leading.heir = None

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """While the heir takes in the last entries, no new ones are added; the queue waits."""
        leading = self.leading
        if leading is None or leading.heir is None or not leading.heir_is_near():
            super()._checkCommandsToApply()

    def _push_heir(self) -> None:
        """Tell the heir, once it has everything, to campaign; again after a heartbeat, as messages can be lost.

        Everything must be applied here, too: what this node had still to answer would end with its leadership.
        """
        leading, now = self.leading, self._ports.clock()
        if leading is None or leading.heir is None or now < self._pushed_at + self.settings.heartbeat_ms / 1000:
            return
        heir = leading.followers.get(leading.heir)
        if heir is not None and heir.match_index == self.applied_index == self.journal.last_index:
            self._pushed_at = now
            self._gate.post(heir.node_id, TimeoutNow(self.term))

    def step_down(self) -> None:
        """Stop leading; the follower that is furthest is asked to take over."""
        if self.leading is not None:
            heir = self.leading.furthest()
            if heir is not None:
                self._gate.post(heir.node_id, TimeoutNow(self.term))
            self._follow(self.term, None)

    # Where the log begins.

    def install(self, origin: Origin, restore: Callable[[], None]) -> bool:
        """Take the state of a checkpoint that is on disk, by ``restore``; False if nothing in it is new here.

        It is committed, so everything up to it is. A leader has it all and needs nothing.
        """
        if origin.index <= self.commit_index or self.leading is not None:
            return False
        restore()
        if origin.term > self.term:  # whoever leads an older one may contradict what is committed in it
            self._follow(origin.term, None)
        self.journal.install(origin)
        self._SyncObj__raftCommitIndex = self._SyncObj__raftLastApplied = origin.index
        return True
