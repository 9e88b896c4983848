"""The controller's machine and real partition machines, with everything that a network and a change of
leaders can do to what is sent between them: lost, repeated, late, out of order, and from leaders of the past.

After every step, of all tokens and pairs ever given out, none is accepted that must not be. At the end, when
what is left to do has been done, every slot is the controller's; and no message that is still under way can
change that.
"""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stockade.cluster.commands import (
    Command,
    Enrol,
    Enrolled,
    FenceProducer,
    FenceRef,
    Freed,
    GrantState,
    GroupId,
    ProducerState,
)
from stockade.cluster.work import InstallProducerWork, Work
from stockade.partition.commands import PRODUCER_EPOCH_MAX, NotEnrolled, Stamp
from stockade.partition.errors import StockadeError

from .driver import EXCLUSIVE_MODES, House, token_of

PARTITIONS = 2
SESSIONS = ["a", "b", "c"]
TTL_MS = 5_000
NAMES = ["w", "v"]


class Postal(RuleBasedStateMachine):
    """What is common: work under way to partitions, and reports under way to the controller."""

    def __init__(self) -> None:
        super().__init__()
        self.house = House()
        self.groups: list[GroupId] = []
        self.sent: list[Work] = []
        self.reports: list[Command] = []

    @rule(choice=st.integers(0))
    def send(self, choice: int) -> None:
        """A leader begins a step; whether it still leads when the step arrives does not matter."""
        work = list(self.house.machine.work())
        if work:
            self.sent.append(work[choice % len(work)])

    @rule(choice=st.integers(0), repeated=st.booleans(), answer_lost=st.booleans())
    def deliver(self, choice: int, repeated: bool, answer_lost: bool) -> None:
        if self.sent:
            work = self.sent[choice % len(self.sent)]
            if not repeated:
                self.sent.remove(work)
            report = self.house.tell(work)
            if report is not None and not answer_lost:
                self.reports.append(report)

    @rule(choice=st.integers(0), repeated=st.booleans())
    def report(self, choice: int, repeated: bool) -> None:
        if self.reports:
            report = self.reports[choice % len(self.reports)]
            if not repeated:
                self.reports.remove(report)
            self.house.do(report)

    @rule()
    def elect(self) -> None:
        self.house.term += 1

    def teardown(self) -> None:
        self.house.settle()
        self.check_settled()
        late = random.Random(len(self.sent))
        for _ in range(2):
            for work in late.sample(self.sent, len(self.sent)):
                self.house.tell(work)
            for report in late.sample(self.reports, len(self.reports)):
                self.house.do(report)
        self.check_settled()

    def check_settled(self) -> None:
        raise NotImplementedError


