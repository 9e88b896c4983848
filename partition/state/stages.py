"""Stages: batches that are stored beside the log, by name, until an append by reference moves them into it.

A stage is as durable as a record, and no reader sees it. It never changes: it is appended at most once, and then stays
as a note of where its records went, so a repeated append is answered with the offsets of the first. It is forgotten
when its time is over on the partition's clock, unless somebody keeps it: what is kept stays until it is deleted.

Pure: the bytes are kept by whoever implements StageFiles.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from .commands import Append, Appended, AppendStage, Offset, PutStage, Staged, StagesChanged
from .errors import NotFound, StageAlreadyExists, StockadeError, ThrottlingQuotaExceeded

STAGES_MAX = 4096
"""Stages of a partition, with those that were appended and are remembered."""
STAGED_BYTES_MAX = 4 * 1024**3
"""Bytes of the stages of a partition that were not appended yet."""
_RETRY_AFTER_MS = 1000


class Stage(msgspec.Struct, frozen=True, array_like=True):
    """One stage. ``digest`` tells the bytes that a client sent from others; ``length`` and ``crc`` are those of the
    message, in the file of this ``number``. ``expires_ms`` is on the partition's clock and does not count while the
    stage is ``kept``. ``appended``: where its records went.
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

    @property
    def is_appended(self) -> bool:
        """Whether its records are in the log; its bytes are gone then."""
        return self.base_offset is not None


class StageFiles(Protocol):
    """Keeps the bytes of stages, each under a number that is never used again."""

    def write(self, number: int, message: bytes) -> None:
        """Store a message. After an OSError it must not be used."""
        ...

    def read(self, stage: Stage) -> bytes:
        """The message of a stage. Raises OSError, also when it is not what was written."""
        ...

    def drop(self, number: int) -> None:
        """The message is not needed any more."""
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
    """The stages of one partition, by name, in the order in which they came."""

    def __init__(self, files: StageFiles, stages_max: int = STAGES_MAX, bytes_max: int = STAGED_BYTES_MAX) -> None:
        self.files = files
        self.stages: dict[str, Stage] = {}
        self.next_number: int = 0
        self._stages_max, self._bytes_max = stages_max, bytes_max
        self._bytes = 0
        self._due_ms: int | None = None  # nothing is over before; None: nothing ever is

    def put(self, command: PutStage, now_ms: int) -> Staged | StockadeError:
        """Store a stage. The same bytes again change nothing, not even its time; other bytes are refused."""
        known = self.stages.get(command.name)
        if known is not None:
            return Staged(new=False) if known.digest == command.digest else StageAlreadyExists(stage=command.name)
        size = len(command.message)
        if len(self.stages) >= self._stages_max or self._bytes + size > self._bytes_max:
            text = f"more than {self._stages_max} stages, or {self._bytes_max} bytes of them, would be here"
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
        )
        self.files.write(stage.number, command.message)
        self.next_number += 1
        self._bytes += size
        self._set(stage)
        return Staged(new=True)

    def change(self, keep: Sequence[str], delete: Sequence[str]) -> StagesChanged | NotFound:
        """Let some not expire, if all of them are here, and forget others, as far as they are here."""
        missing = next((name for name in keep if name not in self.stages), None)
        if missing is not None:
            return NotFound(f"there is no stage {missing}", what="stage")
        for name in keep:
            self._set(msgspec.structs.replace(self.stages[name], kept=True))
        self.delete(delete)
        return StagesChanged()

    def append_of(self, stage: Stage, command: AppendStage) -> Append:
        """The append of a stage's batch. Raises OSError."""
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
        )

    def delete(self, names: Sequence[str]) -> None:
        """Forget these, as far as they are here."""
        for name in names:
            stage = self.stages.pop(name, None)
            if stage is not None and not stage.is_appended:
                self._release(stage)

    def appended(self, stage: Stage, appended: Appended, now_ms: int) -> None:
        """Its records are in the log now: what stays of it is a note, for as long again as it was to live."""
        self._release(stage)
        self._set(
            msgspec.structs.replace(
                stage,
                base_offset=appended.base_offset,
                timestamp_ms=appended.timestamp_ms,
                expires_ms=now_ms + stage.ttl_ms,
            )
        )

    def has_due(self, now_ms: int) -> bool:
        """Whether the time of one may be over."""
        return self._due_ms is not None and self._due_ms <= now_ms

    def forget_due(self, now_ms: int) -> None:
        """Forget what is over and not kept."""
        if self.has_due(now_ms):
            self.delete([stage.name for stage in self._mortal() if stage.expires_ms <= now_ms])
            self._due_ms = min((stage.expires_ms for stage in self._mortal()), default=None)

    def put_back(self, stages: Sequence[Stage], next_number: int) -> None:
        """Be what was captured."""
        self.stages = {stage.name: stage for stage in stages}
        self.next_number = next_number
        self._bytes = sum(stage.length for stage in stages if not stage.is_appended)
        self._due_ms = min((stage.expires_ms for stage in self._mortal()), default=None)

    def _mortal(self) -> Iterator[Stage]:
        return (stage for stage in self.stages.values() if not stage.kept)

    def _set(self, stage: Stage) -> None:
        self.stages[stage.name] = stage
        if not stage.kept and (self._due_ms is None or stage.expires_ms < self._due_ms):
            self._due_ms = stage.expires_ms

    def _release(self, stage: Stage) -> None:
        self.files.drop(stage.number)
        self._bytes -= stage.length
