"""``Session.own`` that is cancelled: the session owns no more than before, whenever the cancellation comes."""

import asyncio
from typing import Any

import pytest

from stockade.client.api.client import Client
from stockade.client.api.grants import OwnRequest
from stockade.client.session.acquiring import Acquiring
from stockade.client.session.session import Session
from stockade.partition.api.ownership import OwnResult

from ..fake_cluster import FakeCluster, Fault
from .test_acquiring import use


async def cancelled_while_asking(cluster: FakeCluster, session: Session, *resources: str, **how: Any) -> None:
    """Return when the request was cancelled, while the cluster has not carried it out."""
    count = len([path for path in cluster.paths("POST") if path.endswith("/own")])
    owning = asyncio.create_task(session.own("g", list(resources), **how))
    await cluster.seen("POST", count + 1, "/own")
    owning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owning


def owned(cluster: FakeCluster) -> dict[str, str]:
    """The owners by resource."""
    return {name: row.owner for (_, name), row in cluster.owned.items() if row.owner is not None}


@pytest.mark.parametrize("fault", [Fault.HOLD, Fault.HOLD_AND_LOSE_REPLY, Fault.HOLD_AND_LOSE_REQUEST])
@pytest.mark.parametrize("atomic", [True, False])
def test_a_cancelled_own_owns_nothing(cluster: FakeCluster, fault: Fault, atomic: bool) -> None:
    async def work(_: Client, session: Session) -> None:
        cluster.own_faults = [fault]
        await cancelled_while_asking(cluster, session, "a", "b", atomic=atomic)
        cluster.release_held()
        await session.own("other", "c")  # waits until nothing of the cancelled one is left
        assert set(owned(cluster)) == {"c"}

    use(cluster, work)


def test_a_cancelled_own_of_unknown_outcome_takes_over_no_later_ownership(cluster: FakeCluster) -> None:
    async def work(client: Client, session: Session) -> None:
        cluster.own_faults = [Fault.HOLD_AND_LOSE_REQUEST]
        await cancelled_while_asking(cluster, session, "a", generation=0)
        async with Session(client, "you") as yours:
            held = await yours.own("g", "a")
            cluster.release_held()
            await session.own("other", "c")
            assert (owned(cluster)["a"], held.error) == (yours.id, None)

    use(cluster, work)


def test_a_cancelled_own_leaves_earlier_ownerships(cluster: FakeCluster) -> None:
    async def work(_: Client, session: Session) -> None:
        before = await session.own("g", "a")
        cluster.own_faults = [Fault.HOLD]
        await cancelled_while_asking(cluster, session, "a", "b")
        cluster.release_held()
        await session.own("other", "c")
        assert (set(owned(cluster)), before.error) == ({"a", "c"}, None)

    use(cluster, work)


def test_a_concurrent_own_keeps_the_resource_that_both_were_answered_with(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when its answer has not reached the session yet as the other one is undone."""
    ask, until_known = OwnRequest.ask, Acquiring._until_known

    async def work(_: Client, session: Session) -> None:
        answered, may_return, undoing = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slow(request: OwnRequest, *arguments: Any, **how: Any) -> list[OwnResult]:
            answer = await ask(request, *arguments, **how)
            if request.resources == ["a"]:
                answered.set()
                await may_return.wait()
            return answer

        async def noted(*arguments: Any) -> None:
            undoing.set()
            await until_known(*arguments)

        monkeypatch.setattr(OwnRequest, "ask", slow)
        monkeypatch.setattr(Acquiring, "_until_known", noted)
        other = asyncio.create_task(session.own("g", "a"))
        await answered.wait()
        cluster.own_faults = [Fault.HOLD]
        await cancelled_while_asking(cluster, session, "a", "b")
        cluster.release_held()
        await undoing.wait()
        may_return.set()
        held = await other
        await session.own("other", "c")
        assert (set(owned(cluster)), held.error) == ({"a", "c"}, None)
        assert [path.partition("=")[2] for path in cluster.paths("DELETE") if "/own" in path] == ["b"]

    use(cluster, work)


def test_a_generation_that_it_took_is_given_up_though_the_session_owned_the_one_before(cluster: FakeCluster) -> None:
    async def work(_: Client, session: Session) -> None:
        before = await session.own("g", "a", generation=1)
        cluster.own_faults = [Fault.HOLD]
        await cancelled_while_asking(cluster, session, "a", generation=5)
        cluster.release_held()
        await session.own("other", "c")
        assert set(owned(cluster)) == {"c"}
        assert before.fence_epoch < cluster.owned["g", "a"].fence_epoch

    use(cluster, work)


def test_a_call_that_waits_for_its_turn_asks_after_the_undo_of_another(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else the undo would give up what the one that waits was granted meanwhile."""
    monkeypatch.setattr("stockade.client.session.session.ASK_AGAIN_S", 0.001)
    ask = OwnRequest.ask

    async def work(client: Client, session: Session) -> None:
        begun, may_take, undoing, may_undo = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
        disown = client.disown

        async def taking_over(request: OwnRequest, *arguments: Any, **how: Any) -> list[OwnResult]:
            if request.generation == 0:
                begun.set()
                await may_take.wait()
            return await ask(request, *arguments, **how)

        async def slow(*arguments: Any, **how: Any) -> None:
            undoing.set()
            await may_undo.wait()
            await disown(*arguments, **how)

        monkeypatch.setattr(OwnRequest, "ask", taking_over)
        async with Session(client, "you") as yours:
            await yours.own("g", "a")
            waiting = asyncio.create_task(session.own("g", "a", wait=True))
            given_up = asyncio.create_task(session.own("g", "a", generation=0))
            await begun.wait()
            given_up.cancel()
            monkeypatch.setattr(client, "disown", slow)
            may_take.set()
            await undoing.wait()
            await asyncio.wait([waiting], timeout=0.1)  # it could ask a hundred times
            may_undo.set()
            held = await waiting
            await session._acquiring.undone()
            assert (owned(cluster), held.error) == ({"a": session.id}, None)
            assert cluster.owned["g", "a"].fence_epoch == held.fence_epoch

    use(cluster, work)


def test_a_cancelled_own_of_many_disowns_them_in_few_requests_except_those_of_other_sessions(
    cluster: FakeCluster,
) -> None:
    async def work(client: Client, session: Session) -> None:
        names = [f"r{number:03}" for number in range(500)]
        async with Session(client, "you") as yours:
            theirs = await yours.own("g", names[7])
            cluster.own_faults = [None, Fault.HOLD_AND_LOSE_REPLY]
            await session.own("other", "c")
            await cancelled_while_asking(cluster, session, *names, atomic=False)
            cluster.release_held()
            await session.own("other", "d")
            assert owned(cluster) == {names[7]: yours.id, "c": session.id, "d": session.id}
            assert theirs.error is None
            assert len([path for path in cluster.paths("DELETE") if "/own" in path]) < 400

    use(cluster, work)


def test_a_session_that_is_closed_meanwhile_does_not_wait_for_the_answer(cluster: FakeCluster) -> None:
    async def work(client: Client, _: Session) -> None:
        async with Session(client, "short") as session:
            cluster.own_faults = [Fault.HOLD]
            await cancelled_while_asking(cluster, session, "a")
        assert session.id not in cluster.sessions
        cluster.release_held()
        assert owned(cluster) == {}

    use(cluster, work)
