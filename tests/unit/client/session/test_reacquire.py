"""``Session(reacquire=...)``: what was lost is acquired again under a new epoch, and the application is told."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.errors import ClientClosed
from stockade.client.session.held import Ownership
from stockade.client.session.session import Fence, Session
from stockade.partition.api.ownership import Ticket
from stockade.partition.errors import (
    InconsistentTopicId,
    InvalidRequest,
    NotOwner,
    ProducerFenced,
    SessionExpired,
    StockadeError,
)

from ..fake_cluster import FakeCluster, Fault

PATIENCE_S = 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.client.session.reacquire.ASK_AGAIN_S", 0.01)


def use(cluster: FakeCluster, work: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Client(ClientConfig(bootstrap=tuple(cluster.nodes), retry_backoff_ms=1)) as client:
            async with asyncio.timeout(PATIENCE_S):
                await work(client)

    asyncio.run(run())


def test_an_expired_session_is_replaced_and_its_leases_are_acquired_again_under_new_epochs(
    cluster: FakeCluster,
) -> None:
    cluster.create("t", 2)
    told: list[Fence | Ownership] = []

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000, reacquire=told.append) as session:
            fence, owned, first_id = await session.acquire("t"), await session.own("g", "r"), session.id
            cluster.close_session(first_id)
            again, owned_again = await fence.again(), await owned.again()
            assert isinstance(fence.error, StockadeError)
            assert fence.token(0).session == first_id, "the lost one stays what it was"
            assert (again.epoch, again.error, again.grant.partitions) == (fence.epoch + 1, None, [0, 1])
            assert (owned_again.resource, owned_again.error) == ("r", None)
            assert owned_again.fence_epoch > owned.fence_epoch
            assert session.id != first_id
            assert session.error is None
            assert not session.lost.is_set()
            assert set(told) == {again, owned_again}
        assert cluster.sessions == {}

    use(cluster, work)


def test_a_newer_owner_that_came_between_is_not_evicted_and_the_next_epoch_is_higher_than_its(
    cluster: FakeCluster,
) -> None:
    cluster.create("t")
    told: list[Fence | Ownership] = []

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000, reacquire=told.append) as session:
            fence = await session.acquire("t", mode="ExclusiveWithFencing")
            posts = len(cluster.paths("POST"))
            cluster.take_over("t")
            await fence.lost.wait()
            assert isinstance(fence.error, ProducerFenced)
            await cluster.seen("POST", posts + 1)
            assert told == []
            assert cluster.machine("t", 0).topic_epoch == fence.epoch + 1
            [newer] = [grant.grant_id for grant in cluster.grants.values()]
            cluster.release(newer)
            again = await fence.again()
            assert again.epoch == fence.epoch + 2
            assert told == [again]

    use(cluster, work)


def test_a_reacquired_fence_is_reacquired_after_each_loss(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000, reacquire=lambda _: None) as session:
            fence = await session.acquire("t")
            for _ in range(3):
                cluster.close_session(session.id)
                fence = await fence.again()
            assert fence.epoch == 4
            assert len(session._fences) == 1, "lost ones are not remembered"

    use(cluster, work)


@pytest.mark.parametrize("error", [ValueError("the application's"), asyncio.CancelledError()], ids=repr)
def test_a_callback_may_be_a_coroutine_and_its_exceptions_are_logged(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    """CancelledError: of a task for which it waits. Its session held the grant then, and `again` raised the loss."""
    cluster.create("t")

    async def told(_: Fence | Ownership) -> None:
        raise error

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000, reacquire=told) as session:
            fence = await session.acquire("t")
            cluster.close_session(session.id)
            assert (await fence.again()).error is None

    use(cluster, work)
    assert "reacquire callback failed" in caplog.text


def test_a_watcher_that_looks_at_a_cancelled_task_holds_up_the_loss_of_no_other_fence(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Its CancelledError ended the session's renewal in the midst of the loss: other fences never heard of it."""
    cluster.create("t", 2)

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000) as session:
            fences = [await session.acquire("t", [partition]) for partition in range(2)]
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            fences[0].on_lost(lambda _: cancelled.result())
            cluster.close_session(session.id)
            await asyncio.gather(*(fence.lost.wait() for fence in fences))

    use(cluster, work)
    assert "a watcher of" in caplog.text


def test_a_deleted_topic_ends_the_attempts(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000, reacquire=lambda _: None) as session:
            fence = await session.acquire("t")
            del cluster.topics["t"]
            await fence.lost.wait()
            assert isinstance(fence.error, InconsistentTopicId)
            with pytest.raises(StockadeError):
                await fence.again()

    use(cluster, work)


def test_a_lease_that_is_released_is_not_wanted_again(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000, reacquire=lambda _: None) as session:
            fence, owned = await session.acquire("t"), await session.own("g", "r")
            await fence.release()
            await owned.release()
            assert cluster.grants == {}
            fence = await session.acquire("t")
            cluster.take_over("t")
            await fence.lost.wait()
            await fence.release()
            with pytest.raises(ProducerFenced):
                await fence.again()

    use(cluster, work)


def test_a_closed_session_acquires_nothing_any_more(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000, reacquire=lambda _: None) as session:
            fence, kept = await session.acquire("t"), await session.own("g", "r")
            cluster.take_over("t")
            await fence.lost.wait()
        assert isinstance(kept.error, ClientClosed)
        assert cluster.line == {}
        assert [grant.session for grant in cluster.grants.values()] != [session.id]

    use(cluster, work)


