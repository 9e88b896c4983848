import asyncio
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs

from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.errors import ClientClosed, ClientFault
from stockade.client.session.held import HeldLease
from stockade.client.session.session import Lease, Session
from stockade.partition.api.ownership import SessionInfo
from stockade.partition.api.topics import Topic
from stockade.partition.commands import Token
from stockade.partition.errors import (
    GenerationFenced,
    InconsistentTopicId,
    InternalError,
    InvalidRequest,
    LeaderNotAvailable,
    NotOwner,
    PermissionDenied,
    ProducerBusy,
    ProducerFenced,
    SessionExpired,
    StockadeError,
    UnknownSession,
)

from ..fake_cluster import FakeCluster


def use(cluster: FakeCluster, work: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Client(ClientConfig(bootstrap=tuple(cluster.nodes), retry_backoff_ms=1)) as client:
            await work(client)

    asyncio.run(run())


async def never(*_: object, **__: object) -> None:
    await asyncio.Event().wait()


def refused_with(refusal: type[StockadeError]) -> Callable[..., Awaitable[None]]:
    async def refused(*_: object, **__: object) -> None:
        raise refusal

    return refused


def test_a_lease_is_renewed_at_a_third_and_given_up_a_fifth_before_its_end() -> None:
    lease = Lease(9000, 100.0)
    assert lease.renew_at_s == pytest.approx(103.0)
    assert lease.lost_at_s == pytest.approx(107.2)


def test_a_session_is_renewed_while_it_is_open_and_gone_when_it_is_closed(cluster: FakeCluster) -> None:
    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000) as session:
            assert list(cluster.sessions) == [session.id]
            await cluster.seen("PUT", 2)
            assert not session.lost.is_set()
        assert cluster.sessions == {}
        assert isinstance(session.error, ClientClosed)

    use(cluster, work)


def test_a_session_whose_opening_took_longer_than_its_ttl_lives(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt asks for a new one: the ttl counts from the attempt that was answered."""
    opens_at_s = time.monotonic() + 2.2
    answer = cluster.open_session

    def at_last(ttl_ms: int) -> str:
        if time.monotonic() < opens_at_s:
            raise LeaderNotAvailable
        return answer(ttl_ms)

    monkeypatch.setattr(cluster, "open_session", at_last)

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=2000) as session:
            await cluster.seen("PUT", 2)
            assert session.error is None

    use(cluster, work)


def test_an_expired_session_is_lost_with_all_its_fences_and_tells_them_once(cluster: FakeCluster) -> None:
    cluster.create("t", 2)
    told: list[StockadeError] = []

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000) as session:
            fences = [await session.acquire("t", [partition]) for partition in range(2)]
            for fence in fences:
                fence.on_lost(told.append)
            cluster.expired = True
            await asyncio.wait_for(session.lost.wait(), 60)
            assert all(fence.lost.is_set() and isinstance(fence.error, SessionExpired) for fence in fences)
        assert len(told) == 2

    use(cluster, work)


@pytest.mark.parametrize("refusal", [LeaderNotAvailable, PermissionDenied])
def test_a_failed_close_loses_every_lease_of_the_session(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, refusal: type[StockadeError]
) -> None:
    cluster.create("t")

    async def work(client: Client) -> None:
        session = await Session(client, "me").open()
        fence, owned = await session.acquire("t"), await session.own("g", "r")
        with monkeypatch.context() as patched:
            patched.setattr(client, "close_session", refused_with(refusal))
            with pytest.raises(refusal):
                await session.close()
        assert all(isinstance(each.error, ClientClosed) for each in (session, fence, owned))
        assert list(cluster.sessions) == [session.id]
        await session.close()
        assert cluster.sessions == {}, "another call asks again"
        with monkeypatch.context() as patched:
            patched.setattr(client, "close_session", refused_with(refusal))
            await session.close()

    use(cluster, work)


@pytest.mark.parametrize("stage", ["_reacquirer.close", "_acquiring.close", "_client.close_session"])
def test_a_cancelled_close_loses_every_lease_of_the_session(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    cluster.create("t")

    async def work(client: Client) -> None:
        session = await Session(client, "me", reacquire=lambda _: None).open()
        fence = await session.acquire("t")
        part, method = stage.split(".")
        monkeypatch.setattr(getattr(session, part), method, never)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await session.close()
        assert isinstance(fence.error, ClientClosed)
        assert session._renewal is not None
        await asyncio.wait([session._renewal])
        assert session._renewal.cancelled()

    use(cluster, work)


def test_fences_are_lost_before_the_cluster_is_asked_to_end_their_session(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request may take longer than the ttl that began with the last renewal."""
    cluster.create("t")

    async def work(client: Client) -> None:
        session = await Session(client, "me").open()
        fence = await session.acquire("t")
        monkeypatch.setattr(client, "close_session", never)
        closing = asyncio.create_task(session.close())
        await asyncio.wait_for(fence.lost.wait(), 60)
        closing.cancel()

    use(cluster, work)


def test_a_session_that_cannot_be_renewed_is_given_up_before_its_ttl_ends(cluster: FakeCluster) -> None:
    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=10_000) as session:
            opened_s = asyncio.get_running_loop().time()
            for node in cluster.nodes:
                await asyncio.to_thread(cluster.kill, node)
            await asyncio.wait_for(session.lost.wait(), 60)
            assert asyncio.get_running_loop().time() - opened_s < 10, "due after 8 s: a busy machine has 2 s"
            assert isinstance(session.error, SessionExpired)
            assert "given up before its ttl of 10000 ms ended" in session.error.detail

    use(cluster, work)


