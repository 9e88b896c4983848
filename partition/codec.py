"""Bytes of a machine's commands and answers: MessagePack with a tag for each kind, and refusals by their code."""

from typing import Any, Generic, TypeVar

import msgspec

from .errors import StockadeError, revive

_Command = TypeVar("_Command")
_Result = TypeVar("_Result")


class _Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    code: str
    detail: str
    fields: dict[str, Any]


class Codec(Generic[_Command, _Result]):
    """The codec of one machine. Encoding is deterministic: equal values have equal bytes."""

    def __init__(self, commands: Any, results: Any) -> None:
        """``commands`` and ``results`` are unions of tagged structs."""
        self._encoder = msgspec.msgpack.Encoder()
        self._commands: msgspec.msgpack.Decoder[_Command] = msgspec.msgpack.Decoder(commands)
        self._results: msgspec.msgpack.Decoder[_Result | _Refusal] = msgspec.msgpack.Decoder(results | _Refusal)

    def encode_command(self, command: _Command) -> bytes:
        """Bytes of a command, as they go into the replicated log."""
        return self._encoder.encode(command)

    def decode_command(self, data: bytes) -> _Command:
        """Inverse of encode_command. Raises msgspec.DecodeError (a ValueError) on anything else."""
        return self._commands.decode(data)

    def encode_result(self, result: _Result | StockadeError) -> bytes:
        """Bytes of an answer, to carry it from the leader to the node that asked."""
        if isinstance(result, StockadeError):
            return self._encoder.encode(_Refusal(result.code, result.detail, result.fields))
        return self._encoder.encode(result)

    def decode_result(self, data: bytes) -> _Result | StockadeError:
        """Inverse of encode_result."""
        result = self._results.decode(data)
        return revive(result.code, result.detail, result.fields) if isinstance(result, _Refusal) else result
