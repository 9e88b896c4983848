"""``Session.acquire`` that is cancelled: it leaves the queue and holds nothing, whenever the cancellation comes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.session.session import Fence, Session
from stockade.partition.api.ownership import CancelledTicket
from stockade.partition.api.topics import Mode

from ..fake_cluster import FakeCluster, Fault

PATIENCE_S = 20


def use(cluster: FakeCluster, work: Callable[[Client, Session], Awaitable[None]]) -> None:
    for name in ("t", "other"):
        cluster.create(name)

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), retry_backoff_ms=1)
        async with asyncio.timeout(PATIENCE_S), Client(config) as client, Session(client, "me") as session:
            await work(client, session)

    asyncio.run(run())


def asked(cluster: FakeCluster) -> int:
    """How many requests for grants have arrived."""
    return sum("/grants" in path for path in cluster.paths("POST"))


async def cancelled_while_asking(cluster: FakeCluster, session: Session, mode: Mode) -> None:
    """Return when the first request of an acquisition was cancelled, while the cluster has not carried it out."""
    count = asked(cluster)
    acquiring = asyncio.create_task(session.acquire("t", mode=mode))
    await cluster.seen("POST", count + 1, "/grants")
    await cancelled(acquiring)


async def cancelled(task: "asyncio.Task[Fence]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def is_left_with(cluster: FakeCluster, session: Session, *others: Fence) -> None:
    """The next acquisition waits until nothing of the cancelled one is left."""
    fence = await session.acquire("other")
    assert set(cluster.grants) == {each.grant.grant for each in (fence, *others)}
    assert cluster.line == {}


def test_a_cancelled_acquire_leaves_the_queue(cluster: FakeCluster) -> None:
    async def work(client: Client, session: Session) -> None:
        async with Session(client, "first") as first:
            held = await first.acquire("t")
            cluster.grant_faults = [Fault.HOLD]
            await cancelled_while_asking(cluster, session, "WaitForExclusive")
            cluster.release_held()
            await is_left_with(cluster, session, held)

    use(cluster, work)


@pytest.mark.parametrize("mode", ["Exclusive", "WaitForExclusive", "ExclusiveWithFencing", "Shared"])
@pytest.mark.parametrize("fault", [Fault.HOLD, Fault.HOLD_AND_LOSE_REPLY, Fault.HOLD_AND_LOSE_REQUEST])
def test_a_cancelled_acquire_holds_nothing(cluster: FakeCluster, mode: Mode, fault: Fault) -> None:
    async def work(_: Client, session: Session) -> None:
        cluster.grant_faults = [fault]
        await cancelled_while_asking(cluster, session, mode)
        cluster.release_held()
        await is_left_with(cluster, session)

    use(cluster, work)


def test_a_cancelled_acquire_of_unknown_outcome_evicts_no_later_grant(cluster: FakeCluster) -> None:
    async def work(client: Client, session: Session) -> None:
        cluster.grant_faults = [Fault.HOLD_AND_LOSE_REQUEST]
        await cancelled_while_asking(cluster, session, "ExclusiveWithFencing")
        async with Session(client, "you") as yours:
            held = await yours.acquire("t")
            cluster.release_held()
            await is_left_with(cluster, session, held)

    use(cluster, work)


def test_a_later_acquire_of_the_same_partitions_keeps_its_grant(cluster: FakeCluster) -> None:
    async def work(_: Client, session: Session) -> None:
        cluster.grant_faults = [Fault.HOLD]
        await cancelled_while_asking(cluster, session, "Exclusive")
        later = asyncio.create_task(session.acquire("t"))
        cluster.release_held()
        await is_left_with(cluster, session, await later)

    use(cluster, work)


def test_a_concurrent_acquire_keeps_the_grant_that_both_were_answered_with(cluster: FakeCluster) -> None:
    async def work(_: Client, session: Session) -> None:
        cluster.grant_faults = [Fault.HOLD, None]
        count = asked(cluster)
        first = asyncio.create_task(session.acquire("t"))
        await cluster.seen("POST", count + 1, "/grants")
        fence = await session.acquire("t")
        await cancelled(first)
        cluster.release_held()
        await is_left_with(cluster, session, fence)

    use(cluster, work)


def test_a_concurrent_acquire_keeps_the_ticket_that_both_were_answered_with(cluster: FakeCluster) -> None:
    async def work(client: Client, session: Session) -> None:
        async with Session(client, "first") as first:
            held = await first.acquire("t")
            cluster.grant_faults = [Fault.HOLD, None]
            count = asked(cluster)
            given_up = asyncio.create_task(session.acquire("t", mode="WaitForExclusive"))
            await cluster.seen("POST", count + 1, "/grants")
            waiting = asyncio.create_task(session.acquire("t", mode="WaitForExclusive"))
            await cluster.seen("GET", 1, "/tickets/")
            await cancelled(given_up)
            cluster.release_held()
            other = await session.acquire("other")
            assert len(cluster.line) == 1
            await held.release()
            assert set(cluster.grants) <= {(await waiting).grant.grant, other.grant.grant}

    use(cluster, work)


def test_a_session_that_is_closed_meanwhile_does_not_wait_for_the_answer(cluster: FakeCluster) -> None:
    async def work(client: Client, _: Session) -> None:
        async with Session(client, "short") as session:
            cluster.grant_faults = [Fault.HOLD]
            await cancelled_while_asking(cluster, session, "Exclusive")
        assert session.id not in cluster.sessions
        cluster.release_held()
        assert cluster.grants == {}

    use(cluster, work)


def test_a_session_that_was_replaced_meanwhile_acquires_at_once(cluster: FakeCluster) -> None:
    async def work(client: Client, _: Session) -> None:
        async with Session(client, "again", ttl_ms=1000, reacquire=lambda _: None) as session:
            owned = await session.own("g", "r")
            cluster.grant_faults = [Fault.HOLD]
            await cancelled_while_asking(cluster, session, "Exclusive")
            cluster.close_session(session.id)
            await owned.again()
            await is_left_with(cluster, session)

    use(cluster, work)


def test_a_grant_that_is_being_installed_is_released_when_it_is_in_force(cluster: FakeCluster) -> None:
    cluster.installs_slowly = cluster.installs_until_released = True

    async def work(_: Client, session: Session) -> None:
        acquiring = asyncio.create_task(session.acquire("t"))
        await cluster.seen("GET", 1, "/tickets/")
        await cancelled(acquiring)
        assert len(cluster.grants) == 1
        cluster.release_held()
        await is_left_with(cluster, session)

    use(cluster, work)


def test_an_acquire_that_is_cancelled_twice_leaves_the_queue(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(client: Client, session: Session) -> None:
        began, may_end = asyncio.Event(), asyncio.Event()
        cancel_ticket = client.cancel_ticket

        async def slow(*ticket: Any, **patience: Any) -> CancelledTicket:
            began.set()
            await may_end.wait()
            return await cancel_ticket(*ticket, **patience)

        monkeypatch.setattr(client, "cancel_ticket", slow)
        async with Session(client, "first") as first:
            held = await first.acquire("t")
            acquiring = asyncio.create_task(session.acquire("t", mode="WaitForExclusive"))
            await cluster.seen("GET", 1, "/tickets/")
            acquiring.cancel()
            await began.wait()
            await cancelled(acquiring)
            may_end.set()
            await is_left_with(cluster, session, held)

    use(cluster, work)
