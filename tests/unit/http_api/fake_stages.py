"""Stages of a partition in memory."""

import msgspec

from stockade.cluster.model import Conditions
from stockade.partition.api.records import StageInfo
from stockade.partition.commands import (
    Append,
    Appended,
    AppendStage,
    ChangeStages,
    Command,
    InstallProducer,
    NotEnrolled,
    PutStage,
    Staged,
)
from stockade.partition.records.batch import Batch
from stockade.partition.state.machine import PartitionMachine


class FakeStaging:
    """A base of FakePartition."""

    @property
    def machine(self) -> PartitionMachine:
        raise NotImplementedError

    async def put_stage(
        self, name: str, digest: str, batch: Batch, *, ttl_ms: int, topic_id: int | None, principal: str = ""
    ) -> bool:
        self._check_leading()
        fields = (name, digest, batch.message, batch.count, batch.crc, batch.max_timestamp_ms, ttl_ms)
        staged = self._apply(PutStage(*fields, topic_id, received_ms=batch.received_ms, principal=principal))
        assert isinstance(staged, Staged)
        return staged.new

    async def stages(self, prefix: str) -> list[StageInfo]:
        self._check_leading()
        return [
            StageInfo(s.name, s.count, s.length, s.digest, s.kept, None if s.kept else s.ttl_ms, s.base_offset, None)
            for s in self.machine.stages.stages.values()
            if s.name.startswith(prefix)
        ]

    async def change_stages(
        self,
        keep: list[str],
        delete: list[str],
        *,
        producer: tuple[int, int],
        topic_id: int | None,
        principal: str = "",
        evicts: bool = False,
    ) -> None:
        self._check_leading()
        self._decide(ChangeStages(keep, delete, *producer, topic_id, principal=principal, evicts=evicts))

    async def append_stage(
        self, name: str, received_ms: int, conditions: Conditions, *, evicts: bool = False
    ) -> tuple[Appended, int]:
        self._check_leading()
        result = self._decide(AppendStage(name, received_ms, **msgspec.structs.asdict(conditions), evicts=evicts))
        assert isinstance(result, Appended)
        return result, self.machine.stages.stages[name].length

    def _decide(self, command: Append | AppendStage | ChangeStages) -> object:
        result = self._apply(command)
        while isinstance(result, NotEnrolled):
            self._apply(InstallProducer(result.pid, 0))
            result = self._apply(command)
        return result

    def _apply(self, command: Command) -> object:
        raise NotImplementedError

    def _check_leading(self) -> None:
        raise NotImplementedError
