"""The fence protocol as a game: sessions take partitions and resources from each other in all modes, while messages are
lost, repeated and late, and leaders change (postal.py). A plain second telling of the rules (reference.py) says what
each command must answer.

After every step, of all tokens ever given out, none is accepted that was promised dead. At the end, when what is left
to do has been done, every slot is the controller's; no message still under way changes that; and a session that
still waits gets what it waits for when the others go.
"""

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from stockade.cluster.controller.commands import (
    FenceRef,
    Freed,
    GrantState,
    GroupId,
    Owned,
    ReaderRef,
    SessionEnded,
    TicketState,
    TopicFenced,
)
from stockade.cluster.controller.ownership.grants import Grant, Ticket
from stockade.partition import commands
from stockade.partition.errors import GenerationFenced, InvalidRequest, StockadeError

from .driver import MODES, token_of
from .postal import Postal
from .reference import BAD, Held, Reference, Waiting

PARTITIONS = 2
PARTITIONS_MAX = 4
SESSIONS = ["a", "b", "c", "d"]
RESOURCES = ["t/0", "t/1", "x"]
TTL_MS = 5_000

sessions = st.sampled_from(SESSIONS)


class Protocol(Postal):
    """``given``: every grant there ever was. ``dead``: (partition, grant id) that may write no more."""

    def __init__(self) -> None:
        super().__init__()
        self.reference = Reference([0] * PARTITIONS)
        self.given: dict[str, GrantState] = {}
        self.dead: set[tuple[GroupId, str]] = set()
        self.promises: list[tuple[Callable[[], bool], set[tuple[GroupId, str]]]] = []
        self.readers: list[tuple[Callable[[], bool], ReaderRef]] = []
        self.places: dict[GroupId, tuple[int, int]] = {}
        self.house.topic(partitions=PARTITIONS)
        self.open_all()

    def open_all(self) -> None:
        for session in SESSIONS:
            self.house.open(session, TTL_MS)

    @property
    def groups_now(self) -> list[GroupId]:
        return self.house.machine.catalog.topics()[0].groups()

    @rule(
        session=sessions,
        name=st.sampled_from(["p", "q"]),
        wanted=st.none() | st.sets(st.integers(0, PARTITIONS - 1), min_size=1),
        mode=st.sampled_from([*MODES, "Shared", "WaitForExclusive", "WaitForExclusive"]),
        resume=st.sampled_from([None, None, None, 0, 1, 2]),
    )
    def acquire(self, session: str, name: str, wanted: set[int] | None, mode: str, resume: int | None) -> None:
        """``resume``: how far behind the highest epoch of the set."""
        epochs = self.house.epochs()
        places = range(len(epochs)) if wanted is None else wanted
        resume_epoch = None if resume is None else max(0, max(epochs[place] for place in places) - resume)
        answer = self.house.acquire(
            session, None if wanted is None else sorted(wanted), mode, name=name, resume=resume_epoch
        )
        expected = self.reference.acquire(session, name, wanted, mode, resume_epoch)
        assert told(answer) == told(expected)

    @rule(choice=st.integers(0))
    def release(self, choice: int) -> None:
        grants = list(self.house.machine.slots.grants.by_id.values())
        if grants:
            grant = grants[choice % len(grants)]
            places = set(grant.partitions)
            self.note_freed(self.house.release(grant.session, grant.grant_id), {grant.grant_id})
            self.reference.end(grant.session, places, grant.producer_name, grant.mode)

    @rule(session=sessions)
    def close(self, session: str) -> None:
        held = {grant.grant_id for grant in self.house.machine.slots.grants.of_session(session)}
        self.note_freed(self.house.close(session), held)
        self.reference.leave({session})
        self.house.open(session, TTL_MS)

    @rule(session=sessions)
    def cancel(self, session: str) -> None:
        ticket = self.house.machine.slots.queue.by_session.get(session)
        if ticket is not None:
            answer = self.house.cancel(session, ticket.ticket_id)
            assert isinstance(answer, TicketState)
            self.reference.cancel(session)

    @rule(session=sessions)
    def expire_the_others(self, session: str) -> None:
        self.house.tick(self.house.now_ms)  # the first command of a term gives everybody a full ttl
        self.house.now_ms += TTL_MS - 1
        self.close(session)
        self.house.tick(self.house.now_ms + 1)
        self.reference.leave(set(SESSIONS) - {session})
        for machine in (self.house.machine, self.house.twin):
            machine.sessions._expired.clear()  # so that the names can be used again
        self.close(session)  # opened a millisecond before the others, it would expire first in the next round
        self.open_all()

    @rule(partitions=st.none() | st.sets(st.integers(0, PARTITIONS - 1), min_size=1))
    def fence(self, partitions: set[int] | None) -> None:
        answer = self.house.fence(None if partitions is None else sorted(partitions))
        assert isinstance(answer, TopicFenced)
        self.reference.fence(set(range(len(self.reference.epochs))) if partitions is None else partitions)
        self.remember()
        for item in answer.partitions:
            group = self.groups_now[item.partition]
            dead = {(group, grant_id) for grant_id, grant in self.given.items() if grant.grant_index < item.order}
            self.promises.append((self.over([FenceRef(group, item.order)]), dead))

    @rule()
    def calm(self) -> None:
        """For once everything arrives, and what was sent before is still under way."""
        self.house.settle()

    @precondition(lambda self: len(self.reference.epochs) < PARTITIONS_MAX)
    @rule()
    def grow(self) -> None:
        self.house.change(partitions=len(self.reference.epochs) + 1)
        self.reference.grow()

    @rule(session=sessions, resource=st.sampled_from(RESOURCES), ahead=st.sampled_from([None, -1, 0, 1, "reset"]))
    def own(self, session: str, resource: str, ahead: int | str | None) -> None:
        """``ahead``: how far the claim is above the present generation."""
        present = self.house.machine.resources.find("g", resource).generation
        generation = 0 if ahead == "reset" else None if ahead is None else max(1, present + int(ahead))
        answer = self.house.own(session, (resource, generation))
        granted = self.reference.own(session, ("g", resource), generation)
        assert isinstance(answer, Owned if granted else GenerationFenced), answer
        if isinstance(answer, Owned):
            row = self.reference.resources["g", resource]
            assert (answer.verdicts[0].generation, answer.verdicts[0].fence_epoch) == (row.generation, row.fence_epoch)
            self.readers += [(self.installed([ref]), ref) for ref in answer.pending]

    @rule(session=sessions, resource=st.sampled_from(RESOURCES))
    def disown(self, session: str, resource: str) -> None:
        row = self.reference.resources.get(("g", resource))
        answer = self.house.disown(session, resource)
        if row is None or row.owner in (None, session):
            assert isinstance(answer, Owned)
            if row is not None:
                row.owner = None
        else:
            assert isinstance(answer, StockadeError)

    @rule(choice=st.integers(0), partition=st.integers(0, PARTITIONS - 1))
    def append(self, choice: int, partition: int) -> None:
        """With any token there ever was; epochs along the log never fall."""
        group = self.groups_now[partition]
        grants = [grant for grant in self.given.values() if partition in grant.partitions]
        grant = grants[choice % len(grants)] if grants and choice % 7 else None
        answer = self.house.append(grant, partition)
        if isinstance(answer, commands.Appended) and grant is not None:
            assert (group, grant.grant_id) not in self.dead
        machine = self.house.partition(group)
        epochs = [batch.writer_epoch for batch in machine.log.read(0, 1 << 20).batches]
        assert epochs == sorted(epochs), "a writer epoch went down along the offsets"

    @invariant()
    def the_controller_is_what_the_reference_says(self) -> None:
        machine = self.house.machine
        assert self.house.epochs() == self.reference.epochs
        assert sorted(map(told, machine.slots.grants.by_id.values())) == sorted(map(told, self.reference.grants))
        line = machine.slots.queue.of_topic(machine.catalog.topics()[0].topic_id)
        assert list(map(told, line)) == list(map(told, self.reference.line))
        rows = {("g", name): row for name, row in machine.resources.rows.get("g", {}).items()}
        assert {key: (row.owner, row.generation, row.fence_epoch) for key, row in rows.items()} == {
            key: (row.owner, row.generation, row.fence_epoch) for key, row in self.reference.resources.items()
        }

    @invariant()
    def places_never_go_down(self) -> None:
        for group, machine in self.house.partitions.items():
            place = (machine.topic_epoch, machine.fence.grant_index)
            assert place >= self.places.get(group, (0, 0)), "a partition went back in the order of decisions"
            self.places[group] = place

    @invariant()
    def what_was_promised_dead_is_dead(self) -> None:
        self.remember()
        for promise in list(self.promises):
            if promise[0]():
                self.dead |= promise[1]
                self.promises.remove(promise)
        for partition, group in enumerate(self.groups_now):
            holder = self.house.holder(group)
            if holder is not None and self.house.machine.slots.is_in_force(holder.grant_id):
                self.dead |= {(group, grant_id) for grant_id in self.given if grant_id != holder.grant_id}
                assert self.accepts(group, partition, holder.grant_id), "in force, and refused"
                assert self.house.partition(group).fence.judge(None, False) is not None, "a write without a token"
            for grant_id in self.given:
                if (group, grant_id) in self.dead:
                    assert not self.accepts(group, partition, grant_id), "a dead token writes"

    @invariant()
    def whoever_shares_and_is_in_force_writes(self) -> None:
        for grant in self.house.machine.slots.grants.by_id.values():
            if grant.is_shared and not grant.pending:
                for partition, group in zip(grant.partitions, grant.groups(), strict=True):
                    assert self.accepts(group, partition, grant.grant_id)

    @invariant()
    def an_older_owner_reads_no_more_once_the_new_one_was_told(self) -> None:
        for is_told, ref in self.readers:
            if is_told():
                readers = self.house.partition(ref.group_id).readers
                for fence_epoch in range(ref.fence_epoch):
                    assert readers.judge(ref.group, fence_epoch) is not None, "a fenced reader reads"

    def remember(self) -> None:
        for grant_id in self.house.machine.slots.grants.by_id:
            grant = self.house.grant(grant_id)
            assert grant is not None
            self.given[grant_id] = grant

    def note_freed(self, answer: object, grants: set[str]) -> None:
        assert isinstance(answer, Freed)
        dead = {(group, grant_id) for group in self.groups_now for grant_id in grants}
        self.promises.append((self.over(answer.fences), dead))

    def over(self, fences: list[FenceRef]) -> Callable[[], bool]:
        return lambda: all(self.house.machine.is_over(fence) for fence in fences)

    def installed(self, refs: list[ReaderRef]) -> Callable[[], bool]:
        return lambda: all(self.house.machine.reader_fences.is_installed(ref) for ref in refs)

    def accepts(self, group: GroupId, partition: int, grant_id: str) -> bool:
        grant = self.given[grant_id]
        if partition not in grant.partitions:
            return False
        return self.house.partition(group).fence.judge(token_of(grant, partition), False) is None

    def check_settled(self) -> None:
        machine = self.house.machine
        assert list(machine.work()) == []
        self.what_was_promised_dead_is_dead()
        # A rule that a broken protocol ends half way leaves the two apart; the teardown runs all the same.
        assert len(self.groups_now) == len(self.reference.epochs), "a partition that the reference does not know"
        for partition, group in enumerate(self.groups_now):
            here = {grant.grant_id for grant in machine.slots.grants.on(group)}
            accepted = {grant_id for grant_id in self.given if self.accepts(group, partition, grant_id)}
            assert accepted == here
            fence = self.house.partition(group).fence
            assert fence.topic_epoch == self.reference.epochs[partition] or not fence.grant_index
            row = self.reference.resources.get(("g", f"t/{partition}"))
            if row is not None:
                refusal = self.house.partition(group).readers.judge("g", row.fence_epoch)
                assert (refusal is None) == (row.owner is not None)

    def teardown(self) -> None:
        super().teardown()
        self.everybody_who_waits_gets_there()

    def everybody_who_waits_gets_there(self) -> None:
        machine = self.house.machine
        while machine.slots.queue.of_topic(machine.catalog.topics()[0].topic_id):
            holder = next(iter(machine.slots.grants.by_id.values()), None)
            assert holder is not None, "a session waits, and none holds anything"
            self.house.release(holder.session, holder.grant_id)


