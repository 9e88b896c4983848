"""``Session.own`` on a real node: exclusive ownership of anything that has a name."""

import asyncio
from collections.abc import Iterator

import pytest

from stockade import Client, ClientConfig, Session, sync
from stockade.client.errors import ClientClosed
from stockade.partition.errors import GenerationFenced, NotOwner, StockadeError
from stockade.testing import Cluster

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def config(node: Cluster) -> ClientConfig:
    return ClientConfig(bootstrap=(node.url,), session_ttl_ms=3000)


def test_work_ends_when_another_session_takes_the_resource_over_and_the_session_lives_on(node: Cluster) -> None:
    async def program() -> None:
        async with Client(config(node)) as client, Session(client, "first") as first:
            owned = await first.own("services", "scheduler")
            async with Session(client, "second") as second:
                with pytest.raises(GenerationFenced):
                    await second.own("services", "scheduler")
                with pytest.raises(NotOwner):
                    async with asyncio.timeout(PATIENCE_S), owned.guard():
                        [taken] = await client.own("services", second.id, ["scheduler"], generation=0, sever="resource")
                        await asyncio.Event().wait()
                assert taken.fence_epoch > owned.fence_epoch
                assert first.error is None
                await owned.release()
                assert [each.client_id for each in await client.resources("services")] == ["second"]

    asyncio.run(program())


def test_a_waiting_own_is_granted_when_the_owner_releases(node: Cluster) -> None:
    async def program() -> None:
        async with Client(config(node)) as client, Session(client, "a") as one, Session(client, "b") as other:
            held = await one.own("shards", "7")
            waiting = asyncio.create_task(other.own("shards", "7", wait=True))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waiting), 0.05)
            await held.release()
            assert isinstance(held.error, ClientClosed)
            async with asyncio.timeout(PATIENCE_S):
                assert (await waiting).fence_epoch > held.fence_epoch

    asyncio.run(program())


def test_the_end_of_a_session_loses_its_resources_and_ends_its_waits(node: Cluster) -> None:
    async def program() -> None:
        async with Client(config(node)) as client, Session(client, "keeps") as keeps:
            await keeps.own("jobs", "kept")
            async with Session(client, "ends") as ends:
                owned = await ends.own("jobs", "mine")
                waiting = asyncio.create_task(ends.own("jobs", "kept", wait=True))
                await client.close_session(ends.id)
                async with asyncio.timeout(PATIENCE_S):
                    await owned.lost.wait()
                    with pytest.raises(StockadeError):
                        await waiting
                assert owned.error is ends.error is not None

    asyncio.run(program())


def test_two_claimants_of_several_resources_never_hold_a_part_each(node: Cluster) -> None:
    """Seed 000's race: each of two gets some, and both fail. In one request, one of them gets all."""

    async def program() -> None:
        async with Client(config(node)) as client, Session(client, "a") as one, Session(client, "b") as other:
            for _ in range(20):
                claims = one.own("race", ["1", "2", "3"]), other.own("race", ["3", "2", "1"])
                answers = await asyncio.gather(*claims, return_exceptions=True)
                [owned] = [each for each in answers if isinstance(each, list)]
                assert len(owned) == 3
                for each in owned:
                    await each.release()

    asyncio.run(program())


def test_a_takeover_of_one_resource_takes_all_that_the_owner_has_unless_it_is_told_not_to(node: Cluster) -> None:
    with (
        sync.Client(config(node)) as client,
        sync.Session(client, "owner") as owner,
        sync.Session(client, "taker") as taker,
    ):
        first, second, third = owner.own("severed", ["1", "2", "3"])
        assert [each.resource for each in taker.own("severed", ["1"], generation=0, sever="resource")] == ["1"]
        assert first.wait_lost(PATIENCE_S)
        assert not second.is_lost
        taker.own("severed", "2", generation=0)
        assert second.wait_lost(PATIENCE_S)
        assert third.wait_lost(PATIENCE_S)
        assert not owner.own("severed", "4").is_lost, "the session itself lives on"


def test_code_without_a_loop_owns_the_same_way(node: Cluster) -> None:
    with sync.Client(config(node)) as client, sync.Session(client, "blocking") as session:
        owned = session.own("blocking", "it")
        assert (owned.group, owned.resource, owned.fence_epoch, owned.is_lost) == ("blocking", "it", 1, False)
        with sync.Session(client, "other") as other:
            other.own("blocking", "it", generation=0)
        assert owned.wait_lost(PATIENCE_S)
        assert owned.error is not None
