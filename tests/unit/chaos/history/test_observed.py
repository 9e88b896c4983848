"""Aggregates of a history do not depend on the order in which the events of processes came together."""

from stockade.chaos.history.observed import Spans

TIMES = [(0, 10), (5, 20), (18, 30), (25, 40), (41, 50)]


def test_an_acknowledgement_that_a_child_process_tells_late_is_found_at_its_time() -> None:
    """A stalled client writes its event when it is resumed: all that other clients did meanwhile is before it."""
    late = Spans()
    for span in [*TIMES[2:], *TIMES[:2]]:
        late.add(*span)
    assert list(zip(late.invoked, late.ended, strict=True)) == TIMES
    assert late.first_end(15) == 20
    assert late.near(15, 35) == TIMES[:4]
