from stockade.chaos.history.history import Event, Operation
from stockade.chaos.history.timeline import NS, Outage, Rate, longest_gap_ns, outage, throughput


def op(partition: int, invoked_s: float, ended_s: float | None, count: int = 1) -> Operation:
    invoke = Event(
        i=0,
        t_mono_ns=int(invoked_s * NS),
        process="w",
        type="invoke",
        f="append",
        partition=partition,
        count=count,
    )
    if ended_s is None:
        return Operation(invoke, None)
    return Operation(invoke, Event(i=1, t_mono_ns=int(ended_s * NS), process="w", type="ok", f="append", of=0))


def test_a_gap_lies_between_two_acknowledgements_while_appends_are_open() -> None:
    assert longest_gap_ns([(0, 10), (5, 20), (15, 90), (16, 95)], 30, 100) == 70


def test_a_pause_of_the_writer_is_no_gap() -> None:
    assert longest_gap_ns([(0, 10), (80, 90)], 0, 100) == 10


def test_a_gap_before_the_fault_does_not_count() -> None:
    assert longest_gap_ns([(0, 50), (55, 60), (61, 65)], 52, 100) == 5


def test_a_gap_after_the_window_does_not_count() -> None:
    assert longest_gap_ns([(0, 10), (11, 20), (100, 190)], 5, 90) == 10


def test_an_append_that_waited_from_before_the_fault_counts_from_the_last_acknowledgement() -> None:
    assert longest_gap_ns([(0, 10), (5, 40)], 12, 100) == 30


def test_appends_acknowledged_out_of_order_make_no_gap_of_their_own() -> None:
    assert longest_gap_ns([(0, 30), (1, 10), (2, 20), (3, 40)], 0, 100) == 10


def test_no_acknowledgement_at_all_is_no_figure() -> None:
    assert longest_gap_ns([], 0, 100) == 0


def test_the_outage_of_led_partitions_is_told_apart() -> None:
    found = outage([op(0, 0, 3), op(1, 0, 1), op(2, 0, 2), op(2, 0, None)], [2], 0, 9 * NS)
    assert found == Outage({0: 3.0, 1: 1.0, 2: 2.0}, [2])
    assert (found.worst_s(), found.median_s()) == (3.0, 2.0)
    assert (found.worst_s(led_only=True), found.median_s(led_only=True)) == (2.0, 2.0)


def test_throughput_counts_records_where_they_were_acknowledged() -> None:
    found = throughput([op(0, 1, 1.2, 100), op(0, 1, 1.4, 100), op(0, 1, 2.1, 50), op(0, 1, None, 9)], NS, 0.5)
    assert found == [Rate(0.0, 400.0), Rate(0.5, 0.0), Rate(1.0, 100.0)]
