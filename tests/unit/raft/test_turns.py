"""What the groups of a node do in one turn of the event loop: a bounded time, in the order in which they asked."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from stockade.raft.host import TURN_S, NodeRuntime, RaftSettings


class ByHand:
    """A loop whose clock and turns the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, *_: Any) -> None:
        raise AssertionError("nothing is timed here")

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._due.append(callback)

    def turn(self) -> None:
        due, self._due = self._due, []
        for callback in due:
            callback()


def runtime(loop: ByHand, failures: list[BaseException]) -> NodeRuntime:
    log = SimpleNamespace(wake_when_durable=None)
    transport = SimpleNamespace(speaks=None, is_amid_frame=None, send=None, full_disks=set())
    loop_, log_, transport_ = cast(Any, loop), cast(Any, log), cast(Any, transport)
    return NodeRuntime("n1", 1, loop_, log_, transport_, {}, RaftSettings(), lambda *_: None, failures.append)


def test_callbacks_beyond_the_time_of_a_turn_run_in_the_next_one_in_order() -> None:
    loop, done, failures = ByHand(), list[str](), list[BaseException]()
    node = runtime(loop, failures)

    def work(name: str, takes_s: float, then: Callable[[], None] | None = None) -> None:
        def run() -> None:
            done.append(name)
            loop.now += takes_s
            if then is not None:
                node.call_soon(then)

        node.call_soon(run)

    work("a", 0.4 * TURN_S, lambda: done.append("a again"))
    work("b", 0.7 * TURN_S)
    work("c", 1.5 * TURN_S)
    work("d", 0.0)
    loop.turn()
    assert done == ["a", "b"]
    loop.turn()
    assert done == ["a", "b", "c"]
    loop.turn()
    assert done == ["a", "b", "c", "d", "a again"]
    assert not failures


def test_a_callback_that_raises_is_reported_and_the_others_run() -> None:
    loop, done, failures = ByHand(), list[str](), list[BaseException]()
    node = runtime(loop, failures)

    def fails() -> None:
        raise ValueError("a bug")

    node.call_soon(fails)
    node.call_soon(lambda: done.append("other"))
    loop.turn()
    assert (done, [type(failure) for failure in failures]) == (["other"], [ValueError])
