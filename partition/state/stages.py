"""Stages: batches that are stored beside the log, by name, until an append by reference moves them into it.

A stage is as durable as a record, and no reader sees it. Its bytes never change. It is appended at most once, and then
its offsets are remembered, so a repeated append is answered with the offsets of the first. A stage is forgotten when it
expires on the partition's lease clock; one that a producer has marked as kept stays until it is deleted.

Pure: the bytes of stages are in StageFiles.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf
from typing import Protocol

import msgspec

from ..api.records import StageInfo
from ..commands import (
    Append,
    Appended,
    AppendStage,
    ChangeStages,
    Offset,
    PutStage,
    Staged,
    StagesChanged,
    belongs_to_another,
)
from ..errors import NotFound, PermissionDenied, StageAlreadyExists, StockadeError, ThrottlingQuotaExceeded

STAGES_MAX = 4096
"""Most stages of a partition, including those that were appended and are remembered."""
STAGED_BYTES_MAX = 4 * 1024**3
"""Most bytes of a partition's stages that were not appended yet."""
_RETRY_AFTER_MS = 1000


class Stage(msgspec.Struct, frozen=True, array_like=True):
    """One stage. ``digest`` distinguishes the bytes that a client sent from others; ``length`` and ``crc`` are those of
    the message, which is in the file of this ``number``. ``expires_ms`` is on the partition's lease clock and is
    ignored while the stage is ``kept``. ``base_offset`` and ``timestamp_ms`` are those of the answer to its append,
    None before it. ``received_ms`` is when the stage was received, which is the timestamp of its records that have
    none of their own; None in state of versions that did not keep it. The stage belongs to ``principal`` ("": to all).
    """

    name: str
    digest: str
    number: int
    count: int
    length: int
    crc: int
    max_timestamp_ms: int
    ttl_ms: int
    expires_ms: int
    kept: bool = False
    base_offset: Offset | None = None
    timestamp_ms: int | None = None
    received_ms: int | None = None
    principal: str = ""

    @property
    def answered_ms(self) -> int:
        """The timestamp in the answer to its append: ``received_ms``, or the greatest timestamp where that is None."""
        return self.max_timestamp_ms if self.received_ms is None else self.received_ms

    @property
    def is_appended(self) -> bool:
        """Whether its records are in the log; if so, the stage's own bytes are gone."""
        return self.base_offset is not None


class StageFiles(Protocol):
    """The messages of stages, each under a number that is never used again."""

    def write(self, number: int, message: bytes) -> None:
        """Store a message. After an OSError the files must not be used."""
        ...

    def read(self, stage: Stage) -> bytes:
        """The message of a stage. Raises OSError, also when its bytes are not those that were written."""
        ...

    def drop(self, number: int) -> None:
        """Note that the message of this number is no longer needed."""
        ...


class MemoryStageFiles:
    """Implements StageFiles for tests."""

    def __init__(self) -> None:
        self.messages: dict[int, bytes] = {}

    def write(self, number: int, message: bytes) -> None:
        """Store a message."""
        self.messages[number] = message

    def read(self, stage: Stage) -> bytes:
        """The message of a stage."""
        return self.messages[stage.number]

    def drop(self, number: int) -> None:
        """Forget a message."""
        del self.messages[number]


