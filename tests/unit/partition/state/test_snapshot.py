"""A state that was restored is the one that was written, in each of its parts."""

from collections.abc import Mapping
from typing import Any

import pytest
from memory_log import MemoryLog
from msgspec.structs import replace

from stockade.partition.commands import InstallFence, SharedHolder, TierObject
from stockade.partition.state import snapshot
from stockade.partition.state.fence import Tenure
from stockade.partition.state.machine import PartitionConfig, PartitionMachine
from stockade.partition.state.message_ids import StoredMessageId
from stockade.partition.state.producers import Entry, SequenceRun
from stockade.partition.state.readers import Position, Reader
from stockade.partition.state.stages import Stage
from stockade.partition.state.tier import SavedTier

from ..driver import NAMED, TOPIC_ID, grant

CONFIG = PartitionConfig(topic_id=TOPIC_ID)
OTHER: Mapping[str, Any] = {
    "config": replace(CONFIG, max_producers=7),
    "config_order": 11,
    "clock_ms": 12,
    "topic_epoch": 13,
    "grant_index": 14,
    "slot": InstallFence(grant(1), 13, "s", "loader", "Exclusive", 14),
    "seats": [SharedHolder(grant(2), "s", "loader")],
    "tenures": [Tenure(grant(3), "Shared", 4, "loader", None, "acquire", 1, 2, "closed")],
    "producers": {NAMED: Entry(SequenceRun(3, 4, 5, b""), SequenceRun(1, 2, 3, b""), 6, 7)},
    "max_dropped_pid": 15,
    "max_dropped_order": 16,
    "message_ids": {"m": StoredMessageId(1, 2, 3, 4)},
    "fences": {"g": Reader(17, True)},
    "positions": {"g": Position(0, "note")},
    "stages": [Stage("a", "digest", 1, 1, 9, 8, 7, 60, 99)],
    "next_stage": 2,
    "placed_at": 18,
    "placed_after": 19,
    "taken_at": {grant(1): 20},
    "tier": SavedTier("folder", 30, [TierObject(0, 30, 1, "n", 9, b"s" * 32, 90, 7, 8)]),
}
"""For each part a value that a new machine does not have."""
OF_THE_LOG = {"log_start", "log_end"}


def test_each_part_of_the_state_has_a_test() -> None:
    assert set(OTHER) | OF_THE_LOG == set(snapshot.State.__struct_fields__)


@pytest.mark.parametrize("part", OTHER)
def test_each_part_of_a_state_is_restored(part: str) -> None:
    """One that is forgotten makes a replica that was restored judge otherwise than the others: what it still knew of
    producers, say, decides whether a batch is a repetition.
    """
    new = snapshot.decode(snapshot.encode(PartitionMachine(CONFIG, MemoryLog())))
    assert getattr(new, part) != OTHER[part]
    written, machine = replace(new, **{part: OTHER[part]}), PartitionMachine(CONFIG, MemoryLog())
    snapshot.put_back(machine, written)
    assert snapshot.decode(snapshot.encode(machine)) == written
