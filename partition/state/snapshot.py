"""A partition's replicated state as bytes, for checkpoints: equal on replicas that applied the same commands.

The bytes have a magic word, the version of their layout and a CRC; everything else is MessagePack. Where the log's
batches lie is not part of it: that is a matter of each replica's files.
"""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from .commands import InstallFence, Offset, ProducerId
from .config import PartitionConfig
from .image import ImageDamaged
from .machine import PartitionMachine
from .message_ids import Named
from .readers import Position, Reader
from .sealed import Sealed
from .sequences import Entry
from .slots import Seat
from .stages import Stage
from .tenures import Tenure


class State(msgspec.Struct, frozen=True):
    """Everything that decides future answers, in the order in which the machine keeps it: ``producers`` the least
    recently used first, ``message_ids`` and ``tenures`` the oldest first.
    """

    config: PartitionConfig
    config_order: int
    clock_ms: int
    log_start: Offset
    log_end: Offset
    topic_epoch: int
    grant_index: int
    slot: InstallFence | None
    seats: list[Seat]
    tenures: list[Tenure]
    producers: dict[ProducerId, Entry]
    max_dropped_pid: ProducerId
    max_dropped_order: int
    message_ids: dict[str, Named]
    fences: dict[str, Reader]
    positions: dict[str, Position]
    stages: list[Stage] = []
    next_stage: int = 0


_sealed = Sealed(State, b"StkP", 2, "partition", msgspec.msgpack.Encoder())
decode: Callable[[bytes], State] = _sealed.decode


def encode(machine: PartitionMachine) -> bytes:
    """Bytes of a machine's state, without its log's batches."""
    state = State(
        config=machine.config,
        config_order=machine.config_order,
        clock_ms=machine.clock_ms,
        log_start=machine.log_start,
        log_end=machine.log_end,
        topic_epoch=machine.fence.topic_epoch,
        grant_index=machine.fence.grant_index,
        slot=machine.fence.slot,
        seats=list(machine.fence.seats.values()),
        tenures=list(machine.fence.tenures.ended.values()),
        producers=dict(machine.producers.entries),  # an ordered dictionary would be encoded in another order
        max_dropped_pid=machine.producers.max_dropped_pid,
        max_dropped_order=machine.producers.max_dropped_order,
        message_ids=dict(machine.message_ids.batches),
        fences=machine.readers.fences,
        positions=machine.readers.positions,
        stages=list(machine.stages.stages.values()),
        next_stage=machine.stages.next_number,
    )
    return _sealed.encode(state)


def put_back(machine: PartitionMachine, state: State) -> None:
    """Make the machine what it was, except for its log."""
    topic_id = machine.config.topic_id
    if state.config.topic_id != topic_id:
        raise ImageDamaged(f"the state is of topic {state.config.topic_id}, not of {topic_id}")
    machine.config, machine.config_order, machine.clock_ms = state.config, state.config_order, state.clock_ms
    fence, producers = machine.fence, machine.producers
    fence.topic_epoch, fence.grant_index, fence.slot = state.topic_epoch, state.grant_index, state.slot
    fence.seats = {seat.grant_id: seat for seat in state.seats}
    fence.tenures.ended = {tenure.grant_id: tenure for tenure in state.tenures}
    producers.entries = OrderedDict(state.producers)
    producers.max_dropped_pid = state.max_dropped_pid
    producers.max_dropped_order = state.max_dropped_order
    machine.message_ids.batches = OrderedDict(state.message_ids)
    machine.readers.fences = state.fences
    machine.readers.positions = state.positions
    machine.stages.put_back(state.stages, state.next_stage)
