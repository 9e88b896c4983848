"""Several commands in one entry: what is proposed in one turn pays for journal, log and wire once.

A machine says whether it allows that (machine.py), for the commands of one entry have one index.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

from .journal import NO_OP
from .ports import Proposal

REGULAR = b"\x00"
"""The first byte of an entry is pysyncobj's command type. Of this one the rest is a command."""
BUNDLE = b"\x10"
"""A type that pysyncobj has not: the number of commands (u8), the length of each (u32), the commands."""
COMMANDS_MAX = 64
"""Most commands of one entry: a replica looks after nothing else while it applies one."""
BYTES_MAX = 64 << 10
"""Most bytes of commands that share an entry: windows and messages are filled by whole entries."""

_HEAD_BYTES = 2


def entries_of(queue: Sequence[tuple[bytes, Proposal]], *, bundles: bool) -> Iterator[tuple[bytes, list[Proposal]]]:
    """The entries for these commands, in order, each with what waits for its commands. ``bundles``: they may share."""
    first = size = 0
    for number, (command, _) in enumerate(queue):
        size += len(command)
        if number > first and not (bundles and size <= BYTES_MAX and number - first < COMMANDS_MAX):
            yield _entry(queue[first:number])
            first, size = number, len(command)
    if queue:
        yield _entry(queue[first:])


def commands_of(payload: bytes) -> list[bytes]:
    """The commands of an entry that is no configuration. Raises ValueError if these are not the bytes of one."""
    kind = payload[:1]
    if kind == REGULAR:
        return [payload[1:]]
    if payload == NO_OP:
        return []
    if kind != BUNDLE:
        raise ValueError(f"an entry of an unknown type: {kind!r}")
    try:
        layout = _lengths(payload[1])
        ends = list(accumulate(layout.unpack_from(payload, _HEAD_BYTES), initial=_HEAD_BYTES + layout.size))
    except (IndexError, struct.error) as error:
        raise ValueError(f"an entry of {len(payload)} bytes ends before its commands begin") from error
    if ends[-1] != len(payload):
        raise ValueError(f"commands end at byte {ends[-1]} of an entry of {len(payload)} bytes")
    return [payload[start:end] for start, end in pairwise(ends)]


def _entry(some: Sequence[tuple[bytes, Proposal]]) -> tuple[bytes, list[Proposal]]:
    commands = [command for command, _ in some]
    proposals = [proposal for _, proposal in some]
    if len(commands) == 1:
        return REGULAR + commands[0], proposals
    lengths = _lengths(len(commands)).pack(*map(len, commands))
    return b"".join([BUNDLE, bytes([len(commands)]), lengths, *commands]), proposals


@lru_cache(COMMANDS_MAX)
def _lengths(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")
