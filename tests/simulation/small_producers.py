"""A small world of a producer's name: instances that take it over from each other, an operator that fences it, and the
partitions that learn of it when it writes there first.

The network is that of small_world.py: every install and every report that was ever sent may arrive at any time, and
again. So may the install that follows an enrolment. A partition may forget the producer, and the controller the name.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from zlib import crc32

from simulation.machine_states import ControllerStates, LoadedPartition, PartitionStates
from simulation.small_world import NODE, Numbered

from stockade.cluster.controller.commands import (
    Command,
    CreateTopic,
    Enrol,
    Enrolled,
    FenceProducer,
    ForgetNames,
    InitProducer,
    ProducerState,
    RaiseFeatureLevel,
)
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.ownership.work import ProducerWithdrawal
from stockade.cluster.controller.producers import NAME_TTL_MS
from stockade.cluster.controller.topology.catalog import group_id, topic_partition
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import Append, Appended, InstallProducer, Retain, Stamp
from stockade.partition.config import PartitionConfig
from stockade.partition.errors import StockadeError

NAME = "n"
TTL_MS = 10
"""After which a partition forgets a producer."""
SETTLED_AFTER_MAX = 20


class Scope(NamedTuple):
    """What happens in a world. ``batches``: of each pair that an instance is given, on each partition. ``bumps``: an
    instance asks for its next epoch. ``fences``: an operator fences the name. ``forgets``: partitions forget the
    producer, each once, and the controller the name. ``decisions``: the most commands that change the controller.
    """

    instances: str = "ab"
    partitions: int = 1
    batches: int = 0
    bumps: bool = False
    fences: bool = False
    forgets: bool = False
    decisions: int = 4


class Pair(NamedTuple):
    """A pair that an instance was told, perhaps before all partitions knew of it."""

    instance: str
    pid: int
    epoch: int


class View(NamedTuple):
    """A state of the controller. ``pair``: of the name; None: it is not known. ``waits``: the answer with the pair
    would wait for a partition.
    """

    clock_ms: int
    applied: int
    pair: tuple[int, int] | None
    waits: bool
    settled: tuple[tuple[int, ...], ...]
    work: tuple[int, ...]


class State(NamedTuple):
    controller: int
    partitions: tuple[int, ...]
    network: frozenset[int]
    told: frozenset[Pair]
    decisions: int


class Action(NamedTuple):
    """One step. The fields that a kind does not need are empty."""

    kind: str
    instance: str = ""
    partition: int = -1
    number: int = -1
    pair: Pair | None = None


class ProducerWorld:
    """The world of one producer's name."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.controllers = ControllerStates()
        self.messages = Numbered()
        self._views: dict[int, View] = {}
        self._settled: set[tuple[int, tuple[int, ...]]] = set()
        machine = ControllerMachine()
        level = RaiseFeatureLevel(now_ms=0, level=2, supporting=[])
        topic = CreateTopic(
            now_ms=0,
            name="t",
            partitions=scope.partitions,
            replication_factor=None,
            config=TopicConfig(),
            nodes=[NODE],
        )
        self.topic_id = [self.controllers.tell(machine, command) for command in (level, topic)][1].topic_id
        config = PartitionConfig(self.topic_id, producer_ttl_ms=TTL_MS)
        self.partitions = PartitionStates(config, may_be_unknown=True)
        empty = self.partitions.number(LoadedPartition(config))
        number = self.controllers.number(machine)
        self._initial = State(number, (empty,) * scope.partitions, frozenset(), frozenset(), 0)

    def initial(self) -> State:
        return self._initial

    # What may happen.

    def actions(self, state: State) -> Iterator[Action]:
        if state.decisions < self.scope.decisions:
            yield from (Action("begin", instance) for instance in self.scope.instances)
            if self.scope.bumps:
                yield from (Action("bump", pair.instance, pair=pair) for pair in sorted(state.told))
            if self.scope.fences:
                yield Action("fence")
            if self.scope.forgets:
                yield Action("forget")
            for pid in sorted({pair.pid for pair in state.told}):
                for partition, number in enumerate(state.partitions):
                    if pid not in self._entries(number):
                        yield Action("enrol", partition=partition, number=pid)
        for message in sorted(state.network):
            yield Action("deliver", number=message)
        for partition, number in enumerate(state.partitions):
            for pair in sorted(state.told):
                yield from (Action("append", "", partition, batch, pair) for batch in range(self.scope.batches))
            if self.scope.forgets:
                yield from self._forgetting(state, partition, number)

    def _forgetting(self, state: State, partition: int, number: int) -> Iterator[Action]:
        if self._entries(number) and not self.partitions.machine(number).machine.clock_ms:
            yield Action("idle", partition=partition)
        if self._view(state.controller).settled[partition]:
            yield Action("ask", partition=partition)

    def _entries(self, number: int) -> Any:
        return self.partitions.machine(number).machine.producers.entries

    # What an action does.

    def take(self, state: State, action: Action) -> State:
        match action.kind:
            case "append":
                return self._at(state, action.partition, action, lambda: self._append(action))[0]
            case "idle":
                retain = Retain(before=0, now_ms=TTL_MS)
                return self._at(state, action.partition, action, lambda: retain)[0]
            case "ask":
                return self._sent(state, self._question(state, action.partition))
            case "deliver":
                kind, partition, value = self.messages.values[action.number]
                if kind == "report":
                    return self._reported(state, value)
                state, answer = self._installed(state, action.number)
                report = None if isinstance(value, InstallProducer) else value.report(answer, 0)
                return state if report is None else self._sent(state, self._message("report", partition, report))
            case _:
                return self._decided(state, action)

    def _at(self, state: State, partition: int, action: Action, command: Callable[[], Any]) -> tuple[State, Any]:
        name, before = action._replace(partition=-1), state.partitions
        after, answer = self.partitions.step(before[partition], name, lambda: [command()])
        return state._replace(partitions=(*before[:partition], after, *before[partition + 1 :])), answer

    def _installed(self, state: State, message: int) -> tuple[State, Any]:
        _, partition, value = self.messages.values[message]
        command = value if isinstance(value, InstallProducer) else value.command
        return self._at(state, partition, Action("deliver", number=message), lambda: command)

    def _reported(self, state: State, report: Command) -> State:
        number, _ = self.controllers.step(state.controller, repr(report), lambda: [report])
        return self._sent(state._replace(controller=number))

    def _decided(self, state: State, action: Action) -> State:
        number, answer = self.controllers.step(
            state.controller, action, lambda: [self._command(self._view(state.controller), action)]
        )
        if isinstance(answer, StockadeError) or (number == state.controller and not isinstance(answer, Enrolled)):
            return state
        state, told = state._replace(controller=number, decisions=state.decisions + 1), state.told
        if isinstance(answer, ProducerState) and action.kind != "fence":
            told = told | {Pair(action.instance, answer.pid, answer.epoch)}
        elif isinstance(answer, Enrolled):
            install = InstallProducer(answer.pid, answer.epoch, answer.order, 0, answer.principal)
            return self._sent(state, self._message("install", action.partition, install))
        return self._sent(state._replace(told=told))

    def _command(self, view: View, action: Action) -> Command:
        now_ms, pair = view.clock_ms, None if action.pair is None else action.pair[1:]
        match action.kind:
            case "begin":
                return InitProducer(now_ms=now_ms, name=NAME, nonce=action.instance)
            case "bump":
                return InitProducer(now_ms=now_ms, name=NAME, pair=pair)
            case "fence":
                return FenceProducer(now_ms=now_ms, name=NAME)
            case "forget":
                return ForgetNames(now_ms=now_ms + NAME_TTL_MS, names=[NAME])
            case _:
                return Enrol(now_ms=now_ms, pid=action.number, group_id=group_id(self.topic_id, action.partition))

    def _append(self, action: Action) -> Append:
        assert action.pair is not None
        _, pid, epoch = action.pair
        message = f"{pid}-{epoch}-{action.number}".encode()
        return Append(message, 1, crc32(message), 0, 0, stamp=Stamp(pid, epoch, action.number))

    def _question(self, state: State, partition: int) -> int:
        view, group = self._view(state.controller), group_id(self.topic_id, partition)
        return self._message(
            "install", partition, ProducerWithdrawal(group, list(view.settled[partition]), view.applied)
        )

    def _message(self, kind: str, partition: int, value: Any) -> int:
        return self.messages(repr((kind, partition, value)), (kind, partition, value))

    def _sent(self, state: State, *messages: int) -> State:
        return state._replace(network=state.network.union(messages, self._view(state.controller).work))

    # What the world looks at.

    def _view(self, number: int) -> View:
        view = self._views.get(number)
        if view is None:
            view = self._views[number] = self._look(self.controllers.machine(number))
        return view

    def _look(self, machine: ControllerMachine) -> View:
        registry, places = machine.registry, range(self.scope.partitions)
        found, groups = registry.find(NAME), [group_id(self.topic_id, place) for place in places]
        enrolments = registry.enrolments
        return View(
            machine.lease_clock_ms,
            machine.applied_index,
            None if found is None else (found.pid, found.epoch),
            found is not None and bool(found.pending),
            tuple(tuple(enrolments.settled_on(group, enrolments.enrolled_on(group))) for group in groups),
            tuple(self._message("install", topic_partition(work.group_id)[1], work) for work in machine.work()),
        )

    # What must hold.

    def check(self, state: State) -> None:
        """With (pid, e) any pair that an instance was told:

        - fenced: the answer with the present pair would not wait, or the name is forgotten  =>  no partition accepts
          (pid, e), unless it is the present pair
        - one: no two instances were told one pair
        - it ends: what is due can be done

        That no batch is stored twice, and none before an earlier one, the states of partitions check.
        """
        view = self._view(state.controller)
        assert len({pair[1:] for pair in state.told}) == len(state.told), "two instances have one pair"
        if not view.waits:
            for pair in state.told:
                for partition, number in enumerate(state.partitions):
                    entry = self._entries(number).get(pair.pid)
                    is_in = entry is not None and entry.run.epoch == pair.epoch
                    assert not is_in or pair[1:] == view.pair, f"{pair} is fenced, and writes to t/{partition}"
        self.check_settled(state)

    def check_settled(self, state: State) -> None:
        key = state.controller, state.partitions
        if key in self._settled:
            return
        self._settled.add(key)
        for _ in range(SETTLED_AFTER_MAX):
            due = self._view(state.controller).work
            if not due:
                return
            state, answer = self._installed(state, due[0])
            state = self._reported(state, self.messages.values[due[0]][2].report(answer, 0))
        raise AssertionError("what is due is never done")

    # What happened, for people.

    def tell(self, state: State, action: Action) -> str:
        if action.kind == "deliver":
            kind, partition, value = self.messages.values[action.number]
            return f"the controller hears {value}" if kind == "report" else f"t/{partition} gets {value}"
        if action.kind in ("append", "idle", "ask"):
            pair = "" if action.pair is None else f" of {action.pair}, batch {action.number}"
            answer = self.partitions.answer(state.partitions[action.partition], action._replace(partition=-1))
            return f"t/{action.partition}: {action.kind}{pair}: {_outcome(answer)}"
        return f"{action.instance or '-'}: {action.kind}: {_outcome(self.controllers.answer(state.controller, action))}"


def _outcome(answer: Any) -> str:
    match answer:
        case StockadeError():
            return answer.code
        case ProducerState():
            return f"{answer.pid}, epoch {answer.epoch}"
        case Appended():
            return f"offset {answer.base_offset}"
        case _:
            return type(answer).__name__
