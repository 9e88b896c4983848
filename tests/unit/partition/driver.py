"""Drives replicas of one partition in a test: every command reaches all of them, and the invariants hold after each."""

import zlib
from collections.abc import Callable
from typing import Any

from memory_log import MemoryLog

from stockade.partition.commands import (
    Append,
    Appended,
    ClearFence,
    Command,
    InstallFence,
    InstallProducer,
    Result,
    SlotState,
    Stamp,
    Token,
    encode_command,
)
from stockade.partition.errors import StockadeError
from stockade.partition.log.interface import Log
from stockade.partition.state.invariants import check
from stockade.partition.state.machine import PartitionConfig, PartitionMachine
from stockade.partition.state.snapshot import encode

TOPIC_ID = 812
NAMED = 7
ANONYMOUS = 8
OTHER_ANONYMOUS = 10


def grant(number: int, topic_id: int = TOPIC_ID) -> str:
    return f"g-{topic_id}-{number}"


class Driver:
    def __init__(self, replicas: int = 1, new_log: Callable[[], Log] = MemoryLog, **config: Any) -> None:
        self.config = PartitionConfig(topic_id=TOPIC_ID, **config)
        self.machines = [PartitionMachine(self.config, new_log()) for _ in range(replicas)]
        self.commands: list[bytes] = []
        self.now_ms = 0

    @property
    def machine(self) -> PartitionMachine:
        return self.machines[0]

    @property
    def log_end(self) -> int:
        return self.machine.log_end

    def apply(self, command: Command) -> Result | StockadeError:
        self.commands.append(encode_command(command))
        results = [machine.apply(len(self.commands), 1, self.commands[-1]) for machine in self.machines]
        assert results == results[:1] * len(results)
        for machine in self.machines:
            check(machine)
        assert all(state(machine) == state(self.machine) for machine in self.machines)
        return results[0]

    def append(
        self,
        stamp: Stamp | None = None,
        count: int = 1,
        *,
        token: Token | None = None,
        if_log_end: int | None = None,
        topic_id: int | None = None,
        content: str | None = None,
        message_id: str | None = None,
        fence_epoch: int | None = None,
        principal: str = "",
    ) -> Result | StockadeError:
        message = (content or f"batch {len(self.commands)}").encode()
        now = 1000 + len(self.commands)
        return self.apply(
            Append(
                message=message,
                count=count,
                crc=zlib.crc32(message),
                timestamp_ms=now,
                max_timestamp_ms=now,
                topic_id=topic_id,
                token=token,
                stamp=stamp,
                if_log_end=if_log_end,
                now_ms=self.now_ms,
                fence_epoch=fence_epoch,
                message_id=message_id,
                principal=principal,
            )
        )

    def send(self, pid: int, epoch: int, first_seq: int, count: int = 1) -> Result | StockadeError:
        return self.append(Stamp(pid, epoch, first_seq), count)

    def enrol(self, pid: int, epoch: int = 0, order: int | None = None) -> None:
        """As decided by the controller just now, or at ``order``."""
        self.apply(InstallProducer(pid, epoch, len(self.commands) if order is None else order, self.now_ms))

    def seat(self, number: int, epoch: int, session: str = "s1", mode: str = "Exclusive") -> SlotState:
        result = self.apply(InstallFence(grant(number), epoch, session, "loader", mode, number))
        assert isinstance(result, SlotState)
        return result

    def clear(self, number: int, epoch: int) -> SlotState:
        result = self.apply(ClearFence(grant(number), epoch, number))
        assert isinstance(result, SlotState)
        return result

    def replayed(self) -> PartitionMachine:
        """A fresh machine after the same commands: what a restart makes."""
        machine = PartitionMachine(self.config, MemoryLog())
        for index, command in enumerate(self.commands, 1):
            machine.apply(index, 1, command)
        return machine


def state(machine: PartitionMachine) -> tuple[Any, ...]:
    """Everything replicated, to be compared."""
    stored = [
        (b.base_offset, b.count, b.stamp, b.writer_epoch, b.timestamp_ms, b.max_timestamp_ms, b.crc)
        for b in machine.log.read(machine.log_start, 1 << 40).batches
    ]
    return stored, encode(machine)


def stored(result: Result | StockadeError) -> tuple[int | None, int | None]:
    """Offsets of a batch that was stored by this very request."""
    assert isinstance(result, Appended), result
    assert not result.duplicate
    return result.base_offset, result.last_offset


def repeated(result: Result | StockadeError) -> tuple[int | None, int | None]:
    """Offsets of a batch that an earlier request had stored."""
    assert isinstance(result, Appended), result
    assert result.duplicate
    return result.base_offset, result.last_offset
