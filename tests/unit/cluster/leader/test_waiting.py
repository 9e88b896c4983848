"""The leader waits for what partitions commit, and asks nodes about them, in one look at each."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.leader.controller_group import ControllerGroup
from stockade.cluster.replica.replica_manager import by_node
from stockade.partition.errors import RequestTimedOut
from stockade.raft.core.group import Group


def control(timeout_s: float) -> ControllerGroup:
    def no_group(_: ControllerMachine) -> Group:
        return None  # type: ignore[return-value]  # nothing here proposes anything

    return ControllerGroup(no_group, {}, timeout_s)


def test_what_was_committed_is_not_looked_at_again() -> None:
    count, looks = 300, 0
    done: set[int] = set()

    def is_done(number: int) -> bool:
        nonlocal looks
        looks += 1
        return number in done

    async def commit_one_after_the_other() -> None:
        group = control(60.0)
        waiting = asyncio.create_task(group.until_all([partial(is_done, number) for number in range(count)], "late"))
        for number in reversed(range(count)):
            await asyncio.sleep(0)
            done.add(number)
            group.changed.notify()
        await waiting

    asyncio.run(commit_one_after_the_other())
    assert looks <= 3 * count


def test_what_is_not_committed_in_time_is_an_unknown_outcome() -> None:
    conditions: list[Callable[[], bool]] = [lambda: True, lambda: False, lambda: True]
    with pytest.raises(RequestTimedOut, match="late"):
        asyncio.run(control(0.0).until_all(conditions, "late"))


def test_each_node_is_asked_about_what_it_holds() -> None:
    assert by_node([(1, ["a", "b"]), (2, ["b"]), (3, [])]) == {"a": [1], "b": [1, 2]}
