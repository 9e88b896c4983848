"""A small world of the members of a group: the real client's look at the group, and the real controller.

A look is one step, answered in full. Besides, each claim that a member ever sent may arrive once more at any time, also
behind its repetition and behind the end of what that had got: a node that stood still may pass it on.
"""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from simulation.machine_states import ControllerStates
from simulation.small_world import NODE, TTL_MS

from stockade.client.consumer.group import GroupReading, _Claim, free_member
from stockade.cluster.controller.commands import (
    CloseSession,
    Command,
    CreateTopic,
    Disown,
    OpenSession,
    Own,
    RaiseFeatureLevel,
)
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.leader.resource_service import ResourceService
from stockade.cluster.model import Claim
from stockade.partition.api.ownership import Resource
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import StockadeError

GROUP = "g"
LOOKS_MAX = 6
"""Looks of each member after which it no longer changes anything."""


class Member(NamedTuple):
    """A member's own view: its number, and the partitions that it reads. ``sent``: the resources it ever claimed."""

    number: str = ""
    reads: tuple[str, ...] = ()
    sent: frozenset[str] = frozenset()


class State(NamedTuple):
    """``members``: None for one that has closed its session. ``late``: how many claims may still come late."""

    controller: int
    members: tuple[Member | None, ...]
    late: int


class Action(NamedTuple):
    """One step of a member: look, close, or late: its claim of ``resource`` arrives once more."""

    kind: str
    member: int
    resource: str = ""


class MemberWorld:
    """Members that share the partitions of one topic. ``late``: how many claims come late."""

    def __init__(self, members: int, partitions: int, late: int) -> None:
        self.partitions, self.late = partitions, late
        self.controllers = ControllerStates()
        self._looks: dict[tuple[int, int, Member], tuple[int, Member]] = {}
        machine = ControllerMachine()
        opened = [OpenSession(now_ms=0, session=f"s{n}", client_id="c", ttl_ms=TTL_MS) for n in range(members)]
        level = RaiseFeatureLevel(now_ms=0, level=2, supporting=[])
        topic = CreateTopic(
            now_ms=0, name="t", partitions=partitions, replication_factor=None, config=TopicConfig(), nodes=[NODE]
        )
        founding: list[Command] = [level, topic, *opened]
        for command in founding:
            self.controllers.tell(machine, command)
        self._initial = State(self.controllers.number(machine), (Member(),) * members, late)

    def initial(self) -> State:
        return self._initial

    def actions(self, state: State) -> Iterator[Action]:
        for number, member in enumerate(state.members):
            if member is not None:
                yield Action("look", number)
                yield Action("close", number)
                if state.late:
                    yield from (Action("late", number, resource) for resource in sorted(member.sent))

    def take(self, state: State, action: Action) -> State:
        member, session = state.members[action.member], f"s{action.member}"
        assert member is not None
        if action.kind == "look":
            number, after = self._look(state.controller, action.member, member)
            return self._with(state._replace(controller=number), action.member, after)
        if action.kind == "close":
            number = self._tell(state.controller, CloseSession(now_ms=0, session=session))
            return self._with(state._replace(controller=number), action.member, None)
        number = self._tell(state.controller, _own(session, [action.resource]))
        return state._replace(controller=number, late=state.late - 1)

    def _with(self, state: State, number: int, member: Member | None) -> State:
        return state._replace(members=(*state.members[:number], member, *state.members[number + 1 :]))

    def _tell(self, number: int, command: Command) -> int:
        return self.controllers.step(number, repr(command), lambda: [command])[0]

    def _look(self, number: int, member_number: int, member: Member) -> tuple[int, Member]:
        key = number, member_number, member
        if key not in self._looks:
            cluster = Cluster(self, number, f"s{member_number}")
            after = asyncio.run(cluster.look(member))
            self._looks[key] = cluster.number, after._replace(sent=member.sent | cluster.claimed)
        return self._looks[key]

    def check(self, state: State) -> None:
        """When each member has looked a few times, and no claim comes late any more: each session owns its number and
        what its member reads, and nothing else; each partition has a reader; shares differ by one at most.
        """
        before: State | None = None
        for _ in range(LOOKS_MAX):
            before = state
            for number, member in enumerate(state.members):
                if member is not None:
                    state = self.take(state, Action("look", number))
            if state == before:
                break
        assert state == before, "members never come to rest"
        resources, shares = self.controllers.machine(state.controller).resources, []
        for number, member in enumerate(state.members):
            if member is not None:
                owned = {resource for _, resource in resources.owned_by(f"s{number}")}
                assert owned == {member.number, *member.reads}, f"s{number} owns {owned}, and reads {member.reads}"
                shares.append(len(member.reads))
        assert not shares or sum(shares) == self.partitions, "a partition has no reader"
        assert not shares or max(shares) - min(shares) <= 1, "the shares are not equal"

    def tell(self, state: State, action: Action) -> str:
        what = f"s{action.member}: {action.kind} {action.resource}".rstrip()
        if action.kind != "look":
            return what
        member = state.members[action.member]
        assert member is not None
        after = self._look(state.controller, action.member, member)[1]
        return f"{what}: it is {after.number} and reads {', '.join(after.reads) or 'nothing'}"


class Cluster:
    """What a member asks, answered by the controller's machine; ``number`` is its state."""

    def __init__(self, world: MemberWorld, number: int, session: str) -> None:
        self.config = SimpleNamespace(connections_max=8, session_ttl_ms=TTL_MS)
        self.number, self.claimed = number, set[str]()
        self._world, self._session = world, session

    async def look(self, member: Member) -> Member:
        """The member after the client's own look at the group."""
        reading = GroupReading(self, SimpleNamespace(id=self._session), GROUP, "t", 1, "earliest")  # type: ignore[arg-type]
        reading._member = member.number
        if not member.number:
            reading._member = free_member("t", await self.resources(GROUP))
            [verdict] = await self.own(GROUP, self._session, [reading._member])
            assert verdict.granted
        reading._claims = {resource: _Claim.of(resource) for resource in member.reads}
        with patch.object(GroupReading, "_read", _reads_nothing):
            await reading._share()
            await reading.end()
        assert not reading._leaving
        assert not reading._unanswered
        return Member(reading._member, tuple(sorted(reading._claims)))

    async def topic(self, name: str) -> Any:
        partitions = [SimpleNamespace(partition=number) for number in range(self._world.partitions)]
        return SimpleNamespace(topic_id=1, partitions=partitions)

    async def resources(self, group: str) -> list[Resource]:
        control: Any = SimpleNamespace(machine=self._world.controllers.machine(self.number))
        service = ResourceService(control)
        return service._those(group, sorted(control.machine.resources.rows.get(group, ())))

    async def own(self, group: str, session: str, names: list[str], **_: Any) -> list[Any]:
        self.claimed.update(names)
        return self._ask(_own(session, names))

    async def disown(self, group: str, session: str, name: str, **_: Any) -> None:
        self._ask(Disown(now_ms=0, session=session, group=group, resources=[name]))

    def _ask(self, command: Command) -> list[Any]:
        self.number, answer = self._world.controllers.step(self.number, repr(command), lambda: [command])
        if isinstance(answer, StockadeError):
            raise answer
        verdicts: list[Any] = answer.verdicts
        return verdicts


def _own(session: str, names: list[str]) -> Own:
    return Own(now_ms=0, session=session, group=GROUP, claims=[Claim(name) for name in names], atomic=False)


async def _reads_nothing(reading: GroupReading, claim: _Claim) -> None:
    """In place of a member's reads."""
