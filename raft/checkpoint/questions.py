"""Checkpoints copied between nodes: the questions. The node that copies asks them (receiver.py), the one that has the
checkpoint answers (sender.py).
"""

from collections.abc import Callable

import msgspec

from ..net.rpc import CallRefused

FOR_COPIES = b"\1"
"""The kind of the calls that hold a question."""
PIECE_BYTES = 1 << 20
"""The longest answer."""
CHECKPOINT = ""
"""The name of the checkpoint's own file; a machine's file never has it."""


class FetchCheckpoint(msgspec.Struct, frozen=True, tag=0, array_like=True):
    """Asks the sender to hold a checkpoint of the group ready, at ``index`` or beyond. The answer is an Offered."""

    group_id: int
    index: int


class FetchPiece(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """Asks for bytes of a file from ``position`` on. The answer is PIECE_BYTES of them, or fewer at the file's end."""

    group_id: int
    index: int
    name: str
    position: int


class FetchDigest(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """Asks for the digest (digests.py) of the part of a file that belongs to the checkpoint."""

    group_id: int
    index: int
    name: str


class Release(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """Tells that the asking node has finished with the checkpoint at ``index``, and whether the copy was damaged. The
    answer is empty, held or not.
    """

    group_id: int
    index: int
    is_damaged: bool = False


class Offered(msgspec.Struct, frozen=True, array_like=True):
    """The checkpoint at ``index`` is held ready; its own file has ``size`` bytes."""

    index: int
    size: int


Question = FetchCheckpoint | FetchPiece | FetchDigest | Release


class NothingHeld(CallRefused):
    """This node does not hold such a checkpoint, or no longer; or it cannot hold one more."""


encode: Callable[[Question | Offered], bytes] = msgspec.msgpack.Encoder().encode
decode_question: Callable[[bytes], Question] = msgspec.msgpack.Decoder[Question](Question).decode
"""Raises msgspec.MsgspecError."""
decode_offered: Callable[[bytes], Offered] = msgspec.msgpack.Decoder(Offered).decode
"""Raises msgspec.MsgspecError."""