def told(answer: object) -> tuple[object, ...]:  # noqa: PLR0911 (a line for each kind)
    """What matters of an answer: of the machine's and of the reference's alike."""
    match answer:
        case Held():
            return "grant", answer.session, answer.name, sorted(answer.places), answer.mode, answer.epoch or 0
        case GrantState() | Grant():
            mode, epoch = answer.mode, answer.epoch or 0
            return "grant", answer.session, answer.producer_name, sorted(answer.partitions), mode, epoch
        case Waiting():
            return "ticket", answer.session, sorted(answer.places)
        case TicketState() | Ticket():
            return "ticket", answer.session, sorted(answer.partitions)
        case InvalidRequest():
            return (BAD,)
        case StockadeError():
            return (answer.code,)
        case _:
            return (answer,)


class OperatedProtocol(Protocol):
    """With an operator who ends sessions."""

    @rule(session=sessions)
    def fence_session(self, session: str) -> None:
        held = {grant.grant_id for grant in self.house.machine.slots.grants.of_session(session)}
        owned = len(self.house.machine.resources.owned_by(session))
        answer = self.house.fence_session(session, if_grants=sorted(held), if_resources=owned)
        self.note_freed(answer, held)
        assert isinstance(answer, SessionEnded)
        assert (set(answer.grants), answer.resources) == (held, owned)
        self.reference.leave({session})
        for machine in (self.house.machine, self.house.twin):
            machine.sessions._expired.clear()  # so that the name can be used again
        self.house.open(session, TTL_MS)
