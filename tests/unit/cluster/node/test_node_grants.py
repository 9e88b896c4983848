"""Grants, lines, groups and producers through the whole shell, over a Raft host in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from stockade.cluster.groups import Router
from stockade.cluster.leader import reconciler, resource_service
from stockade.cluster.model import Claim, Conditions
from stockade.cluster.node.node_service import NodeService
from stockade.partition.api.ledger import session_handle
from stockade.partition.api.ownership import (
    Evicted,
    Grant,
    ListedGroup,
    OwnResult,
    Resource,
    SessionFenced,
    Ticket,
    grants_digest,
)
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import Stamp, Token
from stockade.partition.errors import (
    FeatureLevelTooLow,
    LeaderNotAvailable,
    NotFound,
    NotLeaderOrFollower,
    PlanChanged,
    ProducerBusy,
    ProducerFenced,
    RequestTimedOut,
    SessionExpired,
    TopicSealed,
    UnknownSession,
)

from ..fakes import FakeHost, fake
from .test_node import append, batch, run


async def acquire(service: NodeService, session: str, mode: Any, partitions: Any = (0,), **more: Any) -> Any:
    options = {"resume_epoch": None, "topic_id": None} | more
    return await service.at_controller().sessions.acquire("t", session, partitions, mode, "w", **options)


async def opened(service: NodeService, *clients: str) -> list[str]:
    return [(await service.at_controller().sessions.open_session(client, 10_000)).session for client in clients]


def token(grant: Grant, session: str, partition: int = 0) -> Token:
    return Token(grant.grant, grant.epochs[str(partition)], session)


def test_013_who_waits_is_told_at_once_and_granted_when_the_slot_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        a, b = await opened(service, "a", "b")
        holder = await acquire(service, a, "Exclusive")
        ticket = await acquire(service, b, "WaitForExclusive")
        assert isinstance(ticket, Ticket)
        assert (ticket.state, ticket.position, ticket.grant) == ("waiting", 0, None)
        assert (await service.at_controller().sessions.get_ticket(ticket.ticket, b, 20)).state == "waiting"
        asked = asyncio.create_task(service.at_controller().sessions.get_ticket(ticket.ticket, b, 10_000))
        await asyncio.sleep(0)
        await service.at_controller().sessions.release(holder.grant, a)
        granted = await asked
        assert granted.state == "granted"
        assert granted.grant is not None
        await append(service, b"x", token=token(granted.grant, b))

    run(tmp_path, monkeypatch, scenario)


def test_a_ticket_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        a, b = await opened(service, "a", "b")
        await acquire(service, a, "Exclusive")
        ticket = await acquire(service, b, "WaitForExclusive", (0, 1))
        asked = asyncio.create_task(service.at_controller().sessions.get_ticket(ticket.ticket, b, 60_000))
        await asyncio.sleep(0)
        assert (await service.at_controller().sessions.cancel_ticket(ticket.ticket, b)).state == "cancelled"
        told = await asked
        assert (told.state, told.partitions) == ("cancelled", [0, 1]), "who waits is told"
        for gone in (ticket.ticket, "t-1-1"):
            with pytest.raises(NotFound):
                await service.at_controller().sessions.get_ticket(gone, b, 0)

    run(tmp_path, monkeypatch, scenario)


def test_shared_holders_have_an_epoch_for_each_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        a, b = await opened(service, "a", "b")
        await service.at_controller().sessions.release((await acquire(service, a, "Exclusive", [1])).grant, a)
        seats = [await acquire(service, session, "Shared", None) for session in (a, b)]
        assert [(seat.epoch, seat.epochs) for seat in seats] == [(None, {"0": 0, "1": 1})] * 2
        for seat, session in zip(seats, (a, b), strict=True):
            await append(service, b"x", partition=1, token=token(seat, session, 1))
        await service.at_controller().sessions.release(seats[0].grant, a)
        with pytest.raises(ProducerFenced):
            await append(service, b"x", partition=1, token=token(seats[0], a, 1))

    run(tmp_path, monkeypatch, scenario)


def test_a_topic_that_grows_takes_the_grant_of_all_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        (a,) = await opened(service, "a")
        grant = await acquire(service, a, "Exclusive", None)
        info = await service.at_controller().topics.change_topic("t", None, partitions=3, seal=False, config={})
        assert len(info.partitions) == 3
        await append(service, b"x", partition=2, token=Token(grant.grant, 1, a))
        with pytest.raises(ProducerBusy):
            await append(service, b"x", partition=2)
        ticket = "t" + grant.grant[1:]
        grown = await service.at_controller().sessions.get_ticket(ticket, a, 5_000)
        assert grown.grant is not None
        assert grown.grant.epochs == {"0": 1, "1": 1, "2": 1}
        await append(service, b"x", partition=2, token=token(grown.grant, a, 2))

    run(tmp_path, monkeypatch, scenario)


def test_a_partition_that_is_added_takes_no_write_before_it_knows_the_holder_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes that heard of it took writes without a token until the fence was installed, some milliseconds later."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        (a,) = await opened(service, "a")
        grant = await acquire(service, a, "Exclusive", None)
        with monkeypatch.context() as cut:
            cut.setattr(reconciler, "carry_out", unreachable)
            growing = asyncio.create_task(
                service.at_controller().topics.change_topic("t", None, partitions=3, seal=False, config={})
            )
            await until(lambda: service.held("t", 2) is not None)
            replica = await service.partition("t", 2, None)
            assert not replica.submit(batch(b"x"), Conditions(), settle=lambda verdict: pytest.fail(str(verdict)))
            monkeypatch.setattr(replica, "timeout_s", 0.1)
            with pytest.raises(LeaderNotAvailable, match="the partition is new"):
                await append(service, b"x", partition=2)
            monkeypatch.setattr(replica, "timeout_s", 30.0)
            early = asyncio.create_task(append(service, b"x", partition=2, token=Token(grant.grant, 1, a)))
            bare = asyncio.create_task(append(service, b"y", partition=2))
        await growing
        assert (await early).base_offset == 0
        with pytest.raises(ProducerBusy):
            await bare

    run(tmp_path, monkeypatch, scenario)


def test_partitions_are_added_and_topics_created_when_their_writers_and_readers_are_known_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        (a,) = await opened(service, "a")
        await acquire(service, a, "Exclusive", None)
        claims = [Claim("t/2"), Claim("u/0")]
        await service.at_controller().resources.own("g", a, claims, atomic=True, sever="session")
        topics = service.at_controller().topics

        async def added() -> object:
            return await topics.change_topic("t", None, partitions=3, seal=False, config={})

        async def created() -> object:
            return await topics.create_topic("u", 1, None, TopicConfig())

        with monkeypatch.context() as cut:
            cut.setattr(reconciler, "carry_out", unreachable)
            cut.setattr(service.at_controller().control, "timeout_s", 3.0)  # a busy machine takes 1 s to decide
            for change, why in (added, "acts by it yet"), (created, "has committed it"):
                with pytest.raises(RequestTimedOut, match=f"not every partition {why}"):
                    await change()
        await added()
        await created()
        with pytest.raises(ProducerBusy):
            await append(service, b"x", partition=2)
        for name, partition in (("t", 2), ("u", 0)):
            replica = await service.partition(name, partition, None)
            assert replica.machine.readers.judge("g", 0) is not None

    run(tmp_path, monkeypatch, scenario)


def test_a_bug_in_a_step_towards_a_grant_is_counted_and_the_step_is_tried_again_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        (a,) = await opened(service, "a")
        monkeypatch.setattr(reconciler, "PAUSE_S", 0.01)
        with monkeypatch.context() as broken:
            broken.setattr(reconciler, "carry_out", lambda *_: 1 // 0)
            acquiring = asyncio.create_task(acquire(service, a, "Exclusive", (1,)))
            await until(lambda: host.bugs > 1)
        assert (await acquiring).epochs == {"1": 1}
        monkeypatch.setattr(reconciler, "PAUSE_S", 3600.0)
        monkeypatch.setattr(reconciler, "carry_out", lambda *_: 1 // 0)
        before, acquiring = host.bugs, asyncio.create_task(acquire(service, a, "Exclusive"))
        await until(lambda: host.bugs > before)
        for _ in range(50):
            await asyncio.sleep(0)
        assert host.bugs == before + 1, "a step that fails at once must not hold the processor, and fill the log"
        acquiring.cancel()

    run(tmp_path, monkeypatch, scenario)


def test_a_sealed_topic_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        assert (
            await service.at_controller().topics.change_topic("t", None, partitions=None, seal=True, config={})
        ).sealed
        with pytest.raises(TopicSealed):
            await append(service, b"x")

    run(tmp_path, monkeypatch, scenario)


def test_a_fence_on_purpose_is_answered_when_the_fence_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        (a,) = await opened(service, "a")
        grant = await acquire(service, a, "Exclusive")
        assert await service.at_controller().resources.fence_topic("t", None, None, "drill") == [
            Evicted(0, 2, [grant.grant]),
            Evicted(1, 1, []),
        ]
        with pytest.raises(ProducerFenced):
            await append(service, b"x", token=token(grant, a))
        replica = await service.partition("t", 0, None)
        ended = (await replica.fences())[0]
        assert (ended.client_id, ended.end, ended.refused) == ("a", "fenced: drill", 1)

    run(tmp_path, monkeypatch, scenario)


def test_a_session_that_an_operator_ends_writes_no_more_when_the_answer_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        sessions, lists = service.at_controller().sessions, service.at_controller().lists
        with pytest.raises(FeatureLevelTooLow):
            await sessions.fence_session("0" * 16)
        host.level = 2
        a, b = await opened(service, "alpha", "beta")
        grant = await acquire(service, a, "Exclusive")
        [listed] = (await lists.list_sessions("alpha", 10)).sessions
        assert (listed.handle, [held.grant for held in listed.grants]) == (session_handle(a), [grant.grant])
        of_b = await lists.list_sessions("", 10, handle=session_handle(b))
        assert (of_b.total, [each.client_id for each in of_b.sessions]) == (1, ["beta"])
        with pytest.raises(PlanChanged):
            await sessions.fence_session(listed.handle, if_grants=grants_digest([]))
        digest = grants_digest([grant.grant])
        fenced = await sessions.fence_session(listed.handle, reason="drill", if_grants=digest, if_resources=0)
        assert fenced == SessionFenced(listed.handle, "alpha", [grant.grant], 0)
        with pytest.raises(ProducerFenced):
            await append(service, b"x", token=token(grant, a))
        with pytest.raises(SessionExpired):
            await sessions.renew_session(a)
        replica = await service.partition("t", 0, None)
        ended = (await replica.fences())[0]
        assert (ended.client_id, ended.end, ended.refused) == ("alpha", "fenced: drill", 1)
        with pytest.raises(NotFound):
            await sessions.fence_session(listed.handle)
        with pytest.raises(NotFound):
            await sessions.fence_session(a)

    run(tmp_path, monkeypatch, scenario)


def test_an_owner_is_told_when_its_partition_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        a, b = await opened(service, "a", "b")
        claims = [Claim("t/0"), Claim("x")]
        first = await service.at_controller().resources.own("g", a, claims, atomic=True, sever="session")
        assert first == [OwnResult("t/0", True, 1, 1), OwnResult("x", True, 1, 1)]
        replica = await service.partition("t", 0, None)
        await replica.commit_position("g", 0, None, 1)
        await service.at_controller().resources.own("g", b, [Claim("t/0", 1)], atomic=True, sever="session")
        assert replica.machine.readers.judge("g", 1) is not None
        assert replica.machine.readers.judge("g", 2) is None
        assert await service.at_controller().resources.list_resources("g") == [
            Resource("t/0", True, "b", 2, 2, session_handle(b)),
            Resource("x", False, None, 1, 1),
        ]
        assert await service.at_controller().resources.disown("g", b, ["t/0"]) == [OwnResult("t/0", False, 2, 2)]
        assert replica.machine.readers.judge("g", 2) is not None

    run(tmp_path, monkeypatch, scenario)


def test_takeover_and_close_are_answered_when_the_cut_off_partition_knows_also_when_they_are_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        a, b = await opened(service, "a", "b")
        replica = await service.partition("t", 0, None)
        held = await acquire(service, a, "Exclusive")
        await service.at_controller().resources.own("g", a, [Claim("r"), Claim("t/1")], atomic=True, sever="session")

        async def repeated_over_a_cut(repeat: Callable[[], Awaitable[object]]) -> None:
            """It is unknown, twice, while no partition can be told; then it is done."""
            with monkeypatch.context() as cut:
                cut.setattr(Router, "propose", unreachable)
                cut.setattr(service.at_controller().control, "timeout_s", 0.2)
                for _ in range(2):
                    with pytest.raises(RequestTimedOut):
                        await repeat()
                    assert replica.machine.slot is not None, "cut off: it lets the old owner in still"
            await repeat()
            assert replica.machine.slot is None

        await repeated_over_a_cut(
            lambda: service.at_controller().resources.own("g", b, [Claim("r", 1)], atomic=True, sever="session")
        )
        with pytest.raises(ProducerFenced):
            await append(service, b"late", token=token(held, a))
        await acquire(service, b, "Exclusive")
        await repeated_over_a_cut(lambda: service.at_controller().sessions.close_session(b))
        host.level = 2
        (c,) = await opened(service, "c")
        await acquire(service, c, "Exclusive")

        async def fenced_or_gone() -> None:
            """The first order ends the session; the ones after it are told so no earlier than the first."""
            with suppress(NotFound):
                await service.at_controller().sessions.fence_session(session_handle(c))

        await repeated_over_a_cut(fenced_or_gone)

    run(tmp_path, monkeypatch, scenario)


def test_the_loser_of_two_takeovers_at_once_is_told_that_its_grant_was_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its grant evicted the owner before the other grant evicted it: "nothing was changed" would be untrue."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        sessions = service.at_controller().sessions
        a, b, c = await opened(service, "a", "b", "c")
        owned = await acquire(service, a, "Exclusive")
        with monkeypatch.context() as cut:
            cut.setattr(Router, "propose", unreachable)
            takeover = asyncio.create_task(acquire(service, b, "ExclusiveWithFencing"))
            while not service.at_controller().control.machine.slots.grants.of_session(b):  # noqa: ASYNC110
                await asyncio.sleep(0)
            later = asyncio.create_task(acquire(service, c, "ExclusiveWithFencing"))
            with pytest.raises(ProducerFenced) as refusal:
                await takeover
        assert (refusal.value.fields["reason"], refusal.value.no_side_effects) == ("evicted", False)
        assert (await later).epoch == owned.epoch + 2
        with pytest.raises(ProducerFenced):
            await append(service, b"x", token=token(owned, a))
        with pytest.raises(ProducerFenced) as refusal:
            await acquire(service, a, "Exclusive", resume_epoch=owned.epoch)
        assert refusal.value.no_side_effects, "refused before anything was done"
        closing = asyncio.create_task(acquire(service, b, "ExclusiveWithFencing"))
        while not service.at_controller().control.machine.slots.grants.of_session(b):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await sessions.close_session(b)
        with pytest.raises(UnknownSession) as gone:
            await closing
        assert not gone.value.no_side_effects, "the grant had evicted c"

    run(tmp_path, monkeypatch, scenario)


def test_a_refused_acquire_knows_when_the_holders_session_was_renewed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        sessions, control = service.at_controller().sessions, service.at_controller().control
        with monkeypatch.context() as later:
            now_ms = control.now_ms()
            later.setattr(control, "now_ms", lambda: now_ms)
            holder, other = await opened(service, "a", "b")
            await acquire(service, holder, "Exclusive")
            now_ms += 4_000
            with pytest.raises(ProducerBusy) as before:
                await acquire(service, other, "Exclusive")
            await sessions.renew_session(holder)
            with pytest.raises(ProducerBusy) as after:
                await acquire(service, other, "Exclusive")
        assert before.value.fields["holder"]["expires_in_ms"] == 6_000
        assert after.value.fields["holder"]["expires_in_ms"] == 10_000
        assert after.value.fields["holder"]["since_unix_ms"] > 1_700_000_000_000
        topic = await service.get_topic("t")
        assert topic.partitions[0].holder is not None
        assert topic.partitions[0].holder.client_id == "a"

    run(tmp_path, monkeypatch, scenario)


async def unreachable(*_: object) -> bytes:
    raise LeaderNotAvailable("cut off")


def test_producers_are_fenced_and_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        pair = await service.at_controller().producers.init_producer("w", None, None)
        await append(service, b"x", b"y", partition=1, stamp=Stamp(pair.producer_id, 0, 0))
        for key in ("w", pair.producer_id):
            found = await service.at_controller().producers.get_producer(key)
            assert (found.producer_id, found.producer_epoch, found.name) == (pair.producer_id, 0, "w")
            assert [(it.partition, it.last_seq, it.last_offset) for it in found.partitions] == [(1, 1, 1)]
        fenced = await service.at_controller().producers.fence_producer("w")
        assert (fenced.producer_id, fenced.producer_epoch) == (pair.producer_id, 1)
        nameless = await service.at_controller().producers.init_producer(None, None, None)
        await append(service, b"z", stamp=Stamp(nameless.producer_id, 0, 0))
        known = await service.at_controller().producers.get_producer(nameless.producer_id)
        assert (known.producer_epoch, known.name, [it.partition for it in known.partitions]) == (None, None, [0])
        for key in ("nobody", 999, nameless.producer_id + 2):
            with pytest.raises(NotFound):
                await service.at_controller().producers.get_producer(key)

    run(tmp_path, monkeypatch, scenario)


def test_a_renewal_costs_the_log_nothing_and_proves_that_the_node_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        sessions = await opened(service, "a", "b", "c")
        control = service.at_controller().control
        await until(lambda: control.leases.has_begun(control.group.term))
        group = fake(control.group)
        before = len(group.proposed)
        answers = await asyncio.gather(
            *(service.at_controller().sessions.renew_session(session) for session in sessions)
        )
        assert all(answer.remaining_ms > 9_900 for answer in answers)
        assert len(group.proposed) == before
        with pytest.raises(UnknownSession):
            await service.at_controller().sessions.renew_session("s-unknown")
        group.leading = False
        with pytest.raises(NotLeaderOrFollower):
            await service.at_controller().sessions.renew_session(sessions[0])

    run(tmp_path, monkeypatch, scenario)


def test_a_session_that_is_not_renewed_expires_and_one_that_is_renewed_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        sessions, control = service.at_controller().sessions, service.at_controller().control
        now_ms = control.now_ms()
        monkeypatch.setattr(control, "now_ms", lambda: now_ms)
        idle, busy = await opened(service, "idle", "busy")

        def is_over() -> bool:
            try:
                control.machine.sessions.find(idle).state()
            except SessionExpired:
                return True
            return False

        for _ in range(2):
            assert not is_over()
            now_ms += 6_000
            await sessions.renew_session(busy)
        await until(is_over)
        await sessions.renew_session(busy)
        await service.at_controller().sessions.renew_session(busy)

    run(tmp_path, monkeypatch, scenario)


@pytest.mark.parametrize("items_per_turn", [1, 10_000])
def test_sessions_groups_and_producers_are_listed_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, items_per_turn: int
) -> None:
    monkeypatch.setattr("stockade.cluster.leader.list_service.ITEMS_PER_TURN", items_per_turn)

    async def scenario(service: NodeService, host: FakeHost) -> None:
        b, _ = await opened(service, "beta", "alpha")
        grant = await acquire(service, b, "Exclusive", (0, 1))
        await service.at_controller().resources.own("g2", b, [Claim("x")], atomic=True, sever="session")
        await service.at_controller().resources.own("g1", b, [Claim("x"), Claim("y")], atomic=True, sever="session")
        await service.at_controller().resources.disown("g1", b, ["y"])
        throwaway = "producer-0123456789abcdef"
        for name in ("w2", "w1", "v", throwaway, "producer-of-mine"):
            await service.at_controller().producers.init_producer(name, None, None)
        sessions = await service.at_controller().lists.list_sessions("", 10)
        assert [each.client_id for each in sessions.sessions] == ["alpha", "beta"]
        assert [each.resources for each in sessions.sessions] == [0, 2]
        assert all(0 < each.remaining_ms <= each.ttl_ms for each in sessions.sessions)
        [held] = sessions.sessions[1].grants
        assert (held.grant, held.topic, held.epoch, held.partitions) == (grant.grant, "t", grant.epoch, 2)
        groups = await service.at_controller().lists.list_groups("g", 1)
        assert (groups.total, groups.groups) == (2, [ListedGroup("g1", 2, 1)])
        lists = service.at_controller().lists
        producers = await lists.list_producers("w", 10, internal=False)
        assert [each.name for each in producers.producers] == ["w1", "w2"]
        shown = await lists.list_producers("", 10, internal=False)
        assert (shown.total, [each.name for each in shown.producers]) == (4, ["producer-of-mine", "v", "w1", "w2"])
        assert throwaway in [each.name for each in (await lists.list_producers("", 10, internal=True)).producers]
        assert (await service.at_controller().lists.list_sessions("nobody", 10)).total == 0
        holding = await service.at_controller().lists.list_sessions("", 10, holding=True)
        assert (holding.total, [each.client_id for each in holding.sessions]) == (1, ["beta"])

    run(tmp_path, monkeypatch, scenario)


def test_the_loop_goes_on_while_the_many_resources_of_a_group_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_service, "SLICE", 3)

    async def scenario(service: NodeService, host: FakeHost) -> None:
        (a,) = await opened(service, "a")
        resources, names = service.at_controller().resources, [f"r{number * 7 % 10}" for number in range(10)]
        await resources.own("g", a, [Claim(name) for name in names], atomic=True, sever="session")
        listing, turns = asyncio.ensure_future(resources.list_resources("g")), 0
        while not listing.done():
            turns += 1
            await asyncio.sleep(0)
        assert await listing == [Resource(name, True, "a", 1, 1, session_handle(a)) for name in sorted(names)]
        assert turns >= 2 * len(names) // 3

    run(tmp_path, monkeypatch, scenario)


def test_a_resource_that_is_forgotten_while_its_group_is_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        (a,) = await opened(service, "a")
        resources = service.at_controller().resources
        await resources.own("g", a, [Claim("x")], atomic=True, sever="session")
        assert resources._those("g", ["forgotten", "x"]) == [Resource("x", True, "a", 1, 1, session_handle(a))]
        assert resources._those("forgotten", ["x"]) == []

    run(tmp_path, monkeypatch, scenario)
