"""What belongs to one principal is of no use to another, also to one that knows every id, epoch and number of it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.cluster.model import By, Claim, Conditions, ReadGuard
from stockade.cluster.node.node_service import NodeService
from stockade.partition.api.ownership import Grant
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import Stamp, Token
from stockade.partition.errors import InvalidProducerEpoch, NotOwner, PermissionDenied, ProducerFenced, StockadeError

from ..fakes import FakeHost
from .test_node import append, batch, run

P, Q, Q_EVICTS, NONE = By("p"), By("q"), By("q", evicts=True), By()


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[NodeService], Awaitable[None]]], None]:
    """Runs a scenario against a node with the topic ``t`` of two partitions."""

    def played(scenario: Callable[[NodeService], Awaitable[None]]) -> None:
        async def scene(service: NodeService, _: FakeHost) -> None:
            await scenario(service)

        run(tmp_path, monkeypatch, scene)

    return played


async def opened(service: NodeService, by: By) -> str:
    return (await service.at_controller().sessions.open_session("c", 10_000, by)).session


async def acquire(service: NodeService, session: str, by: By, mode: Any = "Exclusive", **more: Any) -> Any:
    return await service.at_controller().sessions.acquire(
        "t", session, (0,), mode, "w", resume_epoch=None, topic_id=None, by=by, **more
    )


async def held(service: NodeService, by: By, mode: Any = "Exclusive") -> tuple[Grant, Token]:
    """A grant on partition 0, and its fencing token."""
    session = await opened(service, by)
    grant = await acquire(service, session, by, mode)
    assert isinstance(grant, Grant)
    return grant, Token(grant.grant, grant.epochs["0"], session)


async def own(service: NodeService, session: str, by: By, generation: int | None = None, name: str = "t/0") -> Any:
    claims = [Claim(name, generation)]
    return await service.at_controller().resources.own("g", session, claims, atomic=True, sever="session", by=by)


async def refused(doing: Awaitable[Any]) -> str:
    with pytest.raises(PermissionDenied) as caught:
        await doing
    return caught.value.detail


def test_a_session_that_another_principal_knows_is_of_no_use_to_it(play: Any) -> None:
    async def scenario(service: NodeService) -> None:
        sessions, resources = service.at_controller().sessions, service.at_controller().resources
        grant, token = await held(service, P)
        [owned] = await own(service, token.session, P, name="x")
        waiting = await opened(service, P)
        ticket = await acquire(service, waiting, P, "WaitForExclusive")
        for doing in (
            lambda by: sessions.renew_session(token.session, by),
            lambda by: sessions.close_session(token.session, by),
            lambda by: sessions.release(grant.grant, token.session, by),
            lambda by: acquire(service, token.session, by, "Shared"),
            lambda by: sessions.get_ticket(ticket.ticket, waiting, 0, by),
            lambda by: sessions.cancel_ticket(ticket.ticket, waiting, by),
            lambda by: own(service, token.session, by, name="y"),
            lambda by: resources.disown("g", token.session, ["x"], by),
        ):
            for by in (Q, Q_EVICTS, NONE):
                assert await refused(doing(by)) == "the session is another principal's"
        assert owned.granted
        await append(service, b"x", token=token, principal="p")
        assert (await sessions.get_ticket(ticket.ticket, waiting, 0, P)).state == "waiting"
        await sessions.close_session(token.session, P)

    play(scenario)


@pytest.mark.parametrize("mode", ["Exclusive", "Shared"])
def test_a_fencing_token_that_another_principal_knows_writes_and_trims_nothing(play: Any, mode: str) -> None:
    async def scenario(service: NodeService) -> None:
        _, token = await held(service, P, mode)
        partition = await service.partition("t", 0, None)
        for principal in ("q", ""):
            stolen = append(service, b"stolen", token=token, principal=principal)
            assert await refused(stolen) == "the fencing token is another principal's"
            await refused(partition.trim(None, topic_id=None, token=token, principal=principal))
        assert (await append(service, b"x", token=token, principal="p")).base_offset == 0

    play(scenario)


def test_only_who_may_evict_takes_a_slot_over_from_another_principal(play: Any) -> None:
    async def scenario(service: NodeService) -> None:
        _, token = await held(service, P)
        mine = await opened(service, Q)
        detail = await refused(acquire(service, mine, Q, "ExclusiveWithFencing"))
        assert detail.startswith("principal q lacks the right: evict topic:t (")
        await append(service, b"x", token=token, principal="p")
        granted = await acquire(service, mine, Q_EVICTS, "ExclusiveWithFencing")
        await append(service, b"y", token=Token(granted.grant, granted.epochs["0"], mine), principal="q")
        with pytest.raises(ProducerFenced):
            await append(service, b"z", token=token, principal="p")

    play(scenario)


@pytest.mark.parametrize("mode", ["Shared", "WaitForExclusive"])
def test_a_shared_seat_and_a_place_in_the_queue_are_protected_as_well(play: Any, mode: str) -> None:
    async def scenario(service: NodeService) -> None:
        if mode == "WaitForExclusive":
            _, _ = await held(service, Q)
        first = await opened(service, P)
        await acquire(service, first, P, mode)
        mine = await opened(service, Q)
        assert "evict topic:t" in await refused(acquire(service, mine, Q, "ExclusiveWithFencing"))
        assert isinstance(await acquire(service, mine, Q_EVICTS, "ExclusiveWithFencing"), Grant)

    play(scenario)


def test_a_principal_evicts_its_own_zombie_without_a_further_right(play: Any) -> None:
    async def scenario(service: NodeService) -> None:
        _, zombie = await held(service, P)
        _, token = await held(service, P, "ExclusiveWithFencing")
        await append(service, b"x", token=token, principal="p")
        with pytest.raises(ProducerFenced):
            await append(service, b"z", token=zombie, principal="p")

    play(scenario)


def test_sessions_and_grants_of_no_principal_are_open_to_all(play: Any) -> None:
    async def scenario(service: NodeService) -> None:
        _, token = await held(service, NONE)
        await service.at_controller().sessions.renew_session(token.session, P)
        await append(service, b"x", token=token, principal="p")
        _, token = await held(service, Q, "ExclusiveWithFencing")
        await append(service, b"y", token=token, principal="q")

    play(scenario)


def test_only_a_principal_that_may_evict_a_producer_takes_over_its_name(play: Any) -> None:
    async def scenario(service: NodeService) -> None:
        producers = service.at_controller().producers
        pair = await producers.init_producer("w", None, None, P)
        stamp = Stamp(pair.producer_id, pair.producer_epoch, 0)
        await append(service, b"x", stamp=stamp, principal="p")
        assert await refused(producers.init_producer("w", None, None, Q)) == (
            "principal q lacks the right: evict producer:w (the name is another principal's)"
        )
        again = Stamp(stamp.pid, stamp.epoch, 1)
        assert await refused(append(service, b"q", stamp=again, principal="q")) == (
            f"the producer id {stamp.pid} is another principal's"
        )
        taken = await producers.init_producer("w", None, None, Q_EVICTS)
        assert taken.producer_epoch == pair.producer_epoch + 1
        for stale in (stamp, again):  # the refused learn what became of their batches
            with pytest.raises(InvalidProducerEpoch) as caught:
                await append(service, b"x", stamp=stale, principal="p")
            assert caught.value.fields["outcome"]["state"] == ("committed" if stale is stamp else "absent")
        mine = Stamp(taken.producer_id, taken.producer_epoch, 0)
        await refused(append(service, b"p", stamp=mine, principal="p"))
        await refused(producers.init_producer("w", None, None, P))
        await append(service, b"y", stamp=mine, principal="q")

    play(scenario)


def test_a_producer_without_a_name_is_of_the_principal_that_stored_its_first_batch(play: Any) -> None:
    async def scenario(service: NodeService) -> None:
        pair = await service.at_controller().producers.init_producer(None, None, None, P)
        first, second = Stamp(pair.producer_id, 0, 0), Stamp(pair.producer_id, 0, 1)
        await append(service, b"x", stamp=first, principal="p")
        await refused(append(service, b"lost", stamp=second, principal="q"))
        assert not (await append(service, b"y", stamp=second, principal="p")).duplicate

    play(scenario)


def test_stages_are_changed_by_the_principal_of_their_producer(play: Any) -> None:
    async def scenario(service: NodeService) -> None:
        pair = await service.at_controller().producers.init_producer("w", None, None, P)
        partition = await service.partition("t", 0, None)
        producer = (pair.producer_id, pair.producer_epoch)
        await refused(partition.change_stages([], ["s"], producer=producer, topic_id=None, principal="q"))
        await partition.change_stages([], ["s"], producer=producer, topic_id=None, principal="p")

    play(scenario)


def test_a_generation_takes_a_resource_from_another_principal_only_with_the_right(play: Any) -> None:
    async def scenario(service: NodeService) -> None:
        first, mine = await opened(service, P), await opened(service, Q)
        [owned] = await own(service, first, P)
        for generation in (0, owned.generation, owned.generation + 7):
            detail = await refused(own(service, mine, Q, generation))
            assert detail == "principal q lacks the right: evict resource:g/t/0 (another principal owns it)"
        [taken] = await own(service, mine, Q_EVICTS, owned.generation + 1)
        assert taken.granted
        await refused(own(service, first, P, taken.generation + 1))

    play(scenario)


def test_a_claim_that_takes_nothing_over_is_judged_by_its_generation_alone(play: Any) -> None:
    async def scenario(service: NodeService) -> None:
        first, mine = await opened(service, P), await opened(service, Q)
        await own(service, first, P)
        [owned] = await own(service, first, P, 5)
        for generation in (None, owned.generation - 1):
            with pytest.raises(StockadeError) as caught:
                await own(service, mine, Q, generation)
            assert caught.value.code == "GENERATION_FENCED"

    play(scenario)


def test_the_fence_epoch_of_an_owner_is_of_no_use_to_another_principal(play: Any) -> None:
    async def scenario(service: NodeService) -> None:
        topics = service.at_controller().topics
        await topics.create_topic("guarded", 1, None, TopicConfig(writer_group="g"))
        session = await opened(service, P)
        [first] = await own(service, session, P, name="guarded/0")
        [second] = await own(service, session, P)
        guarded, plain = await service.partition("guarded", 0, None), await service.partition("t", 0, None)
        for principal in ("q", ""):
            stolen = Conditions(fence_epoch=first.fence_epoch, principal=principal)
            await refused(guarded.append(batch(b"q"), stolen))
            await refused(plain.commit_position("g", 0, None, second.fence_epoch, principal))
            guard = ReadGuard("g", second.fence_epoch, principal)
            await refused(plain.read(0, max_bytes=1, min_bytes=0, max_wait_ms=0, local=False, guard=guard))
        await guarded.append(batch(b"p"), Conditions(fence_epoch=first.fence_epoch, principal="p"))
        await plain.commit_position("g", 0, None, second.fence_epoch, "p")
        guard = ReadGuard("g", second.fence_epoch, "p")
        await plain.read(0, max_bytes=1, min_bytes=0, max_wait_ms=0, local=False, guard=guard)

    play(scenario)


def test_a_claim_from_before_a_topic_had_its_writer_group_does_not_let_another_principal_write(play: Any) -> None:
    async def scenario(service: NodeService) -> None:
        await service.at_controller().members.raise_feature_level(2)
        topics, mine = service.at_controller().topics, await opened(service, Q)
        [early] = await own(service, mine, Q, name="guarded/0")  # no such topic yet
        [reader] = await own(service, mine, Q, name="t/0")  # in a group that only reads
        await topics.create_topic("guarded", 1, None, TopicConfig(writer_group="g"), by=P)
        await topics.change_topic("t", None, partitions=None, seal=False, config={"writer_group": "g"}, by=P)
        for name, owned in (("guarded", early), ("t", reader)):
            partition = await service.partition(name, 0, None)
            with pytest.raises(NotOwner):
                await partition.append(batch(b"q"), Conditions(fence_epoch=owned.fence_epoch, principal="q"))
            [right] = await own(service, await opened(service, P), P, name=f"{name}/0")
            await partition.append(batch(b"p"), Conditions(fence_epoch=right.fence_epoch, principal="p"))

    play(scenario)


def test_owners_of_the_principal_that_sets_a_writer_group_stay_and_so_do_all_where_there_are_none(play: Any) -> None:
    async def scenario(service: NodeService) -> None:
        await service.at_controller().members.raise_feature_level(2)
        topics = service.at_controller().topics
        for number, by in enumerate((P, NONE)):
            session, name = await opened(service, by), f"own{number}"
            [owned] = await own(service, session, by, name=f"{name}/0")
            await topics.create_topic(name, 1, None, TopicConfig(writer_group="g"), by=by)
            partition = await service.partition(name, 0, None)
            await partition.append(batch(b"x"), Conditions(fence_epoch=owned.fence_epoch, principal=by.principal))

    play(scenario)


def test_a_partition_of_its_writer_group_is_owned_only_with_the_right_to_acquire_the_topic(play: Any) -> None:
    async def scenario(service: NodeService) -> None:
        resources = service.at_controller().resources
        await service.at_controller().members.raise_feature_level(2)
        await service.at_controller().topics.create_topic("guarded", 1, None, TopicConfig(writer_group="g"), by=P)

        async def claim(group: str, unwritable: list[str]) -> Any:
            session, claims = await opened(service, Q), [Claim("guarded/0")]
            return await resources.own(
                group, session, claims, atomic=True, sever="session", unwritable=unwritable, by=Q
            )

        assert await refused(claim("g", ["guarded"])) == (
            "principal q lacks the right: acquire topic:guarded (g is its writer_group)"
        )
        assert (await claim("readers", ["guarded"]))[0].granted
        assert (await claim("g", []))[0].granted

    play(scenario)
