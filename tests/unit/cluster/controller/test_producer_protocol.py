"""Producer names over real partition machines, with everything that a network and a change of leaders can do to what is
sent between them.

Partitions forget producers, and unused names are forgotten. After every step, of all pairs ever given out,
none is accepted that must not be. At the end, when what is left to do has been done, no message that is still under way
can change that.
"""

from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from memory_log import MemoryLog

from stockade.cluster.controller.commands import Enrol, Enrolled, FenceProducer, ForgetNames, GroupId, ProducerState
from stockade.cluster.controller.ownership.work import ProducerInstall, ProducerWithdrawal
from stockade.cluster.controller.producers import NAME_TTL_MS, PRODUCER_EPOCH_FINAL
from stockade.partition.commands import PRODUCER_EPOCH_MAX, Append, NotEnrolled, Stamp
from stockade.partition.config import PartitionConfig
from stockade.partition.errors import InvalidProducerIdMapping, StockadeError

from ..postal import Postal

WHICH = st.integers(0, 1)
"""A name, or a partition, of two at most."""


class ProducerProtocol(Postal):
    """Instances of two names take over from each other, on two partitions."""

    names: ClassVar = ["w", "v"]
    partitions = 2

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[int, int]] = []
        self.name_of: dict[int, str] = {}
        self.promised: list[ProducerState] = []

    @initialize()
    def begin(self) -> None:
        self.house.topic(partitions=self.partitions)
        self.groups = self.house.machine.catalog.topics()[0].groups()

    @rule(which=WHICH, again=st.booleans())
    def init_producer(self, which: int, again: bool) -> None:
        name = self.names[which % len(self.names)]
        before = self.house.machine.registry.find(name)
        pair = (before.pid, before.epoch) if before is not None and again else None
        answer = self.house.init(name, pair=pair)
        assert isinstance(answer, ProducerState)
        self.pairs.append((answer.pid, answer.epoch))
        assert self.name_of.setdefault(answer.pid, name) == name, "an id was given out again"
        self.promised.append(answer)

    @rule(which=WHICH)
    def rotate_producer(self, which: int) -> None:
        """As if all epochs but the last had been used."""
        for machine in (self.house.machine, self.house.twin):
            row = machine.registry.rows.get(self.names[which % len(self.names)])
            if row is not None and not machine.registry.enrolments.pending([row.pid]):
                row.epoch = max(row.epoch, PRODUCER_EPOCH_MAX)
        self.init_producer(which, again=False)

    @rule(which=WHICH)
    def fence_producer(self, which: int) -> None:
        answer = self.house.do(FenceProducer(now_ms=0, name=self.names[which % len(self.names)]))
        if isinstance(answer, ProducerState):
            self.promised.append(answer)

    @rule(choice=st.integers(0), partition=WHICH, at_once=st.booleans())
    def enrol(self, choice: int, partition: int, at_once: bool) -> None:
        """A partition's leader asks, and installs what it was answered, now or later or never, perhaps twice."""
        if self.pairs:
            pid, _ = self.pairs[choice % len(self.pairs)]
            group = self.groups[partition % len(self.groups)]
            answer = self.house.do(Enrol(now_ms=0, pid=pid, group_id=group))
            if isinstance(answer, Enrolled):
                self.sent.append(ProducerInstall(group, pid, answer.epoch, answer.order))
                if at_once:
                    self.house.tell(self.sent[-1])

    @rule(partition=WHICH, forgets=st.booleans(), at_once=st.booleans())
    def ask_what_was_forgotten(self, partition: int, forgets: bool, at_once: bool) -> None:
        """A partition forgets whom it has not heard of for longest, and is asked, now or some time."""
        machine, group = self.house.machine, self.groups[partition % len(self.groups)]
        producers = self.house.partition(group).producers
        if forgets:
            producers.make_room(max(0, len(producers.entries) - 1))
        enrolments = machine.registry.enrolments
        settled = enrolments.settled_on(group, enrolments.enrolled_on(group))
        if settled:
            work = ProducerWithdrawal(group, settled, machine.applied_index)
            if not at_once:
                self.sent.append(work)
            elif (report := self.house.tell(work)) is not None:
                self.reports.append(report)

    @rule()
    def forget_names(self) -> None:
        """After a time in which they were not used."""
        self.house.now_ms += NAME_TTL_MS
        self.house.do(ForgetNames(now_ms=self.house.now_ms, names=self.names))

    @invariant()
    def whom_a_partition_knows_it_is_told_of(self) -> None:
        for group in self.groups:
            for pid, entry in self.house.partition(group).producers.entries.items():
                if entry.run.epoch != PRODUCER_EPOCH_FINAL:
                    assert group in self.house.machine.registry.enrolments.groups(pid)

    @invariant()
    def a_pair_that_was_given_out_shuts_out_the_older_ones(self) -> None:
        """A pair may be given out when what was pending is installed."""
        for promise in self.promised:
            if all(self.house.machine.registry.enrolments.is_installed(fence) for fence in promise.pending):
                for older in self.pairs:
                    if self.is_of(promise, older[0]) and older < (promise.pid, promise.epoch):
                        for group in self.groups:
                            self.assert_shut_out(group, older)

    def is_of(self, promise: ProducerState, pid: int) -> bool:
        return self.name_of[pid] == promise.name

    def assert_shut_out(self, group: GroupId, pair: tuple[int, int]) -> None:
        verdict = self.house.partition(group).producers.judge(
            Append(b"", 1, 0, 0, 0), Stamp(*pair, 0), PartitionConfig(1), MemoryLog()
        )
        assert isinstance(verdict, NotEnrolled | StockadeError), "an older instance may write"

    def check_settled(self) -> None:
        assert list(self.house.machine.work()) == []
        self.a_pair_that_was_given_out_shuts_out_the_older_ones()
        for pid, epoch in self.pairs:
            now = self.house.machine.registry.find(pid)
            if now is None:
                asked = self.house.do(Enrol(now_ms=0, pid=pid, group_id=self.groups[0]))
                assert asked == InvalidProducerIdMapping(), "a forgotten name's id is taken for another's"
            if now is None or (pid, epoch) != (now.pid, now.epoch):
                for group in self.groups:
                    self.assert_shut_out(group, (pid, epoch))


class ForgetfulProtocol(ProducerProtocol):
    """One name on one partition: what must not be forgotten is forgotten in few steps, if it can be."""

    names: ClassVar = ["w"]
    partitions = 1


TestProducerProtocol = ProducerProtocol.TestCase
TestProducerProtocol.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestForgetfulProtocol = ForgetfulProtocol.TestCase
TestForgetfulProtocol.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
