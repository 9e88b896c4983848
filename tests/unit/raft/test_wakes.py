"""Who is called when the disk has moved on."""

from stockade.raft.wakes import Wakes


def test_whoever_waits_is_called_once_when_its_records_are_on_disk() -> None:
    wakes, called = Wakes(), []
    first, second = (lambda: called.append(1)), (lambda: called.append(2))
    wakes.add(first, 3)
    wakes.add(second, 5)
    wakes.call(2)
    assert called == []
    wakes.call(3)
    assert called == [1]
    wakes.call(9)
    wakes.call(9)
    assert called == [1, 2]


def test_whoever_waits_already_is_called_for_what_it_waited_for_first() -> None:
    wakes, called = Wakes(), []
    wake = lambda: called.append(1)  # noqa: E731
    wakes.add(wake, 3)
    wakes.add(wake, 5)
    wakes.call(3)
    assert called == [1]


def test_whoever_is_called_may_wait_again() -> None:
    wakes, called = Wakes(), []

    def wake() -> None:
        called.append(1)
        wakes.add(wake, 5)

    wakes.add(wake, 3)
    wakes.call(4)
    wakes.call(4)
    assert called == [1]
    wakes.call(5)
    assert called == [1, 1]
