"""A house whose messages to partitions, and reports of them, are lost, repeated, late and out of order, while the
controller's leader changes and is restored from what was captured.
"""

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from stockade.cluster.controller.commands import Command, GroupId
from stockade.cluster.controller.ledger import BeginLedger
from stockade.cluster.controller.ownership.work import Work

from .driver import House


class Postal(RuleBasedStateMachine):
    """What is common: work under way to partitions, and reports under way to the controller."""

    def __init__(self) -> None:
        super().__init__()
        self.house = House()
        self.house.do(BeginLedger(now_ms=0))
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

    @rule(restored=st.booleans())
    def elect(self, restored: bool) -> None:
        """Another leader, perhaps one that begins from a checkpoint. What the last one sent is still under way."""
        if restored:
            self.house.fail_over()
        else:
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
