"""The invariants notice what they are there to notice."""

from collections.abc import Callable

import pytest
from memory_log import MemoryLog
from msgspec.structs import replace

from stockade.partition.state.invariants import check
from stockade.partition.state.machine import PartitionMachine
from stockade.partition.state.producers import Entry, SequenceRun

from ..driver import ANONYMOUS, NAMED, OTHER_ANONYMOUS, Driver


def working() -> PartitionMachine:
    driver = Driver(max_producers=5)
    for pid in (NAMED, ANONYMOUS, OTHER_ANONYMOUS):
        driver.now_ms += 1
        driver.enrol(pid)
        for sequence in range(3):
            driver.send(pid, 0, sequence)
    driver.enrol(NAMED, 1)
    driver.seat(1, 2)
    return driver.machine


def memory(machine: PartitionMachine) -> MemoryLog:
    assert isinstance(machine.log, MemoryLog)
    return machine.log


def lose_a_batch(machine: PartitionMachine) -> None:
    del memory(machine).batches[4]


def damage_a_message(machine: PartitionMachine) -> None:
    memory(machine)._messages[0] = b"other"


def lower_the_epoch(machine: PartitionMachine) -> None:
    machine.fence.topic_epoch = 1


def forget_the_order_of_grants(machine: PartitionMachine) -> None:
    machine.fence.grant_index = 9


def write_with_a_later_epoch(machine: PartitionMachine) -> None:
    batches = memory(machine).batches
    batches[2] = replace(batches[2], writer_epoch=7)


def repeat_a_sequence(machine: PartitionMachine) -> None:
    batches = memory(machine).batches
    batches[1] = replace(batches[1], stamp=batches[0].stamp)


def touch_without_using(machine: PartitionMachine) -> None:
    machine.producers.entries.move_to_end(ANONYMOUS)


def exceed_the_cap(machine: PartitionMachine) -> None:
    machine.config = replace(machine.config, max_producers=2)


def count_wrongly(machine: PartitionMachine) -> None:
    set_run(machine, lambda run: SequenceRun(run.epoch, run.last_seq, 0, run.packed))


def remember_too_much(machine: PartitionMachine) -> None:
    set_run(machine, lambda run: SequenceRun(run.epoch, run.last_seq, run.records, run.packed * 2))


def remember_another_epoch(machine: PartitionMachine) -> None:
    set_run(machine, lambda run: SequenceRun(9, run.last_seq, run.records, run.packed))


def remember_the_future(machine: PartitionMachine) -> None:
    entries = machine.producers.entries
    entry = entries[NAMED]
    assert entry.prev is not None
    entries[NAMED] = Entry(SequenceRun(0), entry.prev, entry.last_used_ms, entry.order)


def set_run(machine: PartitionMachine, change: Callable[[SequenceRun], SequenceRun]) -> None:
    entry = machine.producers.entries[ANONYMOUS]
    machine.producers.entries[ANONYMOUS] = Entry(change(entry.run), entry.prev, entry.last_used_ms, entry.order)


def test_a_working_partition_passes() -> None:
    check(working())


@pytest.mark.parametrize(
    "damage",
    [
        lose_a_batch,
        damage_a_message,
        lower_the_epoch,
        forget_the_order_of_grants,
        write_with_a_later_epoch,
        repeat_a_sequence,
        touch_without_using,
        exceed_the_cap,
        count_wrongly,
        remember_too_much,
        remember_another_epoch,
        remember_the_future,
    ],
)
def test_damage_is_noticed(damage: Callable[[PartitionMachine], None]) -> None:
    machine = working()
    damage(machine)
    with pytest.raises(AssertionError):
        check(machine)
