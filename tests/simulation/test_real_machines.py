"""Partition and controller on a simulated Raft, and mistakes in them that must be caught there."""

from collections.abc import Callable
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
from simulation.checker import Violation
from simulation.plan import Plan
from simulation.real_machines import CONTROLLER, PARTITION, RealWorld
from simulation.schedule import Run, run_seed

from stockade.partition.commands import Append, Appended, InstallFence, SlotState, decode_command
from stockade.partition.errors import StockadeError
from stockade.partition.state import snapshot
from stockade.partition.state.fence import Fence
from stockade.partition.state.machine import PartitionMachine
from stockade.partition.state.producers import Producers, Repeated

SEEDS = 150


@pytest.fixture(autouse=True)
def _always_real() -> Any:
    with patch("simulation.schedule.REAL", 1.0):
        yield


def test_the_seeds_store_repeat_and_refuse_appends_and_restore_checkpoints() -> None:
    """Appends are stored, repeated and refused, sessions and grants come and go, checkpoints are restored."""
    answers: set[tuple[int, str]] = set()
    duplicates = captured = 0
    for seed in range(12):
        run = Run(Plan(seed, nodes=3, groups=2))
        run.go()
        assert isinstance(run.world, RealWorld)
        captured += len(run.world.captured)
        for (group_id, _), answer in run.world.results.items():
            answers.add((group_id, type(answer).__name__))
            duplicates += isinstance(answer, Appended) and answer.duplicate
    names = "Appended SlotState ProducerInstalled NotEnrolled ProducerFenced OutOfOrderSequence OffsetMismatch"
    assert {(PARTITION, name) for name in names.split()} <= answers
    assert {(CONTROLLER, name) for name in ["SessionState", "GrantState", "TopicCreated", "Freed"]} <= answers
    assert duplicates > 5
    assert captured > 20


def fence_is_off() -> Any:
    return patch.object(Fence, "judge", lambda *_: None)


def late_installs_are_seated() -> Any:
    def install(fence: Fence, command: InstallFence, log_end: int) -> SlotState:
        fence.slot, fence.topic_epoch, fence.grant_index = command, command.epoch, command.grant_index
        return SlotState(done=True, topic_epoch=fence.topic_epoch)

    return patch.object(Fence, "install", install)


def clears_do_nothing() -> Any:
    """A released, expired or evicted grant goes on to write."""
    return patch.object(Fence, "clear", lambda fence, *_: fence._state(done=True))


def repetitions_are_stored_again() -> Any:
    judge = Producers.judge

    def forgetful(*arguments: Any) -> Any:
        verdict = judge(*arguments)
        return None if isinstance(verdict, Repeated) else verdict

    return patch.object(Producers, "judge", forgetful)


def refused_appends_leave_a_trace() -> Any:
    apply = PartitionMachine.apply

    def careless(machine: PartitionMachine, index: int, term: int, body: bytes) -> Any:
        answer, command = apply(machine, index, term, body), decode_command(body)
        if isinstance(answer, StockadeError) and isinstance(command, Append):
            machine.log.append(command, machine.topic_epoch)
        return answer

    return patch.object(PartitionMachine, "apply", careless)


def checkpoints_forget_the_fence() -> Any:
    put_back = snapshot.put_back

    def forgetful(machine: PartitionMachine, captured: snapshot.State) -> None:
        put_back(machine, captured)
        machine.fence.topic_epoch = 0

    return patch.object(snapshot, "put_back", forgetful)


def replicas_differ() -> Any:
    """Something that no command carries decides."""
    numbers = count()

    def install(_: Producers, *__: Any) -> int:
        return next(numbers)

    return patch.object(Producers, "install", install)


MISTAKES: tuple[Callable[[], Any], ...] = (
    fence_is_off,
    late_installs_are_seated,
    clears_do_nothing,
    repetitions_are_stored_again,
    refused_appends_leave_a_trace,
    checkpoints_forget_the_fence,
    replicas_differ,
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: str(mistake.__name__))
def test_a_broken_machine_is_caught(mistake: Callable[[], Any]) -> None:
    with mistake(), pytest.raises(Violation):
        for seed in range(SEEDS):
            run_seed(seed)
