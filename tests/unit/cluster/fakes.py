"""A Raft host in memory: one node leads every group, a proposal is applied at once. Attributes inject faults."""

import tempfile
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any

from stockade.raft.core.group import Committed, NotLeader, Outcome, Rejected, Unknown
from stockade.raft.log.configuration import Configuration
from stockade.raft.machine import Machine
from stockade.raft.messages import Software


class FakeGroup:
    """Applies what is proposed. ``leading`` False: another node leads. ``lose``: the next proposals end unknown,
    applied (True) or not (False).
    """

    def __init__(self, group_id: int, founders: Mapping[str, int], machine: Machine) -> None:
        self.group_id = group_id
        self.configuration = Configuration(dict(founders))
        self.changing = False
        self.machine = machine
        self.leading = True
        self.is_ready = True
        self.is_leaderless = False
        self.lose: list[bool] = []
        self.proposed: list[bytes] = []
        self.on_applied: Callable[[FakeGroup], None] | None = None
        self._index = 1
        self._term = 1

    @property
    def voters(self) -> tuple[str, ...]:
        return tuple(self.configuration.voters)

    @property
    def is_leader(self) -> bool:
        return self.leading

    @property
    def lags(self) -> Mapping[str, int]:
        return {}

    @property
    def leader(self) -> str | None:
        if self.is_leaderless:
            return None
        return self.voters[0] if self.leading else "other"

    @property
    def term(self) -> int:
        return self._term

    @property
    def commit_index(self) -> int:
        return self._index

    @property
    def applied_index(self) -> int:
        return self._index

    @property
    def ready(self) -> bool:
        return self.is_ready

    async def propose(self, command: bytes, timeout_s: float) -> Outcome:
        if not self.leading:
            return Rejected(self.leader, self._term)
        self.proposed.append(command)
        lost = self.lose.pop(0) if self.lose else None
        if lost is not None and not lost:
            return Unknown(None)
        self._index += 1
        result = self.machine.apply(self._index, self._term, command)
        if self.on_applied is not None:
            self.on_applied(self)
        return Unknown(self._index) if lost else Committed(self._index, self._term, result)

    def step_down(self) -> None:
        self.leading = False

    async def read_barrier(self, timeout_s: float) -> None:
        if not self.leading:
            raise NotLeader(self.leader, self._term)


class FakeHost:
    """The part of RaftHost that the cluster floor uses."""

    def __init__(self, scratch: Path | None = None) -> None:
        """Machines with files keep them in ``scratch``."""
        self.groups: dict[int, FakeGroup] = {}
        self.incarnation = 11
        self.tls = None
        self.incarnations: dict[str, int] = {}
        self.disk, self.disks = 0, dict[str, int]()
        self.connected: set[str] = set()
        self.has_met_others = True
        self.bugs = 0
        self.calls: list[str] = []
        self.departed: set[int] = set()
        self.software = Software()
        self.softwares: dict[str, Software] = {}
        self.level = 1
        self.room_for_copies: Callable[[], float] = lambda: inf
        self.room_at_start: Callable[[], float] = self.room_for_copies
        self._scratch = scratch
        self.failures: list[BaseException] = []

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)

    def software_of(self, node_id: str) -> Software | None:
        return self.software if node_id == "n1" else self.softwares.get(node_id)

    async def raise_level(self, level: int) -> None:
        self.level = max(self.level, level)

    def serve(self, handler: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        """No node calls this one."""

    def open_group(self, group_id: int, founders: Mapping[str, int], machine: Machine) -> FakeGroup:
        machine.start(Path(tempfile.mkdtemp(dir=self._scratch)))
        group = FakeGroup(group_id, founders, machine)
        self.groups[group_id] = group
        return group

    async def erase_group(self, group_id: int) -> None:
        self.groups.pop(group_id, None)
        self.departed.add(group_id)

    async def forget_tombstones(self, is_gone: Callable[[int], bool]) -> None:
        self.departed = {group for group in self.departed if not is_gone(group)}

    def pace_copies(self, bytes_per_s: int) -> None:
        """There are no copies."""

    def spare_disk(self, *, is_low: bool, is_full: bool) -> None:
        """There is nothing on disk."""

    async def call(self, node_id: str, payload: bytes, timeout_s: float) -> bytes:
        self.calls.append(node_id)
        raise ConnectionError(node_id)

    def set_peer(self, node_id: str, address: tuple[str, int], former: tuple[str, int] | None = None) -> None:
        """It connects to no node."""

    def remove_peer(self, node_id: str) -> None:
        """It is connected to no node."""

    async def start(self) -> None:
        self.room_at_start = self.room_for_copies

    async def stop(self) -> None: ...


def fake(group: Any) -> FakeGroup:
    """A group of a FakeHost, with its knobs."""
    assert isinstance(group, FakeGroup)
    return group
