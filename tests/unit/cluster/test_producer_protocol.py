"""Producer names over real partition machines, with everything that a network and a change of leaders can do to what is
sent between them.

After every step, of all pairs ever given out, none is accepted that must not be. At the end, when what is left to do
has been done, no message that is still under way can change that.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from stockade.cluster.commands import Enrol, Enrolled, FenceProducer, GroupId, ProducerState
from stockade.cluster.work import InstallProducerWork
from stockade.partition.commands import PRODUCER_EPOCH_MAX, NotEnrolled, Stamp
from stockade.partition.errors import StockadeError

from .postal import Postal

PARTITIONS = 2
NAMES = ["w", "v"]


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


TestProducerProtocol = ProducerProtocol.TestCase
TestProducerProtocol.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
