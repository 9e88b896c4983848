"""The states of the real machines, by number, and the steps between them: each state is kept as the bytes that the
machine saves, and each step is made once, by the machine itself, loaded from these bytes.

A step that leaves a machine as it was, but for the index of its last command, leads to the same state: the indexes of a
log may have gaps. So a command that is refused, or repeated, costs no state.
"""

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from memory_log import MemoryLog

from stockade.cluster.controller import commands as controller
from stockade.cluster.controller import invariants as controller_invariants
from stockade.cluster.controller.ledger import SavedLedger
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.ownership.grants import EndedGrants
from stockade.partition import commands as partition
from stockade.partition.commands import Append, Appended
from stockade.partition.config import PartitionConfig
from stockade.partition.errors import StockadeError
from stockade.partition.state import invariants as partition_invariants
from stockade.partition.state import snapshot
from stockade.partition.state.machine import PartitionMachine

Machine = TypeVar("Machine")
Saved = TypeVar("Saved", bound=Hashable)


class States(Generic[Machine, Saved]):
    """The states of one machine, and the answer and the state after each step that was asked for. A subclass says how
    the machine is loaded, saved, told a command and checked. ``ways`` has the step by which each state was found.
    """

    def __init__(self) -> None:
        self.saved: list[Saved] = []
        self.ways: list[tuple[int, Hashable, Sequence[Any]] | None] = []
        self._numbers: dict[Saved, int] = {}
        self._steps: dict[tuple[int, Hashable], tuple[int, Any]] = {}
        self._loaded: tuple[int, Machine] | None = None

    def load(self, saved: Saved) -> Machine:
        raise NotImplementedError

    def save(self, machine: Machine) -> Saved:
        raise NotImplementedError

    def tell(self, machine: Machine, command: Any) -> Any:
        """Apply one command. Returns the machine's answer."""
        raise NotImplementedError

    def is_as(self, machine: Machine, number: int) -> bool:
        """Whether the machine has this state, but for the index of its last command, which it gets then."""
        return self.save(machine) == self.saved[number]

    def found(self, number: int, machine: Machine) -> None:
        """A state was found: check it, and note what is asked of it later."""

    def machine(self, number: int) -> Machine:
        """The machine in this state, to be read; what applies to it has to go through ``step``."""
        if self._loaded is None or self._loaded[0] != number:
            self._loaded = number, self.load(self.saved[number])
        return self._loaded[1]

    def plain(self, machine: Machine) -> None:
        """Make fields equal on which no decision depends, so that ways that differ in these alone meet."""

    def number(self, machine: Machine) -> int:
        """The number of the machine's state. Checks a new one, and that to load it makes no difference."""
        self.plain(machine)
        saved = self.save(machine)
        number = self._numbers.get(saved)
        if number is None:
            number = self._numbers[saved] = len(self.saved)
            self.saved.append(saved)
            self.ways.append(None)
            loaded = self.load(saved)
            assert self.save(loaded) == saved, "a machine that was saved and loaded saves something else"
            self._loaded = number, loaded
            self.found(number, loaded)
        return number

    def step(self, before: int, name: Hashable, commands: Callable[[], Sequence[Any]]) -> tuple[int, Any]:
        """The state after these commands, and the answer to the last one. ``name`` stands for the commands."""
        known = self._steps.get((before, name))
        if known is None:
            machine, asked = self.machine(before), commands()
            self._loaded = None
            answer = [self.tell(machine, command) for command in asked][-1]
            if self.is_as(machine, before):
                self._loaded = before, machine
                after = before
            else:
                assert not isinstance(answer, StockadeError), "a refused command changed something"
                states = len(self.saved)
                after = self.number(machine)
                if after == states:
                    self.ways[after] = before, name, asked
            known = self._steps[before, name] = after, answer
        return known

    def answer(self, before: int, name: Hashable) -> Any:
        """The answer to a step that was made; None if it broke an invariant."""
        return self._steps.get((before, name), (before, None))[1]

    def compare_with_one_life(self) -> int:
        """Repeat the way to every state with a machine that is never saved and loaded: it gives the same answers, and
        has the same state after each step. Returns the number of steps.
        """
        children: dict[int, list[int]] = {}
        for number, way in enumerate(self.ways):
            if way is not None:
                children.setdefault(way[0], []).append(number)
        steps = 0
        for leaf in range(len(self.saved)):
            if leaf not in children:
                steps += self._relive(leaf)
        return steps

    def _relive(self, leaf: int) -> int:
        path = [leaf]
        while (way := self.ways[path[-1]]) is not None:
            path.append(way[0])
        machine = self.load(self.saved[path[-1]])
        for number in reversed(path[:-1]):
            way = self.ways[number]
            assert way is not None
            answers = [self.tell(machine, command) for command in way[2]]
            self.plain(machine)
            assert answers[-1] == self._steps[way[:2]][1], "a machine that was not saved and loaded answers otherwise"
            assert self.save(machine) == self.saved[number], "a machine that was not saved and loaded is another one"
        return len(path) - 1


class NextLeader(NamedTuple):
    """A command of the next leader of the controller, the first of its term."""

    command: controller.Command


NUMBERED = (
    controller.Acquire
    | controller.CreateTopic
    | controller.InitProducer
    | controller.FenceProducer
    | controller.Enrol
    | controller.ForgetNames
)
"""Commands whose index in the log is part of the state, or of an answer."""


