"""The invariants of a partition after every step, restated from SEMANTICS 2 without sharing code with the machine.

For tests: ``check`` walks the whole log.
"""

import sys

from ..commands import SEQUENCE_MODULUS, Offset, Stamp
from ..log.interface import Log, StoredBatch
from ..records.checksum import crc32
from .machine import PartitionMachine
from .producers import CACHE_BATCHES, Entry, Producers, SequenceRun


def check(machine: PartitionMachine) -> None:
    """Raise AssertionError if any invariant is broken."""
    batches = machine.log.read(machine.log_start, sys.maxsize).batches
    _check_log(machine.log, batches)
    _check_epochs(machine, batches)
    _check_sequences(batches, machine.producers.max_dropped_pid, machine.log_start)
    _check_producers(machine.producers, machine.config.max_producers, batches)
    _check_deadlines(machine)


def _check_log(log: Log, batches: list[StoredBatch]) -> None:
    """Check that offsets are dense from log_start to log_end, and that every message has the CRC that it was appended
    with. The first batch may begin before log_start.
    """
    offset = batches[0].base_offset if batches else log.log_start
    assert not batches or offset <= log.log_start < batches[0].next_offset
    for batch in batches:
        assert batch.count >= 1
        assert batch.base_offset == offset, "the log has a hole"
        offset += batch.count
    assert offset == log.log_end
    messages = log.read(log.log_start, sys.maxsize).messages()
    assert [crc32(message) for message in messages] == [batch.crc for batch in batches]


def _check_epochs(machine: PartitionMachine, batches: list[StoredBatch]) -> None:
    """Check I1 and I2: writer epochs never go down along the log; the slot holds the latest grant."""
    epochs = [*(batch.writer_epoch for batch in batches), machine.topic_epoch]
    assert epochs == sorted(epochs), "a fencing epoch went down"
    if machine.slot is not None:
        assert not machine.fence.sharing, "an exclusive holder shares the slot"
        assert (machine.slot.epoch, machine.slot.grant_index) == (machine.topic_epoch, machine.fence.grant_index)


def _check_sequences(batches: list[StoredBatch], max_dropped_pid: int, log_start: Offset) -> None:
    """Check I4: the sequence ranges of a producer epoch follow one another from 0; a producer's epochs never go down.

    A producer that was forgotten begins anew; its batches before log_start are not known.
    """
    last: dict[int, tuple[int, int]] = {}
    for batch in batches:
        if batch.stamp is None:
            continue
        pid, epoch, first_seq = batch.stamp.pid, batch.stamp.epoch, batch.stamp.first_seq
        before, expected = last.get(pid, (epoch, first_seq if log_start else 0))
        if pid > max_dropped_pid:
            assert epoch >= before, "an old producer epoch was accepted"
        if epoch != before or (first_seq == 0 and pid <= max_dropped_pid):
            expected = 0
        assert first_seq == expected, "a sequence number is missing or stored twice"
        last[pid] = epoch, (first_seq + batch.count) % SEQUENCE_MODULUS


def _check_deadlines(machine: PartitionMachine) -> None:
    """Check that ``due_ms <= deadline`` holds for each deadline that comes next, so that no command misses it."""
    idle = [entry.last_used_ms + machine.config.producer_ttl_ms for entry in machine.producers.entries.values()][:1]
    named = [batch.deadline_ms for batch in machine.message_ids.batches.values()][:1]
    staged = [stage.expires_ms for stage in machine.stages.stages.values() if not stage.kept]
    assert all(machine.due_ms <= deadline_ms for deadline_ms in (*idle, *named, *staged))


def _check_producers(producers: Producers, max_producers: int, batches: list[StoredBatch]) -> None:
    """Check that the producers are bounded and in the order of use, and their remembered batches are in the log."""
    entries = producers.entries
    assert 0 <= len(entries) <= max_producers
    uses = [entry.last_used_ms for entry in entries.values()]
    assert uses == sorted(uses), "producers are not in the order of their use"
    stored = {batch.base_offset: batch for batch in batches}
    for pid, entry in entries.items():
        _check_entry(pid, entry, stored)


def _check_entry(pid: int, entry: Entry, stored: dict[int, StoredBatch]) -> None:
    if entry.prev is not None:
        assert entry.prev.epoch < entry.run.epoch
        assert entry.prev.records > 0
        _check_run(pid, entry.prev, stored)
    _check_run(pid, entry.run, stored)


def _cached_end(run: SequenceRun) -> Offset:
    """Offset behind the last remembered batch."""
    return run.cache[-1].last_offset + 1 if run.cache else 0


def _check_run(pid: int, run: SequenceRun, stored: dict[int, StoredBatch]) -> None:
    assert (run.records == 0) == (run.last_seq == -1) == (not run.cache)
    assert len(run.cache) <= CACHE_BATCHES
    kept = min(stored, default=_cached_end(run))
    for cached in run.cache:
        if cached.base_offset < kept:
            continue  # the records were dropped
        batch = stored[cached.base_offset]
        assert batch.stamp == Stamp(pid, run.epoch, cached.first_seq)
        assert batch.next_offset - 1 == cached.last_offset
        assert cached.last_seq == (cached.first_seq + batch.count - 1) % SEQUENCE_MODULUS
    if run.cache:
        assert run.cache[-1].last_seq == run.last_seq