class FenceProtocol(Postal):
    """Sessions take grants from each other on two partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, GrantState] = {}
        self.freed: list[FenceRef] = []
        self.places: dict[GroupId, tuple[int, int]] = {}

    @initialize()
    def begin(self) -> None:
        self.house.topic(partitions=PARTITIONS)
        self.groups = self.house.machine.topics()[0].groups()
        for session in SESSIONS:
            self.house.open(session, TTL_MS)

    @rule(
        session=st.sampled_from(SESSIONS),
        partitions=st.sets(st.integers(0, PARTITIONS - 1), min_size=1),
        mode=st.sampled_from(EXCLUSIVE_MODES),
        resume=st.booleans(),
    )
    def acquire(self, session: str, partitions: set[int], mode: str, resume: bool) -> None:
        epochs = self.house.epochs()
        resume_epoch = max(epochs[partition] for partition in partitions) if resume else None
        answer = self.house.acquire(session, sorted(partitions), mode, resume=resume_epoch)
        if isinstance(answer, GrantState):
            self.given[answer.grant_id] = answer

    @rule(choice=st.integers(0))
    def release(self, choice: int) -> None:
        grants = list(self.house.machine.ownership.grants.by_id.values())
        if grants:
            grant = grants[choice % len(grants)]
            self.note_freed(self.house.release(grant.session, grant.grant_id))

    @rule(session=st.sampled_from(SESSIONS))
    def close(self, session: str) -> None:
        self.note_freed(self.house.close(session))
        self.house.open(session, TTL_MS)

    def note_freed(self, answer: object) -> None:
        assert isinstance(answer, Freed)
        self.freed += answer.fences

    @rule(session=st.sampled_from(SESSIONS))
    def expire_the_others(self, session: str) -> None:
        self.house.now_ms += TTL_MS - 1
        self.house.close(session)
        self.house.open(session, TTL_MS)
        self.house.tick(self.house.now_ms + 1)
        for machine in (self.house.machine, self.house.twin):
            machine.sessions._expired.clear()  # so that the names can be used again
        for other in SESSIONS:
            self.house.open(other, TTL_MS)

    @invariant()
    def places_never_go_down(self) -> None:
        for group, machine in self.house.partitions.items():
            place = (machine.topic_epoch, machine.fence.grant_index)
            assert place >= self.places.get(group, (0, 0)), "a partition went back in the order of grants"
            self.places[group] = place

    @invariant()
    def only_the_holder_writes_once_its_grant_is_in_force(self) -> None:
        for grant_id in self.house.machine.ownership.grants.by_id:
            grant = self.house.machine.grant(grant_id)
            assert grant is not None
            self.given.setdefault(grant_id, grant)
        for partition, group in enumerate(self.groups):
            holder = self.house.machine.holder(group)
            if holder is None or not self.house.machine.is_in_force(holder.grant_id):
                continue
            accepted = {grant_id for grant_id in self.given if self.accepts(group, partition, grant_id)}
            assert accepted == {holder.grant_id}
            assert self.house.partition(group).fence.judge(None, False) is not None, "a write without a token"

    @invariant()
    def a_grant_that_is_over_writes_no_more(self) -> None:
        for fence in self.freed:
            if self.house.machine.is_over(fence):
                partition = self.groups.index(fence.group_id)
                for grant in self.given.values():
                    if grant.grant_index < fence.order:
                        assert not self.accepts(fence.group_id, partition, grant.grant_id)

    def accepts(self, group: GroupId, partition: int, grant_id: str) -> bool:
        grant = self.given[grant_id]
        return (
            partition in grant.partitions
            and self.house.partition(group).fence.judge(token_of(grant, partition), False) is None
        )

    def check_settled(self) -> None:
        assert list(self.house.machine.work()) == []
        self.only_the_holder_writes_once_its_grant_is_in_force()
        for partition, group in enumerate(self.groups):
            holder = self.house.machine.holder(group)
            slot = self.house.partition(group).slot
            assert (slot.grant_id if slot else None) == (holder.grant_id if holder else None)
            assert self.house.partition(group).topic_epoch == self.house.epochs()[partition]


class ProducerProtocol(Postal):
    """Instances of two names take over from each other, on two partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[int, int]] = []
        self.promised: list[ProducerState] = []

    @initialize()
    def begin(self) -> None:
        self.house.topic(partitions=PARTITIONS)
        self.groups = self.house.machine.topics()[0].groups()

    @rule(name=st.sampled_from(NAMES), again=st.booleans())
    def init_producer(self, name: str, again: bool) -> None:
        before = self.house.machine.producer(name)
        pair = (before.pid, before.epoch) if before is not None and again else None
        answer = self.house.init(name, pair=pair)
        assert isinstance(answer, ProducerState)
        self.pairs.append((answer.pid, answer.epoch))
        self.promised.append(answer)

    @rule(name=st.sampled_from(NAMES))
    def rotate_producer(self, name: str) -> None:
        """As if all epochs but the last had been used."""
        for machine in (self.house.machine, self.house.twin):
            row = machine.registry.rows.get(name)
            if row is not None and not machine.registry.enrolments.pending([row.pid]):
                row.epoch = max(row.epoch, PRODUCER_EPOCH_MAX)
        self.init_producer(name, again=False)

    @rule(name=st.sampled_from(NAMES))
    def fence_producer(self, name: str) -> None:
        answer = self.house.do(FenceProducer(now_ms=0, name=name))
        if isinstance(answer, ProducerState):
            self.promised.append(answer)

    @rule(choice=st.integers(0), partition=st.integers(0, PARTITIONS - 1))
    def enrol(self, choice: int, partition: int) -> None:
        """A partition's leader asks, and will install what it was answered, some time or never."""
        if self.pairs:
            pid, _ = self.pairs[choice % len(self.pairs)]
            group = self.groups[partition]
            answer = self.house.do(Enrol(now_ms=0, pid=pid, group_id=group))
            if isinstance(answer, Enrolled):
                self.sent.append(InstallProducerWork(group, pid, answer.epoch, answer.order))

    @invariant()
    def a_pair_that_was_given_out_shuts_out_the_older_ones(self) -> None:
        """A pair may be given out when what was pending is installed."""
        for promise in self.promised:
            if all(self.house.machine.is_installed(fence) for fence in promise.pending):
                for older in self.pairs:
                    if self.is_of(promise, older[0]) and older < (promise.pid, promise.epoch):
                        for group in self.groups:
                            self.assert_shut_out(group, older)

    def is_of(self, promise: ProducerState, pid: int) -> bool:
        row = self.house.machine.registry.by_pid(pid)
        return row is not None and row.name == promise.name

    def assert_shut_out(self, group: GroupId, pair: tuple[int, int]) -> None:
        verdict = self.house.partition(group).producers.judge(Stamp(*pair, 0), 1, False, (0, 0))
        assert isinstance(verdict, NotEnrolled | StockadeError), "an older instance may write"

    def check_settled(self) -> None:
        assert list(self.house.machine.work()) == []
        self.a_pair_that_was_given_out_shuts_out_the_older_ones()
        for pid, epoch in self.pairs:
            now = self.house.machine.producer_by_pid(pid)
            assert now is not None
            if (pid, epoch) != (now.pid, now.epoch):
                for group in self.groups:
                    self.assert_shut_out(group, (pid, epoch))


TestFenceProtocol = FenceProtocol.TestCase
TestFenceProtocol.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
TestProducerProtocol = ProducerProtocol.TestCase
TestProducerProtocol.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