class ControllerStates(States[ControllerMachine, bytes]):
    """The states of the controller."""

    def __init__(self) -> None:
        super().__init__()
        self._machine = ControllerMachine()
        self._indexes: list[int] = []

    def load(self, saved: bytes) -> ControllerMachine:
        self._machine.restore(Path("unused"), saved, ())
        return self._machine

    def save(self, machine: ControllerMachine) -> bytes:
        return machine.capture().state

    def plain(self, machine: ControllerMachine) -> None:
        machine.ledger.load(SavedLedger())  # its entries would tell apart all ways to a state
        slots = machine.slots
        for grant in slots.grants.by_id.values():
            grant.operation, grant.at_ms = "acquire", 0
            if not grant.is_shared:
                grant.mode = "Exclusive"
        slots.endings = EndedGrants()
        fences = slots.fences
        for group, decision in fences.due.items():
            fences.due[group] = msgspec.structs.replace(decision, at_ms=0, ends="ended")

    def tell(self, machine: ControllerMachine, command: controller.Command | NextLeader) -> Any:
        term = machine.term
        if isinstance(command, NextLeader):
            term, command = term + 1, command.command
        index = machine.applied_index + isinstance(command, NUMBERED)
        return machine.apply(index, term, controller.encode_command(command))

    def is_as(self, machine: ControllerMachine, number: int) -> bool:
        index, machine.applied_index = machine.applied_index, self._indexes[number]
        if self.save(machine) == self.saved[number]:
            return True
        machine.applied_index = index
        return False

    def found(self, number: int, machine: ControllerMachine) -> None:
        self._indexes.append(machine.applied_index)
        controller_invariants.check(machine)


class Written(NamedTuple):
    """A batch of a partition's log: its command, and the place (epoch, order) and the mode of the slot at that time."""

    command: Append
    place: tuple[int, int]
    mode: str | None


class SavedPartition(NamedTuple):
    """A partition's state: the machine's bytes, and the log."""

    state: bytes
    log: tuple[Written, ...]


class LoadedPartition:
    """A partition's machine with its log."""

    def __init__(self, config: PartitionConfig, log: tuple[Written, ...] = ()) -> None:
        self.machine = PartitionMachine(config, MemoryLog())
        self.log = log
        for written in log:
            self.machine.log.append(written.command, written.place[0])

    @property
    def place(self) -> tuple[int, int]:
        """Where the slot is in the order of decisions."""
        return self.machine.topic_epoch, self.machine.fence.grant_index


class PartitionStates(States[LoadedPartition, SavedPartition]):
    """The states of a partition; they are the same for every partition of a topic.

    How many writes of a former holder were refused is counted for people: no answer depends on it, so states that
    differ in these counts alone are one.
    """

    def __init__(self, config: PartitionConfig, *, may_be_unknown: bool = False) -> None:
        """``may_be_unknown``: whether a certificate may say that it does not know."""
        super().__init__()
        self.config = config
        self.may_be_unknown = may_be_unknown

    def load(self, saved: SavedPartition) -> LoadedPartition:
        loaded = LoadedPartition(self.config, saved.log)
        snapshot.put_back(loaded.machine, snapshot.decode(saved.state))
        return loaded

    def save(self, machine: LoadedPartition) -> SavedPartition:
        self.plain(machine)
        return SavedPartition(snapshot.encode(machine.machine), machine.log)

    def plain(self, machine: LoadedPartition) -> None:
        fence = machine.machine.fence
        fence.tenures.ended.clear()
        fence.taken_at.clear()
        fence.placed_at = fence.placed_after = None

    def tell(self, machine: LoadedPartition, command: partition.Command) -> Any:
        place, mode, end = machine.place, machine.machine.fence.mode, machine.machine.log_end
        answer = machine.machine.apply(0, 1, partition.encode_command(command))
        assert machine.place >= place, "the place of a slot went back"
        if isinstance(command, Append):
            self._judged(machine, command, answer, Written(command, place, mode))
        else:
            assert machine.machine.log_end == end, "a command that is no append stored something"
        return answer

    def _judged(self, machine: LoadedPartition, command: Append, answer: Any, written: Written) -> None:
        """Only an append that is answered with new offsets is stored, and that at the end of the log. The answer to a
        duplicate has the offset of the same batch. A certificate says of a batch what the log says.
        """
        end, stored = len(machine.log), [each.command.message for each in machine.log]
        if isinstance(answer, Appended) and not answer.duplicate:
            assert answer.base_offset == end, "an append is not at the end of the log"
            machine.log = (*machine.log, written)
        elif isinstance(answer, Appended):
            assert answer.base_offset is not None, "the offset of a batch is forgotten"
            assert stored[answer.base_offset] == command.message, "a duplicate has the offset of another batch"
        elif isinstance(answer, StockadeError) and (outcome := answer.fields.get("outcome")) is not None:
            is_stored = command.message in stored
            if outcome["state"] == "unknown" and self.may_be_unknown:
                return
            assert outcome["state"] == ("committed" if is_stored else "absent"), "a certificate is wrong"
            assert not is_stored or stored[outcome["base_offset"]] == command.message, (
                "a certificate has another offset"
            )
        assert machine.machine.log_end == len(machine.log), "a refused append, or a duplicate, was stored"

    def found(self, number: int, machine: LoadedPartition) -> None:
        partition_invariants.check(machine.machine)
        messages = [written.command.message for written in machine.log]
        assert len(set(messages)) == len(messages), "a batch is stored twice"
        for before, after in zip(machine.log, machine.log[1:], strict=False):
            assert before.place <= after.place, "the places of the slot go down along the log"
            if before.place == after.place and after.mode not in (None, "Shared"):
                assert before.command.token is not None
                assert after.command.token is not None
                writers = {before.command.token.grant_id, after.command.token.grant_id}
                assert len(writers) == 1, "two grants wrote between two fences"
