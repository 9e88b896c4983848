"""A small world of the owners of a partition: sessions claim it in a group, take it from each other and give it up; the
controller decides, and the partition judges appends by the fence_epoch of its owner.

The network is that of small_world.py: it keeps every install and every report for ever. A claim, or its end, that
arrives late is one more claim, or end.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from simulation.machine_states import ControllerStates, LoadedPartition, PartitionStates
from simulation.small_world import NODE, TTL_MS, Numbered

from stockade.cluster.controller import commands as controller
from stockade.cluster.controller.commands import (
    Acquire,
    CloseSession,
    Command,
    CreateTopic,
    Disown,
    OpenSession,
    Own,
    Owned,
    RaiseFeatureLevel,
    RenewSessions,
    Tick,
)
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.model import Claim
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import Append, Appended, InstallProducer, Stamp, Token
from stockade.partition.config import PartitionConfig
from stockade.partition.errors import StockadeError

GROUP, RESOURCE = "g", "t/0"
SETTLED_AFTER_MAX = 20


class Scope(NamedTuple):
    """What happens in a world. ``generations``: of the claims (None: what is free alone). ``sever``: what a claim that
    takes the partition takes from its owner (resource: that alone; session: all of it, grants too). ``ends``: disown,
    close, expire. ``holds``: sessions acquire exclusive grants of the partition, too. ``writes``: owners append, each
    once with each fence_epoch it ever had.
    """

    generations: tuple[int | None, ...] = (None, 0)
    sever: str = "session"
    ends: tuple[str, ...] = ("disown", "close")
    sessions: str = "ab"
    holds: bool = False
    writes: bool = False
    decisions: int = 4


class Told(NamedTuple):
    """What a session was told: a fence_epoch of the partition, or (``grant``) a fencing epoch."""

    session: str
    epoch: int
    grant: str = ""


class View(NamedTuple):
    """A state of the controller. ``owner``: of the partition, with its fence_epoch. ``is_known``: an answer to a claim
    of the partition, or to its end, would not wait. ``left``: sessions whose close would be answered, if they have
    ended. ``unsevered``: sessions whose claims wait for the ends of others. ``pending``: of the live grants, whether
    the partition may not have it.
    """

    deadlines: dict[str, int]
    clock_ms: int
    owner: tuple[str | None, int]
    is_known: bool
    left: frozenset[str]
    unsevered: frozenset[str]
    pending: dict[str, bool]
    work: tuple[int, ...]


class State(NamedTuple):
    """``told``: all that sessions were ever told; ``severed``: (session, grant) of each grant that a claim of the
    session ended.
    """

    controller: int
    partition: int
    network: frozenset[int]
    told: frozenset[Told]
    severed: frozenset[tuple[str, str]]
    acted: int
    decisions: int


class Action(NamedTuple):
    """One step. The fields that a kind does not need are empty."""

    kind: str
    session: str = ""
    generation: int | None = None
    message: int = -1
    told: Told | None = None


class GroupWorld:
    """The world of the owners of one partition in one group."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.controllers = ControllerStates()
        self.messages = Numbered()
        self._views: dict[int, View] = {}
        self._settled: dict[tuple[int, int], tuple[int, int]] = {}
        machine = ControllerMachine()
        config = TopicConfig(writer_group=GROUP)
        opened = [OpenSession(now_ms=0, session=s, client_id=s, ttl_ms=TTL_MS) for s in scope.sessions]
        level = RaiseFeatureLevel(now_ms=0, level=2, supporting=[])
        topic = CreateTopic(now_ms=0, name="t", partitions=1, replication_factor=None, config=config, nodes=[NODE])
        founding: list[Command] = [level, topic, *opened]
        answers = [self.controllers.tell(machine, command) for command in founding]
        self.topic_id = answers[1].topic_id
        self.partitions = PartitionStates(PartitionConfig(self.topic_id, writer_group=GROUP))
        partition = LoadedPartition(self.partitions.config)
        for epoch in range(1, scope.decisions + 1):
            self.partitions.tell(partition, InstallProducer(_pid(epoch), 0))
        empty = self.partitions.number(partition)
        number = self.controllers.number(machine)
        self._initial = State(number, empty, frozenset(), frozenset(), frozenset(), 0, 0)

    def initial(self) -> State:
        return self._initial

    # What may happen.

    def actions(self, state: State) -> Iterator[Action]:
        if state.decisions < self.scope.decisions:
            view = self._view(state.controller)
            for session in self.scope.sessions[: state.acted + 1]:
                if session in view.deadlines:
                    yield from (Action("claim", session, generation) for generation in self.scope.generations)
                    yield from (Action(kind, session) for kind in self.scope.ends)
                    if self.scope.holds:
                        yield Action("acquire", session)
        for message in sorted(state.network):
            yield Action("deliver", message=message)
        if self.scope.writes:
            yield from (Action("append", told=told) for told in sorted(state.told) if not told.grant)

    # What an action does.

    def take(self, state: State, action: Action) -> State:
        match action.kind:
            case "append":
                number, answer = self.partitions.step(state.partition, action, lambda: [self._append(action)])
                if isinstance(answer, Appended):
                    self.check_writer(state, action.told)
                return state._replace(partition=number)
            case "deliver":
                return self._delivered(state, action)
            case _:
                return self._decided(state, action)

    def _delivered(self, state: State, action: Action) -> State:
        is_report, value = self.messages.values[action.message]
        if is_report:
            number, _ = self.controllers.step(state.controller, action, lambda: [value])
            return self._sent(state._replace(controller=number))
        number, answer = self.partitions.step(state.partition, action, lambda: [value.command])
        report = value.report(answer, 0)
        state = state._replace(partition=number)
        return state if report is None else self._sent(state, self._report(report))

    def _decided(self, state: State, action: Action) -> State:
        before = self._view(state.controller)
        number, answer = self.controllers.step(state.controller, action, self._commands(before, action))
        if number == state.controller:
            return state
        session, told = action.session, set[Told]()
        if isinstance(answer, Owned) and answer.verdicts[0].granted:
            told.add(Told(session, answer.verdicts[0].fence_epoch))
        elif isinstance(answer, controller.GrantState):
            told.add(Told(session, answer.epochs[0], answer.grant_id))
        gone = before.pending.keys() - self._view(number).pending.keys() if action.kind == "claim" else set()
        acted = max(state.acted, 1 + self.scope.sessions.index(session))
        state = state._replace(controller=number, told=state.told | told, acted=acted, decisions=state.decisions + 1)
        return self._sent(state._replace(severed=state.severed | {(session, grant) for grant in gone}))

    def _commands(self, view: View, action: Action) -> Callable[[], Sequence[Command]]:
        now_ms, session, sever = view.clock_ms, action.session, self.scope.sever
        match action.kind:
            case "claim":
                claims = [Claim(RESOURCE, action.generation)]
                own: Any = Own(now_ms=now_ms, session=session, group=GROUP, claims=claims, atomic=False, sever=sever)  # type: ignore[arg-type]
                return lambda: [own]
            case "disown":
                return lambda: [Disown(now_ms=now_ms, session=session, group=GROUP, resources=[RESOURCE])]
            case "acquire":
                asked: dict[str, Any] = {"partitions": [0], "mode": "Exclusive", "producer_name": "p"}
                return lambda: [Acquire(now_ms=now_ms, session=session, topic="t", **asked)]
            case "close":
                return lambda: [CloseSession(now_ms=now_ms, session=session)]
            case _:
                due_ms = view.deadlines[session]
                others = [(other, due_ms + TTL_MS) for other in view.deadlines if other != session]
                return lambda: [RenewSessions(now_ms=now_ms, deadlines_ms=others), Tick(now_ms=due_ms)]

    def _append(self, action: Action) -> Append:
        assert action.told is not None
        epoch = action.told.epoch
        message = f"{action.told.session}{epoch}".encode()
        return Append(message, 1, crc32(message), 0, 0, stamp=Stamp(_pid(epoch), 0, 0), fence_epoch=epoch)

    def _sent(self, state: State, *messages: int) -> State:
        return state._replace(network=state.network.union(messages, self._view(state.controller).work))

    def _report(self, report: Command) -> int:
        return self.messages(controller.encode_command(report), (True, report))

    # What the world looks at.

    def _view(self, number: int) -> View:
        view = self._views.get(number)
        if view is None:
            view = self._views[number] = self._look(self.controllers.machine(number))
        return view

    def _look(self, machine: ControllerMachine) -> View:
        row, everyone = machine.resources.find(GROUP, RESOURCE), self.scope.sessions
        live = {session.session: session.deadline_ms for session in machine.sessions.live()}
        freed = {session: machine.freed(session) for session in everyone if session not in live}
        left = {session for session, due in freed.items() if not self._waits(machine, due.fences, due.readers)}
        unsevered = {session for session in live if self._waits(machine, *machine.severing.outstanding(session))}
        return View(
            live,
            machine.lease_clock_ms,
            (row.owner, row.fence_epoch),
            not machine.owners.pending([(GROUP, RESOURCE)]),
            frozenset(left),
            frozenset(unsevered),
            {grant.grant_id: bool(grant.pending) for grant in machine.slots.grants.by_id.values()},
            tuple(self.messages(repr(work), (False, work)) for work in machine.work()),
        )

    def _waits(self, machine: ControllerMachine, fences: Any, readers: Any) -> bool:
        return not all(map(machine.is_over, fences)) or not all(map(machine.reader_fences.is_installed, readers))

    def _accepts(self, partition: int, told: Told) -> bool:
        machine = self.partitions.machine(partition).machine
        if told.grant:
            return machine.fence.judge(Token(told.grant, told.epoch, told.session), require_fence=False) is None
        return machine.readers.judge(GROUP, told.epoch) is None

    # What must hold.

    def check(self, state: State) -> None:
        """With f a fence_epoch that a session was told:

        - one: no other session was told f
        - known: an answer about the partition would not wait  =>  the partition accepts f if f is that of the present
          owner, and only then
        - left: f's session has ended, and its close would be answered  =>  the partition refuses f, and its grants
        - severed: a claim ended a grant, and would be answered  =>  the partition refuses the grant's token
        - at rest: nothing is due, the partition accepts exactly the owner's f, and no late install changes it
        """
        view, owners = self._view(state.controller), [told for told in state.told if not told.grant]
        assert len({told.epoch for told in owners}) == len(owners), "two sessions have one fence_epoch"
        if view.is_known:
            self.check_owner(view, state.partition, owners, "is known, and t/0 judges otherwise")
        for told in state.told:
            is_out = told.session in view.left or any(
                told.grant == grant and by in view.deadlines and by not in view.unsevered for by, grant in state.severed
            )
            assert not is_out or not self._accepts(state.partition, told), f"{told} has ended, was answered, and writes"
        self.check_settled(state, owners)

    def check_owner(self, view: View, partition: int, owners: Sequence[Told], what: str) -> None:
        """The partition accepts the fence_epoch of its present owner, and no other."""
        for told in owners:
            is_owner = (told.session, told.epoch) == view.owner
            assert self._accepts(partition, told) == is_owner, f"the owner {view.owner} {what}: {told}"

    def check_writer(self, state: State, told: Told | None) -> None:
        """An append is stored  =>  its fence_epoch is accepted, and no later owner wrote before."""
        assert told is not None
        assert self._accepts(state.partition, told), "a former owner writes"
        written = [each.command.fence_epoch or 0 for each in self.partitions.machine(state.partition).log]
        assert max(written, default=0) <= told.epoch, "a former owner writes behind a later one"

    def check_settled(self, state: State, owners: Sequence[Told]) -> None:
        number, partition = self._settle(state.controller, state.partition)
        self.check_owner(self._view(number), partition, owners, "is there at rest, and t/0 judges otherwise")
        for message in state.network:
            is_report, work = self.messages.values[message]
            if not is_report:
                after, _ = self.partitions.step(partition, message, self._command(work))
                assert after == partition, "at rest, a late message changes t/0"

    def _settle(self, number: int, partition: int) -> tuple[int, int]:
        key = number, partition
        if key not in self._settled:
            for _ in range(SETTLED_AFTER_MAX):
                due = self._view(number).work
                if not due:
                    break
                _, work = self.messages.values[due[0]]
                partition, answer = self.partitions.step(partition, due[0], self._command(work))
                report = work.report(answer, 0)
                number, _ = self.controllers.step(number, self._report(report), self._reported(report))
            assert not self._view(number).work, "what is due is never done"
            self._settled[key] = number, partition
        return self._settled[key]

    def _command(self, work: Any) -> Callable[[], Sequence[Any]]:
        return lambda: [work.command]

    def _reported(self, report: Command) -> Callable[[], Sequence[Command]]:
        return lambda: [report]

    # What happened, for people.

    def tell(self, state: State, action: Action) -> str:
        if action.kind == "append":
            answer = self.partitions.answer(state.partition, action)
            told = action.told or Told("", 0)
            return f"{told.session} appends with fence_epoch {told.epoch}: {_outcome(answer)}"
        if action.kind == "deliver":
            is_report, value = self.messages.values[action.message]
            return f"the controller hears {value}" if is_report else f"t/0 gets {value.command}"
        generation = f" with generation {action.generation}" if action.kind == "claim" else ""
        answer = self.controllers.answer(state.controller, action)
        return f"{action.session}: {action.kind}{generation}: {_outcome(answer)}"


def _pid(fence_epoch: int) -> int:
    """The id of the anonymous producer of what is written with a fence_epoch."""
    return 2 * fence_epoch


def _outcome(answer: Any) -> str:
    match answer:
        case StockadeError():
            return answer.code
        case Owned(verdicts=[verdict]):
            return f"{'granted' if verdict.granted else 'not granted'}, fence_epoch {verdict.fence_epoch}"
        case Appended():
            return f"offset {answer.base_offset}"
        case _:
            return type(answer).__name__
