"""The real state machines in the simulator: group 1 is a partition, group 2 the controller.

Whatever Raft does to them, every replica must answer alike, keep the invariants of SEMANTICS 2, and be, when it was
restored from a checkpoint, what a replay of all commands makes of it, byte for byte (I6).
"""

import sys
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

from memory_log import MemoryLog
from simulation.world import Process, Remembering, Setting, World

from stockade.cluster.controller import invariants as controller_invariants
from stockade.cluster.controller.machine import ControllerMachine
from stockade.partition.commands import Append, Appended, decode_command
from stockade.partition.config import PartitionConfig
from stockade.partition.state import invariants as partition_invariants
from stockade.partition.state import snapshot
from stockade.partition.state.machine import PartitionMachine
from stockade.raft.machine import FileExtent, Image

PARTITION, CONTROLLER = 1, 2
"""Group ids."""
TOPIC_ID = 7
MARK = b"|"
"""A command is a number, the mark and the bytes for the machine: so no two are equal, though they say the same."""
CHECK_EVERY = 16
"""A walk over the whole state follows every so many commands, every restart and the end."""


class RealPartition:
    """A partition over a log in memory."""

    def __init__(self) -> None:
        self.machine = PartitionMachine(PartitionConfig(TOPIC_ID, max_producers=4), MemoryLog())
        self.log = self.machine.log

    def apply(self, index: int, term: int, body: bytes) -> object:
        return self.machine.apply(index, term, body)

    def check(self) -> None:
        partition_invariants.check(self.machine)

    def content(self) -> tuple[bytes, object]:
        batches = self.log.read(self.log.log_start, sys.maxsize)
        return snapshot.encode(self.machine), (batches.batches, batches.messages())

    def messages(self) -> list[bytes]:
        """What the log holds, in order."""
        return self.log.read(self.log.log_start, sys.maxsize).messages()

    def restored(self) -> "RealPartition":
        """Another one, made of this one's captured bytes and its log."""
        other = RealPartition()
        snapshot.put_back(other.machine, snapshot.decode(snapshot.encode(self.machine)))
        other.machine.log = other.log = deepcopy(self.log)
        return other


class RealController:
    """The controller."""

    def __init__(self) -> None:
        self.machine = ControllerMachine()
        self._monotonicity = controller_invariants.MonotonicityCheck()

    def apply(self, index: int, term: int, body: bytes) -> object:
        return self.machine.apply(index, term, body)

    def check(self) -> None:
        controller_invariants.check(self.machine)
        self._monotonicity.check(self.machine)

    def content(self) -> tuple[bytes, object]:
        return self.machine.capture().state, None

    def restored(self) -> "RealController":
        """Another one, made of this one's captured bytes."""
        other = RealController()
        other.machine.restore(None, self.machine.capture().state, ())
        return other


KINDS: dict[int, type[RealPartition | RealController]] = {PARTITION: RealPartition, CONTROLLER: RealController}


class RealMachine(Remembering):
    """A real machine in the place of the plain one, which goes on remembering what was applied."""

    def __init__(self, process: Process, group_id: int) -> None:
        super().__init__(process)
        self._world: RealWorld = process.world  # type: ignore[assignment]
        self._group_id = group_id
        self.bundles &= group_id == PARTITION
        self.real = KINDS[group_id]()

    def apply(self, index: int, term: int, command: bytes) -> object:
        answer = super().apply(index, term, command)
        body = command.partition(MARK)[2]
        result = self.real.apply(index, term, body)
        self._world.answered(self._group_id, command, result)
        if len(self.applied) % CHECK_EVERY == 0:
            self.check()
        return answer

    def check(self) -> None:
        try:
            self.real.check()
        except AssertionError as error:
            self._world.checker.require(False, f"{self._process.node_id}: {error}")

    def capture(self) -> Image:
        image = super().capture()
        self._world.captured[image.state] = self.real.restored()
        return image

    def restore(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None:
        super().restore(directory, state, files)
        self.real = self._world.captured[state].restored()
        replayed = KINDS[self._group_id]()
        for index, term, command in self.applied:
            replayed.apply(index, term, command.partition(MARK)[2])
        same = self.real.content() == replayed.content()
        self._world.checker.require(same, f"{self._process.node_id}: restored, and not what a replay makes of it")
        self.check()


class RealWorld(World):
    """A world whose groups run real machines. ``floors`` are told by who proposes: command -> lowest epoch allowed."""

    def __init__(self, seed: int, setting: Setting) -> None:
        self.captured: dict[bytes, RealPartition | RealController] = {}
        self.floors: dict[bytes, int] = {}
        self.results: dict[tuple[int, bytes], object] = {}
        """What the machine of a group answered to a command."""
        super().__init__(seed, setting)

    def new_machine(self, process: Process, group_id: int) -> Remembering:
        return RealMachine(process, group_id)

    def answered(self, group_id: int, command: bytes, result: object) -> None:
        """A replica applied a command. Every replica answers alike, also the second time."""
        known = self.results.setdefault((group_id, command), result)
        self.checker.require(known == result, f"two answers to {command!r}: {known} and {result}")
        if known is result and isinstance(result, Appended) and not result.duplicate:
            append = decode_command(command.partition(MARK)[2])
            assert isinstance(append, Append)
            floor = self.floors.get(command, 0)
            fenced = append.token is None or append.token.epoch >= floor
            self.checker.require(fenced, f"an append of an epoch below {floor}, asked for when its grant had ended")

    def check_ends(self) -> None:
        """When all is quiet: nothing acknowledged is missing, nothing is there twice, all replicas are equal."""
        for group_id in self.group_ids:
            machines = [process.machines[group_id] for process in self.processes.values()]
            end = max(len(each.applied) for each in machines)
            whole = [each for each in machines if isinstance(each, RealMachine) and len(each.applied) == end]
            for each in whole:
                each.check()
            contents = [each.real.content() for each in whole]
            self.checker.require(all(one == contents[0] for one in contents), f"replicas of group {group_id} differ")
            if isinstance(whole[0].real, RealPartition):
                self._check_partition(whole[0].real)

    def _check_partition(self, partition: RealPartition) -> None:
        messages = partition.messages()
        self.checker.require(len(set(messages)) == len(messages), "a batch is in the log twice")
        stored = {batch.base_offset for batch in partition.log.read(partition.log.log_start, sys.maxsize).batches}
        for (group_id, _), result in self.results.items():
            if group_id == PARTITION and isinstance(result, Appended) and result.base_offset is not None:
                self.checker.require(result.base_offset in stored, f"acknowledged offset {result.base_offset} is gone")
