"""While commits stall, the leader hears of sessions all the same, and ends none of which it has heard (SEMANTICS 8)."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from stockade.cluster.access.store import PrincipalStore
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.topology.catalog import CONTROLLER_GROUP
from stockade.cluster.features import Features
from stockade.cluster.leader.controller_group import ControllerGroup
from stockade.cluster.leader.session_service import SessionService
from stockade.partition.api.ownership import SessionInfo
from stockade.partition.errors import UnknownSession
from stockade.raft.core.group import Group, Outcome

from ..fakes import FakeGroup

TTL_MS = 5_000
STALL_MS = 7_000


class StallingGroup(FakeGroup):
    """Commits and applies what was proposed, in its order, when ``commits`` is set; each proposal sets ``asked``."""

    def __init__(self, machine: ControllerMachine) -> None:
        super().__init__(CONTROLLER_GROUP, {"n1": 1}, machine)
        self.commits, self.asked = asyncio.Event(), asyncio.Event()
        self.commits.set()

    async def propose(self, command: bytes, timeout_s: float) -> Outcome:
        self.asked.set()
        await self.commits.wait()
        return await super().propose(command, timeout_s)


class Leader:
    """Leads a group whose commits stall; ``now_ms`` is its own time."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.control = ControllerGroup(
            lambda machine: cast(Group, StallingGroup(machine)),
            Features(),
            {},
            60.0,
            PrincipalStore(Path("nowhere")),
            lambda node_id: True,
        )
        self.control._monotonic = lambda: self.now_ms / 1000
        self.group = cast(StallingGroup, self.control.group)
        self.sessions = SessionService(self.control)

    async def keep(self, until_ms: int) -> None:
        """Keep the lease clock up to this time, five times a second."""
        while self.now_ms < until_ms:
            await self.control._keep_leases(self.group.term)
            self.now_ms += 200

    async def asked_in_a_stall(self, ask: Callable[[], Awaitable[SessionInfo]]) -> SessionInfo:
        """The answer to what is asked when commits have stalled for STALL_MS, and end to 200 ms later."""
        self.group.commits.clear()
        keeping = asyncio.create_task(self.control._keep_leases(self.group.term))
        await asyncio.sleep(0)
        assert not keeping.done(), "nothing is to be written"
        self.now_ms += STALL_MS
        self.group.asked.clear()
        asked = asyncio.ensure_future(ask())
        await self.group.asked.wait()
        self.now_ms += 200
        self.group.commits.set()
        await keeping
        return await asked

    def lives(self, session: str) -> bool:
        return session in {each.session for each in self.control.machine.sessions.live()}


async def stalling() -> Leader:
    """A leader that has to write a renewal now."""
    leader = Leader()
    await leader.keep(200)
    heard = await leader.sessions.open_session("heard", TTL_MS)
    await leader.keep(1_000)
    await leader.sessions.renew_session(heard.session)
    await leader.keep(TTL_MS - 600)
    return leader


async def outlives(leader: Leader, answered: SessionInfo) -> None:
    assert answered.remaining_ms == TTL_MS - 200
    await leader.keep(answered.deadline_ms - 200)
    assert leader.lives(answered.session)
    await leader.keep(answered.deadline_ms + 1_000)
    assert not leader.lives(answered.session)


def test_a_leader_whose_commits_stall_ends_no_session_whose_renewal_went_through_the_log() -> None:
    async def scenario() -> None:
        leader = await stalling()
        [session] = [each.session for each in leader.control.machine.sessions.live()]
        await outlives(leader, await leader.asked_in_a_stall(lambda: leader.sessions.renew_session(session)))

    asyncio.run(scenario())


def test_a_session_that_is_opened_while_commits_stall_has_its_full_ttl() -> None:
    async def scenario() -> None:
        leader = await stalling()
        await outlives(leader, await leader.asked_in_a_stall(lambda: leader.sessions.open_session("new", TTL_MS)))

    asyncio.run(scenario())


def test_a_session_that_has_ended_is_refused_while_commits_stall() -> None:
    async def scenario() -> None:
        leader = await stalling()
        [session] = [each.session for each in leader.control.machine.sessions.live()]

        async def close_and_renew() -> SessionInfo:
            closing = asyncio.create_task(leader.sessions.close_session(session))
            try:
                return await leader.sessions.renew_session(session)
            finally:
                await closing

        with pytest.raises(UnknownSession):
            await leader.asked_in_a_stall(close_and_renew)
        assert not leader.lives(session)

    asyncio.run(scenario())
