"""What nodes ask each other for to copy a checkpoint: its file first, then the files that it names, piece by piece."""

import msgspec

from .calls import CallRefused

PIECE_BYTES = 1 << 20
"""Longest answer."""
CHECKPOINT = ""
"""The name of the checkpoint's own file; no file of a machine is called so."""


class Ask(msgspec.Struct, frozen=True, tag=0, array_like=True):
    """Hold a checkpoint of the group ready, at ``index`` or beyond. Answered by Offered."""

    group_id: int
    index: int


class AskPiece(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """The bytes of a file from ``position`` on, PIECE_BYTES at most. Answered by them."""

    group_id: int
    index: int
    name: str
    position: int


class AskDigest(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """What ``digest`` says of a file as far as it belongs to the checkpoint. Answered by that."""

    group_id: int
    index: int
    name: str


class Release(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """The node that asks needs the checkpoint at ``index`` no more. Answered by nothing; also when none is held."""

    group_id: int
    index: int


class Offered(msgspec.Struct, frozen=True, array_like=True):
    """The checkpoint at ``index`` is held ready; its file has ``size`` bytes."""

    index: int
    size: int


Question = Ask | AskPiece | AskDigest | Release
_questions: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)


class NothingHeld(CallRefused):
    """This node holds no such checkpoint ready, or not any more."""


def encode(message: Question | Offered) -> bytes:
    """The bytes of a message."""
    return msgspec.msgpack.encode(message)


def decode_question(payload: bytes) -> Question:
    """A question. Raises msgspec.DecodeError."""
    return _questions.decode(payload)


def decode_offered(payload: bytes) -> Offered:
    """An answer to Ask. Raises msgspec.DecodeError."""
    return msgspec.msgpack.decode(payload, type=Offered)
