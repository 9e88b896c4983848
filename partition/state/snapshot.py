"""A partition's replicated state as bytes, for checkpoints: equal on replicas that applied the same commands.

The bytes are a magic word, the version of their layout and a CRC-32, then MessagePack. The log's batches and the bytes
of stages are not among them: they are in each replica's files.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from ..commands import InstallFence, Offset, ProducerId, SharedHolder
from ..config import PartitionConfig
from ..log.image import ImageDamaged
from ..records.checksum import crc32
from . import tier
from .fence import Tenure
from .machine import PartitionMachine
from .message_ids import StoredMessageId
from .producers import Entry
from .readers import Position, Reader
from .stages import Stage
from .tier import SavedTier

_HEADER = struct.Struct("<4sHxxI")
"""Magic, version, CRC-32 of the body."""
_State = TypeVar("_State", bound=msgspec.Struct)


class Sealed(Generic[_State]):
    """The codec of one kind of state: MessagePack under a magic word, a version and a CRC-32. ``owner`` (partition,
    controller) names the machine in messages. It writes ``version``, and reads every version from ``oldest`` to it.
    """

    def __init__(
        self,
        kind: type[_State],
        magic: bytes,
        version: int,
        owner: str,
        encoder: msgspec.msgpack.Encoder,
        oldest: int | None = None,
    ) -> None:
        self._magic = magic
        self._version = version
        self._oldest = oldest if oldest is not None else version
        self._owner = owner
        self._encoder = encoder
        self._decoder = msgspec.msgpack.Decoder(kind)

    def encode(self, state: _State) -> bytes:
        """The bytes of a state."""
        body = self._encoder.encode(state)
        return _HEADER.pack(self._magic, self._version, crc32(body)) + body

    def decode(self, data: bytes) -> _State:
        """Inverse of encode. Raises ImageDamaged for any other bytes."""
        if len(data) < _HEADER.size:
            raise ImageDamaged(f"the state of the {self._owner} is cut off")
        magic, version, crc = _HEADER.unpack_from(data)
        body = memoryview(data)[_HEADER.size :]
        if magic != self._magic:
            raise ImageDamaged(f"the state is not that of a {self._owner}")
        if not self._oldest <= version <= self._version:
            who, known = "newer" if version > self._version else "older", f"{self._oldest} to {self._version}"
            raise ImageDamaged(
                f"{who} software wrote the state of the {self._owner} (version {version}; this software knows {known})"
            )
        if crc32(body) != crc:
            raise ImageDamaged(f"the state of the {self._owner} does not have its CRC")
        try:
            return self._decoder.decode(body)
        except msgspec.DecodeError as error:
            raise ImageDamaged(f"the state of the {self._owner} cannot be read: {error}") from error


class State(msgspec.Struct, frozen=True):
    """All of a machine's state that future answers depend on. ``producers`` are in the order of use, the least recently
    used first; ``message_ids`` and ``tenures`` have the oldest first.
    """

    config: PartitionConfig
    config_order: int
    clock_ms: int
    log_start: Offset
    log_end: Offset
    topic_epoch: int
    grant_index: int
    slot: InstallFence | None
    seats: list[SharedHolder]
    tenures: list[Tenure]
    producers: dict[ProducerId, Entry]
    max_dropped_pid: ProducerId
    max_dropped_order: int
    message_ids: dict[str, StoredMessageId]
    fences: dict[str, Reader]
    positions: dict[str, Position]
    stages: list[Stage] = []
    next_stage: int = 0
    placed_at: Offset | None = None
    placed_after: int | None = None
    taken_at: dict[str, Offset] = {}
    tier: SavedTier | None = None


_sealed = Sealed(State, b"StkP", 2, "partition", msgspec.msgpack.Encoder())
decode: Callable[[bytes], State] = _sealed.decode


def encode(machine: PartitionMachine) -> bytes:
    """The bytes of a machine's state, without its log's batches."""
    state = State(
        config=machine.config,
        config_order=machine.config_order,
        clock_ms=machine.clock_ms,
        log_start=machine.log_start,
        log_end=machine.log_end,
        topic_epoch=machine.fence.topic_epoch,
        grant_index=machine.fence.grant_index,
        slot=machine.fence.slot,
        seats=list(machine.fence.sharing.values()),
        tenures=list(machine.fence.tenures.ended.values()),
        producers=dict(machine.producers.entries),  # an ordered dictionary would be encoded in another order
        max_dropped_pid=machine.producers.max_dropped_pid,
        max_dropped_order=machine.producers.max_dropped_order,
        message_ids=dict(machine.message_ids.batches),
        fences=machine.readers.fences,
        positions=machine.readers.positions,
        stages=list(machine.stages.stages.values()),
        next_stage=machine.stages.next_number,
        placed_at=machine.fence.placed_at,
        placed_after=machine.fence.placed_after,
        taken_at=machine.fence.taken_at,
        tier=machine.tier.save(),
    )
    return _sealed.encode(state)


def put_back(machine: PartitionMachine, state: State) -> None:
    """Restore the machine's state, except for its log. Raises ImageDamaged for a state of another topic, or with a bad
    list of objects.
    """
    topic_id = machine.config.topic_id
    if state.config.topic_id != topic_id:
        raise ImageDamaged(f"the state is of topic {state.config.topic_id}, not of {topic_id}")
    machine.config, machine.config_order, machine.clock_ms = state.config, state.config_order, state.clock_ms
    machine.due_ms = 0
    fence, producers = machine.fence, machine.producers
    fence.topic_epoch, fence.grant_index, fence.slot = state.topic_epoch, state.grant_index, state.slot
    fence.sharing = {holder.grant_id: holder for holder in state.seats}
    fence.tenures.ended = {tenure.grant_id: tenure for tenure in state.tenures}
    fence.placed_at, fence.placed_after, fence.taken_at = state.placed_at, state.placed_after, state.taken_at
    producers.entries = OrderedDict(state.producers)
    producers.max_dropped_pid = state.max_dropped_pid
    producers.max_dropped_order = state.max_dropped_order
    machine.message_ids.batches = OrderedDict(state.message_ids)
    machine.readers.fences = state.fences
    machine.readers.positions = state.positions
    machine.stages.put_back(state.stages, state.next_stage)
    machine.tier.load(state.tier)
    if wrong := tier.faults(machine.tier, state.log_start):
        raise ImageDamaged(f"the state's list of objects in the store is no list of a log: {wrong[0]}")