def test_a_session_that_was_closed_while_it_acquired_stays_closed(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grant came after ``close``, was lost with the session, and acquired again through a new session."""
    cluster.create("t")

    async def work(client: Client) -> None:
        session = await Session(client, "me", ttl_ms=3000, reacquire=lambda _: None).open()
        ask, is_closed = session._acquiring.ask, asyncio.Event()

        async def late(*request: Any) -> Fence | Ticket:
            answer = await ask(*request)
            await is_closed.wait()
            return answer

        monkeypatch.setattr(session._acquiring, "ask", late)
        acquiring = asyncio.create_task(session.acquire("t"))
        await cluster.seen("POST", 1, "/grants")
        await session.close()
        is_closed.set()
        fence = await acquiring
        with pytest.raises(ClientClosed):
            await fence.again()
        assert isinstance(session.error, ClientClosed)
        assert cluster.sessions == {}
        assert sum(path == "/v1/sessions" for path in cluster.paths("POST")) == 1

    use(cluster, work)


def test_without_reacquire_a_lost_ownership_stays_lost(cluster: FakeCluster) -> None:
    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000) as session, Session(client, "you") as taker:
            owned = await session.own("g", "r")
            await taker.own("g", "r", generation=0, sever="resource")
            await owned.lost.wait()
            assert isinstance(owned.error, NotOwner)
            with pytest.raises(InvalidRequest, match="reacquire"):
                await owned.again()
            cluster.expired = True
            await session.lost.wait()
            assert isinstance(session.error, SessionExpired)

    use(cluster, work)


def test_a_callback_may_close_its_session_which_ends_all_that_it_held(cluster: FakeCluster) -> None:
    """It waited for itself: the close never ended, and the cluster kept the session. Two leases: two callbacks."""
    cluster.create("t", 2)

    async def work(client: Client) -> None:
        closed = asyncio.Event()

        async def told(_: Fence | Ownership) -> None:
            await session.close()
            closed.set()

        session = await Session(client, "me", ttl_ms=3000, reacquire=told).open()
        fences = [await session.acquire("t", [partition]) for partition in range(2)]
        cluster.close_session(session.id)
        for fence in fences:
            with pytest.raises(StockadeError):
                await fence.again()
        await closed.wait()
        assert isinstance(session.error, ClientClosed)
        assert (cluster.sessions, cluster.grants) == ({}, {})

    use(cluster, work)


@pytest.mark.parametrize("by_the_callback", [True, False])
def test_a_lost_lease_that_is_released_while_the_callback_runs_leaves_nothing_held(
    cluster: FakeCluster, *, by_the_callback: bool
) -> None:
    """Its callback was cancelled, and what it was told of stayed held: no other writer got it, and `again` raised."""
    cluster.create("t")

    async def work(client: Client) -> None:
        told_of: dict[type, Fence | Ownership] = {}
        both, may_end = asyncio.Event(), asyncio.Event()

        async def told(lease: Fence | Ownership) -> None:
            told_of[type(lease)] = lease
            if len(told_of) == 2:
                both.set()
            await both.wait()
            if by_the_callback:
                await (fence if isinstance(lease, Fence) else owned).release()
                assert lease.error is None, "the callback goes on before what it was told of is given up"
            else:
                await may_end.wait()

        async with Session(client, "me", ttl_ms=3000, reacquire=told) as session:
            fence, owned = await session.acquire("t"), await session.own("g", "r")
            cluster.close_session(session.id)
            await both.wait()
            if not by_the_callback:
                await fence.release()
                await owned.release()
            for lease in (fence, owned):
                with pytest.raises(StockadeError):
                    await lease.again()
            assert {type(lease.error) for lease in told_of.values()} == {ClientClosed}
            assert cluster.grants == {}
            assert cluster.owned["g", "r"].owner is None
            assert session.error is None

    use(cluster, work)


def test_many_lost_resources_are_claimed_a_few_at_a_time_so_that_the_session_is_renewed_meanwhile(
    cluster: FakeCluster,
) -> None:
    """Ten thousand claims at once held the renewal up until the new session was lost as well, again and again."""

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000, reacquire=lambda _: None) as session:
            owned = await session.own("g", [f"r{number}" for number in range(30)])
            cluster.own_faults = [Fault.HOLD] * 30
            renewals = len(cluster.paths("PUT"))
            cluster.close_session(session.id)
            await cluster.seen("PUT", renewals + 4)  # the one that is refused, and three of the new session
            assert sum(path.endswith("/own") for path in cluster.paths("POST")) == 1 + 8
            cluster.release_held()
            for each in owned:
                assert (await each.again()).error is None

    use(cluster, work)


def test_many_lost_grants_are_asked_for_a_few_at_a_time_so_that_the_session_is_renewed_meanwhile(
    cluster: FakeCluster,
) -> None:
    """All at once held the renewal up as claims of resources did: a session with 2,000 grants was lost in a circle."""
    cluster.create("t", 30)

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000, reacquire=lambda _: None) as session:
            fences = [await session.acquire("t", [partition]) for partition in range(30)]
            cluster.grant_faults = [Fault.HOLD] * 30
            renewals = len(cluster.paths("PUT"))
            cluster.close_session(session.id)
            await cluster.seen("PUT", renewals + 4)  # the one that is refused, and three of the new session
            assert sum(path.endswith("/grants") for path in cluster.paths("POST")) == 30 + 8
            cluster.release_held()
            for each in fences:
                assert (await each.again()).error is None

    use(cluster, work)


def test_a_grant_that_waits_in_the_queue_holds_up_no_other_one(cluster: FakeCluster) -> None:
    cluster.create("t", 10)

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000, reacquire=lambda _: None) as session:
            fences = [await session.acquire("t", [partition]) for partition in range(10)]
            for each in fences[:9]:
                cluster.take_over("t", each.grant.partitions[0])
            cluster.close_session(session.id)
            assert (await fences[9].again()).error is None

    use(cluster, work)
