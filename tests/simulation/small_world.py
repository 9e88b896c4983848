"""A small world of the real machines: one controller, partitions and sessions, and a network that may do what it likes.
The explorer visits all of its states.

The network keeps every message for ever. An install that any leader of the controller may send is there as soon as it
is due, a partition's report as soon as the partition has answered; each may arrive never, late, twice and in any order.
A client may send each of its batches with every token that it was ever given, at any time and again: so a lost answer
with its retry, a stalled writer that wakes up, and a late duplicate are the same step.

Sessions differ in their names alone. So a session does something only when the one before it in the alphabet has: each
way that is left out is one of those explored, under other names.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from msgspec.structs import replace
from simulation.machine_states import ControllerStates, LoadedPartition, NextLeader, PartitionStates

from stockade.cluster.controller import commands as controller
from stockade.cluster.controller.commands import (
    Acquire,
    CancelTicket,
    ChangeTopic,
    CloseSession,
    Command,
    CreateTopic,
    FenceInstalled,
    FenceSession,
    FenceTopic,
    OpenSession,
    RaiseFeatureLevel,
    Release,
    RenewSessions,
    Tick,
)
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.ownership.slots import SlotInstall
from stockade.cluster.controller.topology.catalog import topic_partition
from stockade.partition.api.ledger import session_handle
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import Append, Appended, InstallProducer, Stamp, Token
from stockade.partition.config import PartitionConfig
from stockade.partition.errors import StockadeError

TTL_MS = 10_000
SETTLED_AFTER_MAX = 100
"""Installs and reports after which nothing is due any more."""
NODE = "n1", None
EXCLUSIVE, FENCING, WAIT, SHARED = "Exclusive", "ExclusiveWithFencing", "WaitForExclusive", "Shared"


class Scope(NamedTuple):
    """What happens in a world. ``sets``: the sets of partitions that are acquired (empty: all of the topic, also later
    ones). ``ends``: how grants end, besides takeovers (release, close, expire, evict, fence, cancel); and term: the
    controller gets another leader. ``resumes``: acquires name the epoch of the session's last grant, too. ``batches``:
    of each session on each partition. ``unfenced``: there is a writer without a token. ``decisions``: the most commands
    of sessions and operators that change the controller. ``prompt``: all that is due is done after each of these.
    ``partitions_max``: partitions are added up to this number.
    """

    sessions: str = "ab"
    partitions: int = 1
    sets: tuple[tuple[int, ...], ...] = ((0,),)
    modes: tuple[str, ...] = (EXCLUSIVE, FENCING, WAIT, SHARED)
    ends: tuple[str, ...] = ("release", "expire")
    resumes: bool = False
    batches: int = 0
    unfenced: bool = False
    decisions: int = 3
    prompt: bool = False
    partitions_max: int = 1


class Held(NamedTuple):
    """A grant as its session was told of it: the epoch of its token on each of its partitions."""

    grant: str
    session: str
    mode: str
    order: int
    epochs: tuple[tuple[int, int], ...]

    def token(self, partition: int) -> Token:
        return Token(self.grant, dict(self.epochs)[partition], self.session)


class GrantView(NamedTuple):
    """A live grant. ``pending``: the partitions that are not known to have it."""

    session: str
    mode: str
    partitions: tuple[int, ...]
    pending: frozenset[int]


class View(NamedTuple):
    """A state of the controller, as far as the world looks at it. ``deadlines``: of the live sessions. ``uncleared``:
    grants that have ended and that a partition may still have, by the answers to a release or a close.
    """

    clock_ms: int
    term: int
    deadlines: dict[str, int]
    grants: dict[str, GrantView]
    held: tuple[int, ...]
    tickets: dict[str, tuple[str, list[int]]]
    work: tuple[int, ...]
    uncleared: frozenset[tuple[int, str]]


class State(NamedTuple):
    """``partitions``, ``controller``: numbers of states of machines. ``network``: all messages that were ever sent;
    ``held``: all grants that sessions were ever given. ``acted``: the sessions that have done something.
    """

    controller: int
    partitions: tuple[int, ...]
    network: frozenset[int]
    held: frozenset[int]
    acted: int
    decisions: int


class Action(NamedTuple):
    """One step. The fields that a kind does not need are empty."""

    kind: str
    session: str = ""
    mode: str = ""
    places: tuple[int, ...] = ()
    grant: str = ""
    resume: int | None = None
    number: int = -1
    batch: int = 0


class Numbered:
    """Values by number, each once: equal keys are one value."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, key: Hashable, value: Any) -> int:
        number = self._numbers.setdefault(key, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class SmallWorld:
    """The world of the slots: who may write, decided by the controller and judged by the partitions."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.controllers = ControllerStates()
        self.messages = Numbered()
        self.helds = Numbered()
        self._views: dict[int, View] = {}
        self._verdicts: dict[tuple[int, int, int], bool] = {}
        self._settled: dict[tuple[int, tuple[int, ...]], tuple[int, tuple[int, ...]]] = {}
        self._kept: set[tuple[int, ...]] = set()
        self._served: set[int] = set()
        self.topic_id = 0
        self._begin()

    def _begin(self) -> None:
        machine = ControllerMachine()
        level = RaiseFeatureLevel(now_ms=0, level=2, supporting=[])
        topic = CreateTopic(
            now_ms=0,
            name="t",
            partitions=self.scope.partitions,
            replication_factor=None,
            config=TopicConfig(),
            nodes=[NODE],
        )
        opened = [OpenSession(now_ms=0, session=s, client_id=s, ttl_ms=TTL_MS) for s in self.scope.sessions]
        founding: list[Command] = [level, topic, *opened]
        answers = [self.controllers.tell(machine, command) for command in founding]
        self.topic_id = answers[1].topic_id
        self.partitions = PartitionStates(PartitionConfig(self.topic_id))
        empty = LoadedPartition(self.partitions.config)
        for session in (*self.scope.sessions, "-"):
            self.partitions.tell(empty, InstallProducer(_pid(session), 0))
        view = self._view(self.controllers.number(machine))
        place = self.partitions.number(empty)
        self._new_partition = place
        partitions = (place,) * self.scope.partitions
        self._initial = State(0, partitions, frozenset(view.work), frozenset(view.held), 0, 0)

    def initial(self) -> State:
        return self._initial

    # What may happen.

    def actions(self, state: State) -> Iterator[Action]:
        if state.decisions < self.scope.decisions:
            view = self._view(state.controller)
            for number, session in enumerate(self.scope.sessions[: state.acted + 1], 1):
                for action in self._of_session(session, view, state):
                    yield action._replace(number=number)
            yield from self._of_no_session(state)
        for message in sorted(state.network):
            yield Action("deliver", number=message)
        for held in sorted(state.held):
            epochs = self.helds.values[held].epochs
            for partition, _ in epochs:
                for batch in range(self.scope.batches):
                    yield Action("append", places=(partition,), number=held, batch=batch)
        if self.scope.unfenced:
            for partition in range(len(state.partitions)):
                yield Action("append", places=(partition,))

    def _of_no_session(self, state: State) -> Iterator[Action]:
        if "fence" in self.scope.ends:
            for places in self.scope.sets:
                yield Action("fence", places=places)
        if "term" in self.scope.ends:
            yield Action("term")
        if len(state.partitions) < self.scope.partitions_max:
            yield Action("grow", batch=len(state.partitions) + 1)

    def _of_session(self, session: str, view: View, state: State) -> Iterator[Action]:
        if session not in view.deadlines:
            return
        mine = [self.helds.values[held] for held in sorted(state.held)]
        mine = [held for held in mine if held.session == session]
        for places in self.scope.sets:
            for mode in self.scope.modes:
                yield Action("acquire", session, mode, places)
                if self.scope.resumes and mine and mode != SHARED:
                    epoch = max(epoch for _, epoch in mine[-1].epochs)
                    yield Action("acquire", session, mode, places, resume=epoch)
        ends = self.scope.ends
        if "release" in ends:
            for held in mine:
                yield Action("release", session, grant=held.grant)
        if "cancel" in ends and session in view.tickets:
            yield Action("cancel", session, grant=view.tickets[session][0])
        for kind in ("close", "expire", "evict"):
            if kind in ends:
                yield Action(kind, session)

    # What an action does.

    def take(self, state: State, action: Action) -> State:
        if action.kind == "append":
            partition = action.places[0]
            after, answer = self._at(state, partition, action, lambda: [self._append(action)])
            if isinstance(answer, Appended):
                self.check_writer(self._view(state.controller), partition, state.partitions[partition], action.number)
            return after
        if action.kind != "deliver":
            after = self._decide(state, action, lambda: self._commands(state, action))
            if after.controller == state.controller:
                return state
            if action.kind == "acquire":
                self.check_line(state, action, self.controllers.answer(state.controller, action))
            elif action.kind == "term":
                self.check_term(self._view(state.controller), self._view(after.controller))
            elif action.kind == "grow":
                after = after._replace(partitions=(*after.partitions, self._new_partition))
            if self.scope.prompt:
                number, partitions = self._settle(after)
                after = after._replace(controller=number, partitions=partitions, network=frozenset())
            acted = max(state.acted, action.number)
            return after._replace(acted=acted, decisions=state.decisions + 1)
        kind, partition, value = self.messages.values[action.number]
        if kind == "report":
            return self._decide(state, action, _these(value))
        state, answer = self._at(state, partition, action, _these(value.command))
        report = value.report(answer, 0)
        return state if report is None else self._sent(state, (self._report(partition, report),))

    def _decide(self, state: State, action: Action, commands: Callable[[], Sequence[Command | NextLeader]]) -> State:
        after, _ = self.controllers.step(state.controller, action, commands)
        view = self._view(after)
        held = state.held if state.held.issuperset(view.held) else self._latest(state.held.union(view.held))
        return self._sent(state._replace(controller=after, held=held), view.work)

    def _latest(self, held: frozenset[int]) -> frozenset[int]:
        """Each grant as its session was told of it last: with the partitions that were added meanwhile."""
        ascending = sorted(held, key=lambda index: len(self.helds.values[index].epochs))
        return frozenset({self.helds.values[index].grant: index for index in ascending}.values())

    def _sent(self, state: State, messages: tuple[int, ...]) -> State:
        if state.network.issuperset(messages):
            return state
        return state._replace(network=state.network.union(messages))

    def _at(
        self, state: State, partition: int, action: Action, commands: Callable[[], Sequence[Any]]
    ) -> tuple[State, Any]:
        before = state.partitions
        after, answer = self.partitions.step(before[partition], action._replace(places=()), commands)
        if after == before[partition]:
            return state, answer
        return state._replace(partitions=(*before[:partition], after, *before[partition + 1 :])), answer

    def _commands(self, state: State, action: Action) -> list[Command | NextLeader]:
        view, session = self._view(state.controller), action.session
        now_ms = view.clock_ms
        if action.kind == "expire":
            due_ms = view.deadlines[session]
            others = [(other, due_ms + TTL_MS) for other in view.deadlines if other != session]
            return [RenewSessions(now_ms=now_ms, deadlines_ms=others), Tick(now_ms=due_ms)]
        if action.kind == "acquire":
            return [self._acquire(now_ms, action)]
        made: dict[str, Callable[[], Command | NextLeader]] = {
            "release": lambda: Release(now_ms=now_ms, session=session, grant_id=action.grant),
            "cancel": lambda: CancelTicket(now_ms=now_ms, session=session, ticket_id=action.grant),
            "close": lambda: CloseSession(now_ms=now_ms, session=session),
            "evict": lambda: FenceSession(now_ms=now_ms, handle=session_handle(session)),
            "fence": lambda: FenceTopic(now_ms=now_ms, topic="t", partitions=list(action.places) or None),
            "term": lambda: NextLeader(Tick(now_ms=max(view.deadlines.values(), default=now_ms))),
            "grow": lambda: self._grow(now_ms, action.batch),
        }
        return [made[action.kind]()]

    def _acquire(self, now_ms: int, action: Action) -> Acquire:
        return Acquire(
            now_ms=now_ms,
            session=action.session,
            topic="t",
            partitions=list(action.places) or None,
            mode=action.mode,
            producer_name="p",
            resume_epoch=action.resume,
        )

    def _grow(self, now_ms: int, partitions: int) -> ChangeTopic:
        return ChangeTopic(
            now_ms=now_ms, name="t", topic_id=None, partitions=partitions, seal=False, config={}, nodes=[NODE]
        )

    def _append(self, action: Action) -> Append:
        held = self.helds.values[action.number] if action.number >= 0 else None
        session = held.session if held is not None else "-"
        message = f"{session}{action.batch}".encode()
        return Append(
            message,
            1,
            crc32(message),
            0,
            0,
            token=held.token(action.places[0]) if held is not None else None,
            stamp=Stamp(_pid(session), 0, action.batch),
        )

    # What the world looks at.

    def _view(self, number: int) -> View:
        view = self._views.get(number)
        if view is None:
            view = self._views[number] = self._look(self.controllers.machine(number))
        return view

    def _look(self, machine: ControllerMachine) -> View:
        slots = machine.slots
        grants = {
            grant.grant_id: GrantView(grant.session, grant.mode, tuple(grant.partitions), frozenset(grant.pending))
            for grant in slots.grants.by_id.values()
        }
        departed = slots.fences.departed_names()
        uncleared = frozenset(
            (topic_partition(fence.group_id)[1], name)
            for name in departed
            for fence in slots.fences.uncleared(grants=[name])
        )
        return View(
            machine.lease_clock_ms,
            machine.term,
            {session.session: session.deadline_ms for session in machine.sessions.live()},
            grants,
            tuple(self._hold(slots.state(grant)) for grant in slots.grants.by_id.values()),
            {ticket.session: (ticket.ticket_id, ticket.partitions) for ticket in slots.queue.by_id.values()},
            tuple(self._install(work) for work in machine.work() if isinstance(work, SlotInstall)),
            uncleared,
        )

    def _hold(self, grant: Any) -> int:
        epochs = tuple(zip(grant.partitions, grant.epochs, strict=True))
        held = Held(grant.grant_id, grant.session, grant.mode, grant.grant_index, epochs)
        return self.helds(held, held)

    def _install(self, work: SlotInstall) -> int:
        partition = topic_partition(work.group_id)[1]
        return self.messages(repr(work), ("install", partition, work))

    def _report(self, partition: int, report: Command) -> int:
        if isinstance(report, FenceInstalled):  # where the log ended is for the ledger
            report = replace(report, log_end=None, previous=None)
        return self.messages(controller.encode_command(report), ("report", partition, report))

    def accepts(self, partition: int, number: int, held: int) -> bool:
        """Whether a partition in this state takes a write with the token of a grant."""
        key = partition, number, held
        verdict = self._verdicts.get(key)
        if verdict is None:
            token, fence = self.helds.values[held].token(partition), self.partitions.machine(number).machine.fence
            verdict = self._verdicts[key] = fence.judge(token, require_fence=False) is None
        return verdict

    # What must hold.

    def check(self, state: State) -> None:
        view = self._view(state.controller)
        for partition, number in enumerate(state.partitions):
            self.check_slot(view, partition, number, state.held)
        self.check_settled(state)
        if view.tickets and state.controller not in self._served:
            self._served.add(state.controller)
            for session in view.tickets:
                self.check_progress(state.controller, session)

    def check_slot(self, view: View, partition: int, number: int, held: frozenset[int]) -> None:
        """With A the grants whose tokens the partition p accepts, and g, h any grants that ever were:

        - alone: g in A and g exclusive  =>  A = {g}
        - usable: g lives and p is known to have g  =>  g in A
        - fenced: h lives, is exclusive and p is known to have h  =>  A = {h}
        - ended: g has ended, and an answer to its end would not wait for p  =>  g not in A
        """
        here = [index for index in held if any(place == partition for place, _ in self.helds.values[index].epochs)]
        accepted = {self.helds.values[index] for index in here if self.accepts(partition, number, index)}
        assert len(accepted) < 2 or all(grant.mode == SHARED for grant in accepted), "an exclusive writer is not alone"
        names = {grant.grant for grant in accepted}
        for name, grant in view.grants.items():
            if partition in grant.partitions and partition not in grant.pending:
                assert name in names, f"{name} is in force on t/{partition}, and is refused"
                assert grant.mode == SHARED or names == {name}, f"{name} is in force, and an older grant writes"
        for name in names:
            gone = name not in view.grants and (partition, name) not in view.uncleared
            assert not gone, f"{name} has ended, its end was answered, and it writes to t/{partition}"

    def check_writer(self, view: View, partition: int, number: int, held: int) -> None:
        """An append is answered with an offset, be it new or that of a duplicate  =>  its token is accepted; without a
        token: no exclusive grant has the slot, and none lives that the partition is known to have.
        """
        if held >= 0:
            assert self.accepts(partition, number, held), "a fenced writer is answered as if it were not"
        else:
            mode = self.partitions.machine(number).machine.fence.mode
            assert mode in (None, SHARED), "a write without a token beside an exclusive grant"
            for name, grant in view.grants.items():
                is_there = partition in grant.partitions and partition not in grant.pending
                assert not is_there or grant.mode == SHARED, f"a write without a token where {name} is in force"

    def check_line(self, state: State, action: Action, answer: Any) -> None:
        """An acquire is granted at once, and takes nothing over  =>  no session waits for any of its partitions."""
        if isinstance(answer, controller.GrantState) and action.mode != FENCING:
            places = set(action.places or range(len(state.partitions)))
            for session, (_, partitions) in self._view(state.controller).tickets.items():
                assert not places & set(partitions), f"{action.session} passes {session}, which waits"

    def check_term(self, before: View, after: View) -> None:
        """The controller gets another leader, however late  =>  no session ends, and what is due stays due."""
        assert after.deadlines.keys() == before.deadlines.keys(), "a new leader ends a session"
        assert (after.grants, after.tickets, after.work) == (before.grants, before.tickets, before.work)

    def check_settled(self, state: State) -> None:
        """When all that is due has been done, nothing is due, and each partition accepts exactly the live grants on it;
        then no message that was ever sent changes a partition: an ended grant does not come back.
        """
        number, partitions = self._settle(state)
        view = self._view(number)
        for partition, there in enumerate(partitions):
            live = {name for name, grant in view.grants.items() if partition in grant.partitions}
            for index in state.held:
                held = self.helds.values[index]
                if any(place == partition for place, _ in held.epochs):
                    is_in = self.accepts(partition, there, index)
                    assert is_in == (held.grant in live), f"at rest t/{partition} judges {held.grant} otherwise"
        for message in state.network:
            kind, partition, work = self.messages.values[message]
            if kind == "install" and (partitions[partition], message) not in self._kept:
                self._kept.add((partitions[partition], message))
                after, _ = self.partitions.step(
                    partitions[partition], Action("deliver", number=message), _these(work.command)
                )
                assert after == partitions[partition], f"at rest, a late message changes t/{partition}"

    def _settle(self, state: State) -> tuple[int, tuple[int, ...]]:
        key = state.controller, state.partitions
        if key not in self._settled:
            rest = state
            for _ in range(SETTLED_AFTER_MAX):
                view = self._view(rest.controller)
                if not view.work:
                    break
                _, partition, work = self.messages.values[view.work[0]]
                rest, answer = self._at(rest, partition, Action("deliver", number=view.work[0]), _these(work.command))
                report = work.report(answer, 0)
                assert report is not None, "a partition refuses the install that is due"
                rest = self._decide(rest, Action("deliver", number=self._report(partition, report)), _these(report))
            assert not self._view(rest.controller).work, "what is due is never done"
            self._settled[key] = rest.controller, rest.partitions
        return self._settled[key]

    def check_progress(self, number: int, session: str) -> None:
        """A live session waits  =>  it is granted once the sessions end that hold its partitions, or get them first."""
        view = self._view(number)
        while session in view.tickets:
            ending = sorted({grant.session for grant in view.grants.values()})
            assert ending, f"{session} waits, and no grant is in its way"
            assert session not in ending, f"{session} holds while it waits"
            for other in ending:
                action = Action("close", other)
                number, _ = self.controllers.step(number, action, _these(CloseSession(now_ms=0, session=other)))
            view = self._view(number)
        assert any(grant.session == session for grant in view.grants.values()), f"{session} waits no more, for nothing"

    # What happened, for people.

    def tell(self, state: State, action: Action) -> str:
        if action.kind == "append":
            return self._told_of_append(state, action)
        if action.kind == "deliver":
            return self._told_of_message(action)
        places = ", ".join(f"t/{place}" for place in action.places)
        resumes = f" resuming epoch {action.resume}" if action.resume is not None else ""
        what = [f"{action.session or 'the operator'}: {action.kind}", places, action.mode + resumes, action.grant]
        return f"{' '.join(filter(None, what))}: {_outcome(self.controllers.answer(state.controller, action))}"

    def _told_of_append(self, state: State, action: Action) -> str:
        held = self.helds.values[action.number] if action.number >= 0 else None
        place = action.places[0]
        answer = self.partitions.answer(state.partitions[place], action._replace(places=()))
        writer = "a writer without a token" if held is None else f"{held.session} with {held.grant}"
        return f"{writer} appends batch {action.batch} to t/{place}: {_outcome(answer)}"

    def _told_of_message(self, action: Action) -> str:
        kind, partition, value = self.messages.values[action.number]
        if kind == "report":
            return f"the controller hears that t/{partition} has decision {value.order}"
        command = value.command
        grant = getattr(command, "grant_id", "") or "no new grant"
        decision = f"decision {command.grant_index}, epoch {command.epoch}"
        return f"t/{partition} gets {type(command).__name__} of {grant}: {decision}"


def _these(*commands: Any) -> Callable[[], Sequence[Any]]:
    return lambda: commands


def _outcome(answer: Any) -> str:
    match answer:
        case None:
            return "this step"
        case StockadeError():
            return answer.code
        case Appended():
            return f"offset {answer.base_offset}{', a duplicate' if answer.duplicate else ''}"
        case controller.GrantState():
            return f"{answer.grant_id}, decision {answer.grant_index}, epochs {answer.epochs}"
        case controller.TicketState():
            return f"ticket {answer.ticket_id}"
        case _:
            return type(answer).__name__


def _pid(session: str) -> int:
    """The id of an anonymous producer."""
    return 2 * ord(session)