class Stages:
    """The stages of one partition, by name, in the order in which they were stored."""

    def __init__(self, files: StageFiles, stages_max: int = STAGES_MAX, bytes_max: int = STAGED_BYTES_MAX) -> None:
        self.files = files
        self.stages: dict[str, Stage] = {}
        self.next_number: int = 0
        self._stages_max, self._bytes_max = stages_max, bytes_max
        self.size: int = 0
        """Bytes of the stages that were not appended yet."""
        self.due_ms: float = inf
        """A lower bound of the stages' deadlines: no stage expires before it."""

    def listed(self, prefix: str, now_ms: int) -> list[StageInfo]:
        """The stages whose names begin with ``prefix``, as clients see them."""
        return [
            StageInfo(
                stage=stage.name,
                records=stage.count,
                bytes=stage.length,
                digest=stage.digest,
                kept=stage.kept,
                expires_in_ms=None if stage.kept else max(0, stage.expires_ms - now_ms),
                base_offset=stage.base_offset,
                last_offset=None if stage.base_offset is None else stage.base_offset + stage.count - 1,
            )
            for stage in self.stages.values()
            if stage.name.startswith(prefix)
        ]

    def put(self, command: PutStage, now_ms: int) -> Staged | StockadeError:
        """Store a stage. If the name exists with the same digest, nothing changes, not even when the stage expires;
        with another digest the command is refused.
        """
        known = self.stages.get(command.name)
        if known is not None:
            return Staged(new=False) if known.digest == command.digest else StageAlreadyExists(stage=command.name)
        size = len(command.message)
        if len(self.stages) >= self._stages_max or self.size + size > self._bytes_max:
            text = f"the partition holds at most {self._stages_max} stages and {self._bytes_max} bytes of them"
            return ThrottlingQuotaExceeded(text, retry_after_ms=_RETRY_AFTER_MS)
        stage = Stage(
            command.name,
            command.digest,
            self.next_number,
            command.count,
            size,
            command.crc,
            command.max_timestamp_ms,
            command.ttl_ms,
            now_ms + command.ttl_ms,
            received_ms=command.received_ms,
            principal=command.principal,
        )
        self.files.write(stage.number, command.message)
        self.next_number += 1
        self.size += size
        self._set(stage)
        return Staged(new=True)

    def change(self, command: ChangeStages) -> StagesChanged | NotFound | PermissionDenied:
        """Mark the stages in ``keep`` as kept, if all of them exist, and forget those in ``delete`` that exist."""
        refusal = next(filter(None, map(partial(self.judge, command), [*command.keep, *command.delete])), None)
        if refusal is not None:
            return refusal
        missing = next((name for name in command.keep if name not in self.stages), None)
        if missing is not None:
            return NotFound(f"there is no stage {missing}", what="stage")
        for name in command.keep:
            self._set(msgspec.structs.replace(self.stages[name], kept=True))
        self.delete(command.delete)
        return StagesChanged()

    def judge(self, command: ChangeStages | AppendStage, name: str) -> PermissionDenied | None:
        """The refusal of a command that only the principal of stage ``name`` may give; None accepts it, also if there
        is no such stage.
        """
        stage = self.stages.get(name)
        if stage is not None and not command.evicts and belongs_to_another(stage.principal, command.principal):
            return PermissionDenied(f"stage {name} is another principal's")
        return None

    def append_of(self, stage: Stage, command: AppendStage) -> Append:
        """The Append command for a stage's batch. Raises OSError if the batch cannot be read."""
        return Append(
            message=self.files.read(stage),
            count=stage.count,
            crc=stage.crc,
            timestamp_ms=command.timestamp_ms,
            max_timestamp_ms=stage.max_timestamp_ms,
            topic_id=command.topic_id,
            token=command.token,
            stamp=command.stamp,
            if_log_end=command.if_log_end,
            now_ms=command.now_ms,
            fence_epoch=command.fence_epoch,
            message_id=command.message_id,
            principal=command.principal,
        )

    def delete(self, names: Sequence[str]) -> None:
        """Forget the stages of these names that exist."""
        for name in names:
            stage = self.stages.pop(name, None)
            if stage is not None and not stage.is_appended:
                self._release(stage)

    def appended(self, stage: Stage, appended: Appended, now_ms: int) -> None:
        """Note that the stage's records are in the log: drop its message, and remember its offsets for its ``ttl_ms``
        from now on.
        """
        self._release(stage)
        self._set(
            msgspec.structs.replace(
                stage,
                base_offset=appended.base_offset,
                timestamp_ms=appended.timestamp_ms,
                expires_ms=now_ms + stage.ttl_ms,
            )
        )

    def forget_due(self, now_ms: int) -> None:
        """Forget expired stages."""
        if self.due_ms <= now_ms:
            self.delete([stage.name for stage in self._mortal() if stage.expires_ms <= now_ms])
            self.due_ms = min((stage.expires_ms for stage in self._mortal()), default=inf)

    def put_back(self, stages: Sequence[Stage], next_number: int) -> None:
        """Restore the stages of a captured state."""
        self.stages = {stage.name: stage for stage in stages}
        self.next_number = next_number
        self.size = sum(stage.length for stage in stages if not stage.is_appended)
        self.due_ms = min((stage.expires_ms for stage in self._mortal()), default=inf)

    def _mortal(self) -> Iterator[Stage]:
        return (stage for stage in self.stages.values() if not stage.kept)

    def _set(self, stage: Stage) -> None:
        self.stages[stage.name] = stage
        if not stage.kept:
            self.due_ms = min(self.due_ms, stage.expires_ms)

    def _release(self, stage: Stage) -> None:
        self.files.drop(stage.number)
        self.size -= stage.length
