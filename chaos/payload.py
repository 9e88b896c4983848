"""The bytes of a record, told from its name alone: whoever reads it can say whether it is what was sent."""

import zlib

from .history import record_name

LENGTH_MIN = 24
SPREAD = 180
"""Lengths vary by this many bytes, so that no two records of a batch are alike."""
SIZE_MARK = "~"
"""What follows it in a writer's name is the length of its records: ``catch-up.1@0~4096``."""


def payload(writer: str, index: int) -> bytes | None:
    """What record ``index`` of ``writer`` must hold; None: no writer has such a name."""
    if not writer or index < 0:
        return None
    name = record_name(writer, index).encode()
    check = zlib.crc32(name)
    return (b"%s %08x;" % (name, check) * (_length(writer, check) // (len(name) + 10) + 1))[: _length(writer, check)]


def _length(writer: str, check: int) -> int:
    _, mark, size = writer.rpartition(SIZE_MARK)
    return int(size) if mark and size.isdecimal() else LENGTH_MIN + check % SPREAD