def test_a_long_session_outlives_a_cluster_that_answers_now_and_then(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power cuts every 5 s: six renewals of a session of 300 s, 30 s apart, all met a cluster that was down."""

    async def work(client: Client) -> None:
        refused = [LeaderNotAvailable("starting"), LeaderNotAvailable("starting")]
        renew = client.renew_session

        async def now_and_then(session: str, timeout_ms: int) -> SessionInfo:
            if refused:
                raise refused.pop()
            return await renew(session, timeout_ms)

        monkeypatch.setattr(client, "renew_session", now_and_then)
        async with Session(client, "me", ttl_ms=300_000) as session:
            renewing = asyncio.create_task(session._renew_until_lost(Lease(300_000, time.monotonic() - 120)))
            await cluster.seen("PUT", 1)
            renewing.cancel()
            assert not session.lost.is_set()

    use(cluster, work)


@pytest.mark.parametrize("look", ["topic", "resources"])
def test_an_unanswered_check_delays_neither_a_renewal_nor_the_loss(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    cluster.create("t")

    async def work(client: Client) -> None:
        monkeypatch.setattr(client, look, never)
        async with Session(client, "me", ttl_ms=3000) as session:
            fence, _ = await session.acquire("t"), await session.own("g", "r")
            await cluster.seen("PUT", 3)
            monkeypatch.setattr(client, "renew_session", refused_with(LeaderNotAvailable))
            await asyncio.wait_for(fence.lost.wait(), 60)
            assert isinstance(session.error, SessionExpired)

    use(cluster, work)


def test_an_unanswered_check_hides_no_loss_from_other_checks_and_renewals_end_no_slow_check(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All topics shared one third of the ttl, in turn: behind a slow one, a takeover was never seen."""
    cluster.create("t")

    async def work(client: Client) -> None:
        resources = client.resources

        async def slowly(group: str, **rest: Any) -> Any:
            answer = await resources(group, **rest)
            await cluster.seen("PUT", len(cluster.paths("PUT")) + 1)  # the next renewal
            return answer

        async with Session(client, "me", ttl_ms=3000) as session, Session(client, "you") as taker:
            monkeypatch.setattr(client, "topic", never)
            monkeypatch.setattr(client, "resources", slowly)
            _, owned = await session.acquire("t"), await session.own("g", "r")
            await taker.own("g", "r", generation=0, sever="resource")
            await asyncio.wait_for(owned.lost.wait(), 60)
            assert isinstance(owned.error, NotOwner)
            assert session.error is None

    use(cluster, work)


def test_a_check_at_a_node_without_the_new_partitions_loses_no_fence(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t", 2)

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000) as session:
            fence, topic = await session.acquire("t", [1]), await client.topic("t")
            asked = asyncio.Event()

            async def lagging(*_: object, **__: object) -> Topic:
                asked.set()
                return structs.replace(topic, partitions=topic.partitions[:1])

            monkeypatch.setattr(client, "topic", lagging)
            await asked.wait()
            await cluster.seen("PUT", len(cluster.paths("PUT")) + 2)
            assert (fence.error, session.error) == (None, None)

    use(cluster, work)


def test_a_session_that_a_bug_has_lost_is_not_renewed_any_more(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other writer would get its slots, for as long as the object is not closed."""
    cluster.create("t")

    async def bug(*_: object, **__: object) -> None:
        raise ValueError("a bug")

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000) as session:
            fence = await session.acquire("t")
            monkeypatch.setattr(client, "topic", bug)
            await asyncio.wait_for(fence.lost.wait(), 60)
            assert isinstance(fence.error, ClientFault)
            assert session._renewal is not None
            await asyncio.wait([session._renewal], timeout=10)
            assert session._renewal.done()

    use(cluster, work)


def test_a_renewal_that_tries_node_after_node_ends_when_the_session_is_lost(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node may take its timeout, so that all of them together take longer than the ttl."""

    async def work(client: Client) -> None:
        monkeypatch.setattr(client, "renew_session", never)
        async with Session(client, "me", ttl_ms=3000) as session:
            await asyncio.wait_for(session.lost.wait(), 20)
            assert isinstance(session.error, SessionExpired)

    use(cluster, work)


@pytest.mark.parametrize("refusal", [PermissionDenied, InternalError])
def test_a_refused_check_loses_no_lease(
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refusal: type[StockadeError],
) -> None:
    cluster.create("t")

    async def work(client: Client) -> None:
        for look in ("topic", "resources"):
            monkeypatch.setattr(client, look, refused_with(refusal))
        async with Session(client, "me", ttl_ms=3000) as session:
            fence, owned = await session.acquire("t"), await session.own("g", "r")
            await cluster.seen("PUT", 3)
            assert (fence.error, owned.error) == (None, None)
        assert "topic t: not known" in caplog.text
        assert "group g: not known" in caplog.text

    caplog.set_level("INFO")
    use(cluster, work)


def test_a_check_that_began_before_an_acquisition_does_not_lose_it(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic was created again in between."""
    cluster.create("t", 2)

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000) as session:
            old, acquired = await session.acquire("t", [0]), asyncio.Event()
            before, looking = await client.topic("t"), asyncio.Event()

            async def slowly(*_: object, **__: object) -> Topic:
                monkeypatch.setattr(client, "topic", never)  # later looks know nothing
                looking.set()
                await acquired.wait()
                return before

            monkeypatch.setattr(client, "topic", slowly)
            await looking.wait()
            del cluster.topics["t"]
            cluster.create("t", 2)
            new = await session.acquire("t", [1])
            acquired.set()
            await cluster.seen("PUT", len(cluster.paths("PUT")) + 1)
            assert (old.error, new.error) == (None, None)

    use(cluster, work)


def test_a_guard_whose_block_has_ended_is_not_remembered() -> None:
    """A fence may be held for days, and guard each piece of work."""

    async def run() -> None:
        holding = HeldLease()
        guard = holding.guard()
        async with guard:
            pass
        remembered = weakref.ref(guard)
        del guard
        assert remembered() is None
        holding.lose(ClientClosed())

    asyncio.run(run())


def test_a_watcher_that_comes_after_the_loss_is_called_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """`Session.acquire` may answer a fence that is lost by then."""

    async def run() -> None:
        holding, told, lost = HeldLease(), list[StockadeError](), ClientClosed()
        holding.lose(lost)
        holding.on_lost(told.append)
        assert told == [lost]

        def bug(_: StockadeError) -> None:
            raise ValueError

        holding.on_lost(bug)
        assert "a watcher" in caplog.text
        holding.forget(told.append)

    asyncio.run(run())


def test_a_fence_is_released_by_itself_and_the_partition_is_free(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(client: Client) -> None:
        async with Session(client, "me") as mine, Session(client, "you") as yours:
            fence = await mine.acquire("t")
            assert fence.token(0) == Token(fence.grant.grant, 1, mine.id)
            with pytest.raises(ProducerBusy):
                await yours.acquire("t")
            await fence.release()
            assert (await yours.acquire("t")).epoch == fence.epoch + 1

    use(cluster, work)


def test_a_grant_that_is_not_in_force_yet_is_waited_for(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.installs_slowly = True

    async def work(client: Client) -> None:
        async with Session(client, "me") as session:
            assert (await session.acquire("t")).epoch == 1
        assert any("/v1/tickets/" in path for path in cluster.paths("GET"))

    use(cluster, work)


def test_a_session_must_be_open(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(client: Client) -> None:
        session = Session(client, "me")
        with pytest.raises(ClientClosed):
            await session.acquire("t")
        with pytest.raises(UnknownSession):
            await client.acquire("t", "s-unknown", [0], "Exclusive", "me")

    use(cluster, work)


def test_an_owner_that_sends_nothing_still_learns_that_it_was_replaced(cluster: FakeCluster) -> None:
    cluster.create("t", 2)

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000) as session:
            replaced = await session.acquire("t", [0])
            kept = await session.acquire("t", [1])
            cluster.take_over("t", 0)
            await asyncio.wait_for(replaced.lost.wait(), 60)
            assert isinstance(replaced.error, ProducerFenced)
            assert kept.error is None
            assert session.error is None

    use(cluster, work)


def test_an_owner_learns_that_its_topic_is_gone(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(client: Client) -> None:
        async with Session(client, "me", ttl_ms=3000) as session:
            fence = await session.acquire("t", [0])
            del cluster.topics["t"]
            await asyncio.wait_for(fence.lost.wait(), 60)
            assert isinstance(fence.error, InconsistentTopicId)

    use(cluster, work)


def test_a_waiter_gets_the_partitions_when_their_owner_leaves(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(client: Client) -> None:
        async with Session(client, "second") as second:
            async with Session(client, "first") as first:
                await first.acquire("t")
                waiting = asyncio.create_task(second.acquire("t", mode="WaitForExclusive"))
                await cluster.seen("GET", 2)
                assert not waiting.done()
            fence = await asyncio.wait_for(waiting, 60)
            assert fence.epoch == 2

    use(cluster, work)


def test_a_waiter_that_gives_up_leaves_the_line(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(client: Client) -> None:
        async with Session(client, "first") as first, Session(client, "second") as second:
            await first.acquire("t")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await second.acquire("t", mode="WaitForExclusive")
            assert cluster.line == {}
            assert len(cluster.grants) == 1

    use(cluster, work)


def test_a_waiter_that_gives_up_releases_the_grant_that_came_first(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t")
    cluster.installs_slowly = True

    async def work(client: Client) -> None:
        waits = asyncio.Event()

        async def waiting(*_: object) -> None:
            waits.set()
            await never()

        monkeypatch.setattr(client, "ticket", waiting)
        async with Session(client, "me") as session:
            acquiring = asyncio.create_task(session.acquire("t"))
            await waits.wait()
            assert len(cluster.grants) == 1
            acquiring.cancel()
            await asyncio.wait([acquiring])
            assert cluster.grants == {}

    use(cluster, work)


def test_several_resources_are_owned_together_or_none(cluster: FakeCluster) -> None:
    async def work(client: Client) -> None:
        async with Session(client, "me") as mine, Session(client, "you") as yours:
            await yours.own("shards", "8")
            with pytest.raises(GenerationFenced):
                await mine.own("shards", ["7", "8", "9"])
            assert {key for key, row in cluster.owned.items() if row.owner} == {("shards", "8")}
            owned = await mine.own("shards", ["7", "8", "9"], generation=1, sever="resource")
            assert [each.resource for each in owned] == ["7", "8", "9"]
            assert yours.id in cluster.sessions, "only the resource was taken"
            assert len(cluster.paths("POST")) == 5, "each call is one request"

    use(cluster, work)


def test_claims_without_atomic_answer_those_that_succeeded(cluster: FakeCluster) -> None:
    async def work(client: Client) -> None:
        async with Session(client, "me") as mine, Session(client, "you") as yours:
            await yours.own("shards", "8")
            assert [each.resource for each in await mine.own("shards", ("7", "8"), atomic=False)] == ["7"]
            assert await mine.own("shards", ["8"], atomic=False) == []
            with pytest.raises(InvalidRequest, match="wait"):
                await mine.own("shards", ["8"], atomic=False, wait=True)

    use(cluster, work)


def test_a_takeover_that_severs_takes_all_that_the_owner_has(cluster: FakeCluster) -> None:
    async def work(client: Client) -> None:
        async with Session(client, "me") as mine, Session(client, "you", ttl_ms=3000) as yours:
            lost = await yours.own("shards", ["7", "8"])
            await mine.own("shards", ["8"], generation=0)
            await asyncio.wait_for(lost[0].lost.wait(), 60)
            assert all(isinstance(each.error, NotOwner) for each in lost)
            assert yours.error is None

    use(cluster, work)


def test_a_wait_for_several_ends_when_all_are_free(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.client.session.session.ASK_AGAIN_S", 0.01)

    async def work(client: Client) -> None:
        async with Session(client, "me") as mine, Session(client, "you") as yours:
            held = await yours.own("shards", ["7", "8"])
            waiting = asyncio.create_task(mine.own("shards", ["7", "8", "9"], wait=True))
            await held[0].release()
            await cluster.seen("POST", len(cluster.paths("POST")) + 2)
            assert not waiting.done()
            await held[1].release()
            assert len(await asyncio.wait_for(waiting, 60)) == 3

    use(cluster, work)


@pytest.mark.parametrize("refusal", [SessionExpired, ProducerFenced, LeaderNotAvailable])
def test_a_wait_that_ends_with_a_refusal_does_not_say_that_the_acquisition_changed_nothing(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, refusal: type[StockadeError]
) -> None:
    """The question for the ticket changed nothing; the ticket had its place, or its grant had evicted the owner."""
    cluster.create("t")
    cluster.take_over("t")

    async def work(client: Client) -> None:
        async with Session(client, "s") as session:
            monkeypatch.setattr(client, "ticket", refused_with(refusal))
            with pytest.raises(refusal) as refused:
                await session.acquire("t", mode="WaitForExclusive")
            assert not refused.value.no_side_effects

    use(cluster, work)
