"""What a replica does about stages: a base of Replica."""

from msgspec import structs

from ..partition.commands import (
    Appended,
    AppendStage,
    ChangeStages,
    PutStage,
    Staged,
    StagesChanged,
)
from ..partition.errors import InternalError
from ..partition.records import Batch
from .model import Conditions, StageInfo
from .writing import Writing


class Staging(Writing):
    """Stages of one partition, and their way into the log."""

    async def put_stage(self, name: str, digest: str, batch: Batch, *, ttl_ms: int, topic_id: int | None) -> bool:
        """Store a stage; whether it is new. Raises StageAlreadyExists, ThrottlingQuotaExceeded."""
        await self._prepare_write()
        command = PutStage(
            name=name,
            digest=digest,
            message=batch.message,
            count=batch.count,
            crc=batch.crc,
            max_timestamp_ms=batch.max_timestamp_ms,
            ttl_ms=ttl_ms,
            topic_id=topic_id,
            now_ms=self.now_ms(),
        )
        return (await self._ask(command, Staged)).new

    async def change_stages(
        self, keep: list[str], delete: list[str], *, producer: tuple[int, int], topic_id: int | None
    ) -> None:
        """Keep some, delete others. ``producer``: id and epoch. Raises NotFound, InvalidProducerEpoch."""
        await self._prepare_write()
        result = await self._decide(ChangeStages(keep, delete, *producer, topic_id, self.now_ms()))
        if not isinstance(result, StagesChanged):
            raise InternalError(f"a partition answered {result!r}")

    async def append_stage(self, name: str, received_ms: int, conditions: Conditions) -> tuple[Appended, int]:
        """Append a stage's batch; and the bytes of that. Raises NotFound, and what an append does."""
        await self._prepare_write()
        command = AppendStage(name, received_ms, **structs.asdict(conditions), now_ms=self.now_ms())
        appended = await self._append(command)
        stage = self.machine.stages.stages.get(name)  # its note; somebody may have deleted it since
        return appended, stage.length if stage is not None else 0

    async def stages(self, prefix: str) -> list[StageInfo]:
        """Stages whose names begin so, in the order in which they came; linearizable."""
        await self._barrier()
        clock_ms = self.machine.clock_ms
        return [
            StageInfo(
                stage=stage.name,
                records=stage.count,
                bytes=stage.length,
                digest=stage.digest,
                kept=stage.kept,
                expires_in_ms=None if stage.kept else max(0, stage.expires_ms - clock_ms),
                base_offset=stage.base_offset,
                last_offset=None if stage.base_offset is None else stage.base_offset + stage.count - 1,
            )
            for stage in self.machine.stages.stages.values()
            if stage.name.startswith(prefix)
        ]
