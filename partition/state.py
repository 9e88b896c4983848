"""A partition's replicated state as bytes, for checkpoints: equal on replicas that applied the same commands.

The bytes have a magic word, the version of their layout and a CRC; everything else is MessagePack. Where the log's
batches lie is not part of it: that is a matter of each replica's files.
"""

import struct
import zlib

import msgspec

from .commands import InstallFence, Offset, ProducerId
from .image import ImageDamaged
from .machine import PartitionMachine
from .sequences import Entry

_MAGIC = b"StkP"
_VERSION = 1
_HEADER = struct.Struct("<4sHxxI")
"""Magic, version, CRC-32 of the rest."""


class State(msgspec.Struct, frozen=True):
    """Everything that decides future answers. ``producers``: the least recently used first."""

    topic_id: int
    log_start: Offset
    log_end: Offset
    topic_epoch: int
    grant_index: int
    slot: InstallFence | None
    producers: list[tuple[ProducerId, Entry]]
    max_dropped_pid: ProducerId


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(State)


def encode(machine: PartitionMachine) -> bytes:
    """Bytes of a machine's state, without its log's batches."""
    state = State(
        topic_id=machine.config.topic_id,
        log_start=machine.log_start,
        log_end=machine.log_end,
        topic_epoch=machine.fence.topic_epoch,
        grant_index=machine.fence.grant_index,
        slot=machine.fence.slot,
        producers=list(machine.producers.entries.items()),
        max_dropped_pid=machine.producers.max_dropped_pid,
    )
    body = _encoder.encode(state)
    return _HEADER.pack(_MAGIC, _VERSION, zlib.crc32(body)) + body


def decode(data: bytes) -> State:
    """Inverse of encode. Raises ImageDamaged for any other bytes."""
    if len(data) < _HEADER.size:
        raise ImageDamaged("the state of the partition is cut off")
    magic, version, crc = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or version != _VERSION:
        raise ImageDamaged("the state is not that of a partition, or of another version of this software")
    if zlib.crc32(body) != crc:
        raise ImageDamaged("the state of the partition does not have its CRC")
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ImageDamaged(f"the state of the partition cannot be read: {error}") from error


def put_back(machine: PartitionMachine, state: State) -> None:
    """Make the machine what it was, except for its log."""
    if state.topic_id != machine.config.topic_id:
        raise ImageDamaged(f"the state is of topic {state.topic_id}, not of {machine.config.topic_id}")
    fence, producers = machine.fence, machine.producers
    fence.topic_epoch, fence.grant_index, fence.slot = state.topic_epoch, state.grant_index, state.slot
    producers.entries.clear()
    producers.entries.update(state.producers)
    producers.max_dropped_pid = state.max_dropped_pid
