"""A follower's side of replication: what its leader has verified of the journal, and which ack it owes."""

from collections.abc import Callable
from typing import Any, Protocol

from .gate import Gate
from .journal import Journal
from .messages import AppendAck, AppendEntries, Offer, RaftMessage
from .ports import Ports


class InvariantBroken(Exception):
    """Something that Raft excludes has happened: a bug, here or on a peer. The node must stop before it spreads."""


class Seat(Protocol):
    """The engine, as far as a follower changes it."""

    @property
    def term(self) -> int: ...  # noqa: D102
    @property
    def leader(self) -> str | None: ...  # noqa: D102
    @property
    def commit_index(self) -> int: ...  # noqa: D102

    def heard_leader(self, node_id: str) -> None:
        """``node_id`` leads the current term and spoke."""
        ...

    def learn_commit(self, known_index: int, leader_index: int) -> None:
        """Entries up to ``known_index`` are committed and verified here; the leader has committed ``leader_index``."""
        ...


class Following:
    """What is verified lives as long as a term: nothing verified by one leader is acknowledged to another."""

    def __init__(self, seat: Seat, journal: Journal, gate: Gate, ports: Ports) -> None:
        self._seat = seat
        self._journal = journal
        self._gate = gate
        self._ports = ports
        self.handlers: dict[type[RaftMessage], Callable[[str, Any], None]] = {
            AppendEntries: self.on_append,
            Offer: self.on_offer,
        }
        self.new_term()

    def new_term(self) -> None:
        """Forget what is verified, and what is owed to the leader of the term before."""
        self.verified_index: int = 0
        """Up to here the journal equals that of the leader of this term. Beyond it there may be anything."""
        self._acked_index = 0
        self._round = 0
        self._owes = False

    def on_append(self, node_id: str, message: AppendEntries) -> None:
        """Entries or a heartbeat. One of an older term is refused, which tells its sender of the newer one.

        Such a refusal names no round: its sender may lead the newer term when it arrives, and count rounds anew.
        """
        if message.term < self._seat.term:
            self._refuse(node_id, self._journal.last_index + 1, round_=0)
            return
        self._seat.heard_leader(node_id)
        commit_index = self._seat.commit_index
        retry_index = self._journal.conflict(message.prev_index, message.prev_term)
        if retry_index is not None:
            if message.prev_index <= commit_index:
                raise InvariantBroken(f"{node_id} contradicts the committed entry {message.prev_index}")
            self._refuse(node_id, max(retry_index, commit_index + 1), message.round)
        elif not (message.entries and self._ports.log_is_full()):
            self._store(message, commit_index)
            known_index = min(message.commit_index, self.verified_index)
            self._seat.learn_commit(known_index, message.commit_index)
            self.acknowledge(beat=not message.entries)

    def on_offer(self, node_id: str, offer: Offer) -> None:
        """What we lack is gone at our leader, which has a checkpoint for us.

        An offer says nothing about our journal, so it commits nothing (D3). It is answered at once, as a heartbeat is:
        with where our committed part ends, so that the leader goes on from there once it can.
        """
        if offer.term < self._seat.term:
            self._refuse(node_id, self._journal.last_index + 1, round_=0)
            return
        self._seat.heard_leader(node_id)
        commit_index = self._seat.commit_index
        self._seat.learn_commit(commit_index, offer.commit_index)
        if offer.index > commit_index:
            self._ports.fetch_checkpoint(node_id, offer.index)
        self._refuse(node_id, commit_index + 1, offer.round)

    def _refuse(self, node_id: str, next_index: int, round_: int) -> None:
        self._gate.post(node_id, AppendAck(self._seat.term, False, next_index, round_))

    def _store(self, message: AppendEntries, commit_index: int) -> None:
        """Take in entries whose predecessor matches. The journal is cut only where an entry really differs (D2)."""
        journal = self._journal
        for due, (index, term, payload) in enumerate(message.entries, message.prev_index + 1):
            if index != due:
                raise InvariantBroken(f"entry {index} where {due} was due")
            if index <= journal.last_index:
                if index < journal.base_index or journal.term_at(index) == term:
                    continue
                if index <= max(commit_index, self.verified_index):
                    raise InvariantBroken(f"the leader contradicts entry {index}, committed up to {commit_index}")
                journal.truncate(index)
            journal.add(payload, index, term)
        known_index = max(journal.base_index, message.prev_index + len(message.entries))
        self.verified_index = max(self.verified_index, known_index)
        self._round = max(self._round, message.round)
        self._owes = True

    def acknowledge(self, *, beat: bool) -> None:
        """Ack what is verified *and* on disk, if that is news; a ``beat`` is answered in any case.

        So one ack answers all the entries that became durable together, and a slow disk silences nobody.
        """
        if not (beat or self._owes):
            return
        durable = min(self.verified_index, self._journal.durable_index)
        complete = durable == self.verified_index
        if not (beat or complete or durable > self._acked_index):
            return
        leader = self._seat.leader
        if leader is not None:
            self._owes = self._owes and not complete
            self._acked_index = durable
            self._gate.post(leader, AppendAck(self._seat.term, True, durable + 1, self._round))
