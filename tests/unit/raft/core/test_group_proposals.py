"""What waits in a group: bounded in count and bytes, answered once, never silent."""

from typing import Any

import pytest

from stockade.raft.core.group import Committed, NotLeader, Outcome, Unknown
from stockade.raft.core.pending import EXPIRY_STEP_S, PendingProposal, Proposals, ReadBarrier, ReadBarriers
from stockade.raft.settings import RaftSettings

SETTINGS = RaftSettings(pending_count_max=3, pending_bytes_max=100, entry_bytes_max=50)


class Table(Proposals):
    """Remembers the answers."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)
        self.outcomes: list[Outcome] = []

    def new(self, size: int = 1, deadline: float = 10.0) -> PendingProposal | None:
        return self.accept(size, deadline, self.outcomes.append)


def test_proposals_beyond_the_bound_on_their_number_are_refused() -> None:
    table = Table()
    accepted = [table.new() for _ in range(4)]
    assert [proposal is not None for proposal in accepted] == [True, True, True, False]
    assert accepted[0] is not None
    accepted[0].settle(Unknown(None))
    assert table.new() is not None


@pytest.mark.parametrize(("size", "fits"), [(40, True), (41, False)])
def test_proposals_beyond_the_bound_on_their_bytes_are_refused(size: int, fits: bool) -> None:
    table = Table()
    assert table.new(60) is not None
    assert (table.new(size) is not None) == fits


def test_an_answer_is_given_once() -> None:
    table = Table()
    proposal = table.new()
    assert proposal is not None
    for _ in range(2):
        proposal.settle(Committed(2, 1, None))
    assert table.outcomes == [Committed(2, 1, None)]


def test_a_deadline_that_passes_leaves_the_outcome_unknown_and_names_the_index() -> None:
    table = Table()
    first, second = table.new(deadline=1.0), table.new(deadline=2.0)
    assert first is not None
    assert second is not None
    first.index = 7
    table.expire(0.999)
    assert table.outcomes == []
    table.expire(1.0)
    assert (table.outcomes, table.next_deadline) == ([Unknown(7)], 2.0)


def test_deadlines_that_pass_together_cost_one_look() -> None:
    table = Table()
    table.new(deadline=1.0)
    table.new(deadline=1.001)
    table.expire(1.0)
    assert table.next_deadline == 1.0 + EXPIRY_STEP_S


def test_an_exception_of_a_settle_callback_is_logged_and_not_raised(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Outcome) -> None:
        raise ZeroDivisionError

    proposal = Table().accept(1, 1.0, fail)
    assert proposal is not None
    proposal.settle(Unknown(None))
    assert "failed on its outcome" in caplog.text


class Leadership:
    """As much of a leadership as a barrier looks at."""

    def __init__(self) -> None:
        self.round = 0

    def majority_round(self) -> float:
        return self.round


def barriers(*asked: tuple[int, int, float]) -> tuple[ReadBarriers, Any, list[Exception | None]]:
    """Barriers of one leadership for (round, index, deadline)."""
    table, leading, answers = ReadBarriers(), Leadership(), list[Exception | None]()
    for round_, index, deadline in asked:
        table.add(ReadBarrier(table, leading, round_, index, deadline, answers.append))  # type: ignore[arg-type]
    return table, leading, answers


def test_a_barrier_needs_its_round_and_its_index() -> None:
    table, leading, answers = barriers((5, 10, 1.0), (6, 12, 1.0))
    for round_, applied, passed in [(4, 20, 0), (5, 9, 0), (5, 10, 1), (6, 11, 1), (6, 12, 2)]:
        leading.round = round_
        table.check(leading, applied, NotLeader(None, 1))
        assert answers == [None] * passed


def test_a_barrier_fails_with_its_leadership_even_if_the_node_leads_again() -> None:
    table, _, answers = barriers((1, 1, 1.0))
    refusal = NotLeader("n2", 3)
    table.check(Leadership(), 5, refusal)  # type: ignore[arg-type]
    assert answers == [refusal]


def test_a_barrier_times_out() -> None:
    table, _, answers = barriers((1, 1, 1.0), (1, 1, 2.0))
    table.expire(1.5)
    assert [type(answer) for answer in answers] == [TimeoutError]
    assert table.next_deadline == 2.0
