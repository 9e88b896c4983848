"""The shell around the machines, over a Raft host in memory: what is proposed, awaited, forwarded and retried."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from waiting import until

from stockade.cluster.config import LimitsSection, NodeConfig
from stockade.cluster.controller.commands import CreateTopic, RegisterNode, decode_command, encode_command
from stockade.cluster.controller.ledger import NoteIntent, NoteOutcome
from stockade.cluster.controller.principals import DeletePrincipal
from stockade.cluster.controller.topology.catalog import CONTROLLER_GROUP, group_id
from stockade.cluster.controller.topology.nodes import NodeEntry
from stockade.cluster.discovery import first_level
from stockade.cluster.discovery.cluster_view import ClusterView
from stockade.cluster.machines import Member
from stockade.cluster.model import NO_PRINCIPAL, By, Conditions
from stockade.cluster.node.node import Node
from stockade.cluster.node.node_service import NodeService
from stockade.cluster.rpc import Catalog
from stockade.partition.api.cluster import NotedBackup
from stockade.partition.api.ownership import Grant, Ticket
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import Stamp, Token
from stockade.partition.errors import (
    LeaderNotAvailable,
    NotEnoughReplicas,
    NotFound,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    ProducerBusy,
    ProducerFenced,
    RequestTimedOut,
    StockadeError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from stockade.partition.log import segments
from stockade.partition.records.batch import Batch, batch_from_columns
from stockade.raft.host import incarnation_of
from stockade.raft.log.configuration import Configuration
from stockade.raft.wal.errors import DiskRefused
from stockade.raft.wal.wal import Wal

from ..fakes import FakeGroup, FakeHost, fake

Scenario = Callable[[NodeService, FakeHost], Awaitable[None]]


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: Scenario, patience_s: float = 0.0) -> None:
    """One node over a host in memory, with a topic ``t`` of two partitions. The cluster has feature level 1, unless the
    node has the patience to ask for more.
    """
    host = FakeHost(tmp_path)
    monkeypatch.setattr(first_level, "PATIENCE_S", patience_s)
    monkeypatch.setattr("stockade.cluster.node.node.RaftHost", lambda *_, **__: host)
    members = [Member("n1", "http://127.0.0.1:1", "127.0.0.1:2")]
    config = NodeConfig("n1", "c", str(tmp_path), "127.0.0.1:1", "127.0.0.1:2", members)

    async def scene() -> None:
        failures: list[BaseException] = []
        node = await Node.start(config, failures.append)
        try:
            await until(lambda: not node.service.unready())
            await node.service.at_controller().topics.create_topic("t", 2, None, TopicConfig())
            await scenario(node.service, host)
        finally:
            await node.stop()
        assert not failures

    asyncio.run(asyncio.wait_for(scene(), 60))


class Started(Exception):
    """The node took its disk, and went on."""


@pytest.mark.parametrize(
    ("mine", "of_n2", "refused"), [(1, 0, True), (0, 0, False), (1, 1, False)], ids=["exchanged", "copied", "new"]
)
def test_a_node_does_not_start_over_the_folder_of_another_one(
    mine: int, of_n2: int, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the folders of two nodes of three exchanged, no group had a leader, and no line said why."""

    def start(*_: object, **__: object) -> None:
        raise Started

    async def scene() -> None:
        await Wal(tmp_path / "wal", asyncio.get_running_loop(), print, file_bytes=4096).close()
        found = incarnation_of(tmp_path) or 0
        entries = [
            NodeEntry(name, f"http://{name}:1", f"{name}:2", None, found + more)
            for name, more in (("n1", mine), ("n2", of_n2))
        ]
        members, limits = [Member("n1", "http://n1:1", "n1:2")], LimitsSection(disk_reserve_bytes=0)
        config = NodeConfig("n1", "c", str(tmp_path), "127.0.0.1:1", "127.0.0.1:2", members, limits=limits)
        await ClusterView(config).follow(Catalog(9, [], None, 0, entries, [], ["n1"], []))
        await Node.start(config, print)

    monkeypatch.setattr("stockade.cluster.node.node.RaftHost", start)
    with pytest.raises(
        DiskRefused if refused else Started, match="folder of n2, and this node is n1" if refused else None
    ):
        asyncio.run(scene())


def batch(*values: bytes) -> Batch:
    return batch_from_columns([None] * len(values), list(values), None, None, now_ms=5, batch_bytes_max=1 << 20)


async def append(service: NodeService, *values: bytes, partition: int = 0, **more: Any) -> Any:
    replica = await service.partition("t", partition, None)
    return await replica.append(batch(*values), Conditions(**more))


async def grant(service: NodeService, mode: Any = "Exclusive", partitions: Any = (0, 1)) -> tuple[Grant, Token]:
    session = (await service.at_controller().sessions.open_session("client", 10_000)).session
    answer = await service.at_controller().sessions.acquire(
        "t", session, partitions, mode, "w", resume_epoch=None, topic_id=None
    )
    assert isinstance(answer, Grant), answer
    assert answer.epoch is not None
    return answer, Token(answer.grant, answer.epoch, session)


def files(data: Path) -> list[Path]:
    return [path for path in data.glob("partitions/**/*") if path.is_file()]


async def group_of(service: NodeService, partition: int = 0) -> FakeGroup:
    return fake((await service.partition("t", partition, None)).group)


def test_a_grant_is_answered_when_it_is_in_force_on_every_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        _, first = await grant(service)
        await append(service, b"1", token=first)
        _, second = await grant(service, "ExclusiveWithFencing", [1])
        for partition, reason in ((0, "slot_free"), (1, "superseded")):
            with pytest.raises(ProducerFenced) as refusal:
                await append(service, b"x", partition=partition, token=first)
            assert refusal.value.fields["reason"] == reason
        await append(service, b"2", partition=1, token=second)

    run(tmp_path, monkeypatch, scenario)


def test_release_and_close_answer_when_the_slots_are_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEMANTICS 11, 25: no race between the answer and a late write."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        held, token = await grant(service)
        with pytest.raises(ProducerBusy):
            await append(service, b"x")
        await service.at_controller().sessions.release(held.grant, token.session)
        with pytest.raises(ProducerFenced):
            await append(service, b"late", token=token)
        await append(service, b"free")
        _, token = await grant(service)
        await service.at_controller().sessions.close_session(token.session)
        await append(service, b"free again", partition=1)

    run(tmp_path, monkeypatch, scenario)


@pytest.mark.parametrize("applied", [False, True])
def test_an_install_whose_answer_is_lost_is_repeated_until_its_outcome_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        (await group_of(service)).lose = [applied, applied]
        _, token = await grant(service)
        assert (await append(service, b"x", token=token)).base_offset == 0

    run(tmp_path, monkeypatch, scenario)


def test_an_acquire_that_cannot_be_installed_is_answered_with_a_ticket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        group = await group_of(service, 1)
        group.leading = False
        session = (await service.at_controller().sessions.open_session("client", 60_000)).session
        answer = await service.at_controller().sessions.acquire(
            "t", session, None, "Exclusive", "w", resume_epoch=None, topic_id=None
        )
        assert isinstance(answer, Ticket)
        assert (answer.state, answer.grant) == ("installing", None)
        group.leading = True
        later = await service.at_controller().sessions.get_ticket(answer.ticket, session, 10_000)
        assert later.state == "granted"
        assert later.grant is not None

    monkeypatch.setattr("stockade.cluster.leader.session_service.INSTALLING_MAX_S", 0.05)
    run(tmp_path, monkeypatch, scenario)


def test_a_lost_proposal_is_an_unknown_outcome_and_its_retry_stores_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        pair = await service.at_controller().producers.init_producer("p", None, None)
        stamp = Stamp(pair.producer_id, pair.producer_epoch, 0)
        await append(service, b"0", stamp=stamp)
        (await group_of(service)).lose = [True]
        stamp = Stamp(pair.producer_id, pair.producer_epoch, 1)
        with pytest.raises(RequestTimedOut):
            await append(service, b"1", stamp=stamp)
        again = await append(service, b"1", stamp=stamp)
        assert (again.base_offset, again.duplicate) == (1, True)

    run(tmp_path, monkeypatch, scenario)


def test_a_new_instance_of_a_name_fences_the_old_one_on_every_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEMANTICS 11, 59: also where the new one never wrote."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        old = await service.at_controller().producers.init_producer("p", None, None)
        for partition in (0, 1):
            await append(service, b"0", partition=partition, stamp=Stamp(old.producer_id, old.producer_epoch, 0))
        await service.at_controller().producers.init_producer("p", None, None)
        for partition in (0, 1):
            with pytest.raises(StockadeError, match="INVALID_PRODUCER_EPOCH"):
                await append(service, b"1", partition=partition, stamp=Stamp(old.producer_id, old.producer_epoch, 1))

    run(tmp_path, monkeypatch, scenario)


def test_an_append_is_not_called_unknown_when_only_the_enrolment_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        pair = await service.at_controller().producers.init_producer("p", None, None)
        fake(host.groups[0]).lose = [False]
        with pytest.raises(LeaderNotAvailable):
            await append(service, b"0", stamp=Stamp(pair.producer_id, 0, 0))
        assert (await append(service, b"0", stamp=Stamp(pair.producer_id, 0, 0))).base_offset == 0

    run(tmp_path, monkeypatch, scenario)


def test_a_node_that_does_not_lead_refuses_and_proposes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        group = await group_of(service)
        group.leading = False
        replica = await service.partition("t", 0, None)
        for work in (append(service, b"x"), replica.read_tail(1)):
            with pytest.raises(NotLeaderOrFollower):
                await work
        assert not group.proposed
        assert (await replica.read(0, max_bytes=1, min_bytes=1, max_wait_ms=0, local=True)).stale
        fake(host.groups[0]).leading = False
        with pytest.raises(NotLeaderOrFollower):
            await service.at_controller().topics.list_topics()

    run(tmp_path, monkeypatch, scenario)


def test_a_read_at_the_log_end_waits_for_the_next_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        replica = await service.partition("t", 0, None)
        reading = asyncio.create_task(replica.read(None, max_bytes=9999, min_bytes=1, max_wait_ms=10_000, local=False))
        await asyncio.sleep(0)
        await append(service, b"news")
        assert [found.count for found in (await reading).batches] == [1]
        empty = await replica.read(1, max_bytes=9999, min_bytes=1, max_wait_ms=1, local=False)
        assert (empty.batches, empty.next_offset) == ([], 1)
        with pytest.raises(OffsetOutOfRange) as refusal:
            await replica.read(2, max_bytes=9999, min_bytes=1, max_wait_ms=0, local=False)
        assert refusal.value.status == 416

    run(tmp_path, monkeypatch, scenario)


def test_a_write_to_a_segment_that_fails_in_a_read_stops_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        await append(service, b"x")
        replica = await service.partition("t", 0, None)
        with monkeypatch.context() as faulty:
            faulty.setattr(segments, "write_all", lambda *_: os.write(-1, b""))
            with pytest.raises(OSError, match="Bad file descriptor"):
                await replica.read(0, max_bytes=1, min_bytes=1, max_wait_ms=0, local=False)
        assert [type(error) for error in host.failures] == [OSError]

    run(tmp_path, monkeypatch, scenario)


def test_a_missing_index_stops_the_node_unless_the_replica_is_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing(*_: object) -> int:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "0.index")

    async def scenario(service: NodeService, host: FakeHost) -> None:
        monkeypatch.setattr(segments, "greatest", find_nothing)
        replica = await service.partition("t", 0, None)
        await service.at_controller().topics.delete_topic("t", None)
        with pytest.raises(FileNotFoundError):
            replica.log.greatest_timestamp()
        assert not host.failures
        await service.at_controller().topics.create_topic("t", 1, None, TopicConfig())
        with pytest.raises(FileNotFoundError):
            (await service.partition("t", 0, None)).log.greatest_timestamp()
        assert "0.index" in str(host.failures)

    run(tmp_path, monkeypatch, scenario)


def test_a_deleted_topic_is_gone_with_its_files_and_its_grants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        await append(service, b"x")
        _, token = await grant(service)
        assert files(tmp_path)
        await service.at_controller().topics.delete_topic("t", None)
        assert not files(tmp_path)
        assert list(host.groups) == [0]
        with pytest.raises(UnknownTopicOrPartition):
            await service.partition("t", 0, None)
        await service.at_controller().topics.create_topic("t", 1, None, TopicConfig())
        with pytest.raises(StockadeError, match="INCONSISTENT_TOPIC_ID"):
            await append(service, b"zombie of a deleted topic", token=token)

    run(tmp_path, monkeypatch, scenario)


def test_a_node_that_lags_asks_the_controller_for_a_topic_id_that_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It told an append by key that the topic's former id is the one "now"."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        known = service._replicas.topics
        new = known["t"].topic_id
        monkeypatch.setitem(known, "t", structs.replace(known["t"], topic_id=new - 1))
        asked = [(await service.get_topic("t", topic_id)).topic_id for topic_id in (None, new - 1, new)]
        assert asked == [new - 1, new - 1, new]

    run(tmp_path, monkeypatch, scenario)


def test_a_change_that_was_made_is_answered_without_a_read_that_may_be_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A barrier that failed behind it said that nothing had changed."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        async def refused() -> None:
            raise LeaderNotAvailable("no majority answers")

        leader = service.at_controller()
        monkeypatch.setattr(leader.control, "barrier", refused)
        made = NotedBackup("s3://b", "one", 1, 2, 3, 4, 5, "backup")
        assert [each.name for each in await leader.members.note_backup(made)] == ["one"]
        put, is_new = await leader.principals.put_principal("root", ["all"], [], None, opens=False, by=NO_PRINCIPAL)
        assert (put.principal, put.rights, is_new) == ("root", ["all"], True)

    run(tmp_path, monkeypatch, scenario, patience_s=5)


def test_a_principal_that_is_deleted_in_the_turn_in_which_it_was_put_was_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer was a 404, which says that nothing was changed."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        def delete(group: FakeGroup) -> None:
            """Another caller's command, which is committed and applied together with that before."""
            group.on_applied = None
            group.machine.apply(
                group.applied_index + 1, group.term, encode_command(DeletePrincipal(now_ms=0, name="p"))
            )

        principals = service.at_controller().principals
        await principals.put_principal("root", ["all"], [], None, opens=False, by=NO_PRINCIPAL)
        host.groups[CONTROLLER_GROUP].on_applied = delete
        put, is_new = await principals.put_principal(
            "p", ["read topic:*"], ["CN:p"], None, opens=False, by=NO_PRINCIPAL
        )
        assert (put.principal, put.rights, put.certificates, is_new) == ("p", ["read topic:*"], ["CN:p"], True)
        with pytest.raises(NotFound):
            await principals.get_principal("p")

    run(tmp_path, monkeypatch, scenario, patience_s=5)


def test_a_topic_without_a_retention_of_its_own_gets_the_clusters_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    week_ms = 7 * 86_400_000

    async def scenario(service: NodeService, host: FakeHost) -> None:
        async def made(name: str, config: TopicConfig, *, leaves: bool) -> tuple[int, int, bool]:
            create = service.at_controller().topics.create_topic
            topic, is_new = await create(name, 1, None, config, leaves_retention=leaves)
            return topic.config.retention_ms, topic.config.retention_bytes, is_new

        assert await made("new", TopicConfig(), leaves=True) == (week_ms, -1, True)
        assert await made("new", TopicConfig(), leaves=True) == (week_ms, -1, False)
        assert await made("sized", TopicConfig(retention_bytes=5), leaves=False) == (-1, 5, True)
        assert await made("old", TopicConfig(), leaves=False) == (-1, -1, True)
        assert await made("old", TopicConfig(), leaves=True) == (
            -1,
            -1,
            False,
        )  # a program that creates it at each start
        assert await made("stockade-sink.x", TopicConfig(), leaves=True) == (-1, -1, True)
        with pytest.raises(TopicAlreadyExists):
            await made("old", TopicConfig(require_fence=True), leaves=True)

    run(tmp_path, monkeypatch, scenario)


def test_creating_a_topic_again_after_its_retention_was_changed_is_a_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        topics = service.at_controller().topics
        first, _ = await topics.create_topic("new", 1, None, TopicConfig(), leaves_retention=True)
        config = {"retention_ms": 3_600_000, "retention_bytes": 5}
        await topics.change_topic("new", None, partitions=None, seal=False, config=config)
        again, is_new = await topics.create_topic("new", 1, None, TopicConfig(), leaves_retention=True)
        assert (again.topic_id, again.config.retention_ms, is_new) == (first.topic_id, 3_600_000, False)

    run(tmp_path, monkeypatch, scenario)


def test_requests_that_wait_on_a_partition_learn_at_once_that_its_topic_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        await append(service, b"x")
        read = (await service.partition("t", 0, None)).read
        holder = (await service.at_controller().sessions.open_session("client", 60_000)).session
        (await group_of(service, 1)).leading = False
        acquiring = service.at_controller().sessions.acquire(
            "t", holder, None, "Exclusive", "w", resume_epoch=None, topic_id=None
        )
        reads = [read(0, max_bytes=999, min_bytes=999, max_wait_ms=60_000, local=local) for local in (True, False)]
        waiting = [asyncio.ensure_future(work) for work in (acquiring, *reads)]
        await asyncio.sleep(0)
        await service.at_controller().topics.delete_topic("t", None)
        for task in waiting:
            with pytest.raises(UnknownTopicOrPartition):
                await task

    run(tmp_path, monkeypatch, scenario)


def test_a_create_overtaken_by_a_delete_is_an_unknown_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        creating = asyncio.create_task(service.at_controller().topics.create_topic("u", 1, None, TopicConfig()))
        await asyncio.sleep(0)
        await service.at_controller().topics.delete_topic("u", None)
        with pytest.raises(RequestTimedOut):
            await creating

    run(tmp_path, monkeypatch, scenario)


def test_positions_promised_by_replicas_are_forgotten_with_their_topic_and_no_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        moved_away = (await group_of(service, 0)).group_id
        not_told_of_yet = 1 << 60
        deleted, _ = await service.at_controller().topics.create_topic("u", 2, None, TopicConfig())
        for kept in (CONTROLLER_GROUP, moved_away, not_told_of_yet):
            host.departed.add(kept)
        await service.at_controller().topics.delete_topic("u", None)
        gone = {group_id(deleted.topic_id, partition) for partition in range(2)}

        def forgotten() -> bool | None:
            return True if host.departed.isdisjoint(gone) and not gone & set(host.groups) else None

        assert await service._replicas.changed.until(forgotten, 60)
        assert host.departed == {CONTROLLER_GROUP, moved_away, not_told_of_yet}

    run(tmp_path, monkeypatch, scenario)


def test_a_partition_that_cannot_be_reached_does_not_keep_the_others_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        (await group_of(service, 0)).leading = False
        session = (await service.at_controller().sessions.open_session("stuck", 60_000)).session
        stuck = await service.at_controller().sessions.acquire(
            "t", session, [0], "Exclusive", "w", resume_epoch=None, topic_id=None
        )
        assert isinstance(stuck, Ticket)
        monkeypatch.setattr("stockade.cluster.leader.session_service.INSTALLING_MAX_S", 5.0)
        _, token = await grant(service, partitions=[1])
        await append(service, b"x", partition=1, token=token)

    monkeypatch.setattr("stockade.cluster.leader.session_service.INSTALLING_MAX_S", 0.05)
    monkeypatch.setattr("stockade.cluster.leader.reconciler.PARTITIONS_AT_ONCE_MAX", 1)
    monkeypatch.setattr("stockade.cluster.leader.reconciler.STEP_TIMEOUT_S", 0.2)
    run(tmp_path, monkeypatch, scenario)


@pytest.mark.parametrize("partition", [0, None])
def test_a_leader_that_shall_go_to_a_node_that_is_away_is_refused_after_its_intent_is_in_the_ledger(
    partition: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As every other refusal of a transfer: an act that a partition decides leaves two entries."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        await service.at_controller().members.raise_feature_level(2)
        controller = host.groups[CONTROLLER_GROUP]
        group = controller if partition is None else await group_of(service, partition)
        group.configuration = Configuration({"n1": 1, "n9": 1})
        before = len(controller.proposed)
        with pytest.raises(NotEnoughReplicas, match="n9 is away"):
            topic = None if partition is None else "t"
            await service.transfer_leader(topic, partition, "n9", By("root", request="r-1"))
        proposed = [decode_command(data) for data in controller.proposed[before:]]
        [noted] = [command for command in proposed if isinstance(command, NoteIntent)]
        [came] = [command for command in proposed if isinstance(command, NoteOutcome)]
        assert (noted.act, noted.partition, noted.wanted, noted.by.principal) == (
            "leader.transfer",
            partition,
            {"node_id": "n9"},
            "root",
        )
        assert (came.outcome, came.code) == ("refused", "NOT_ENOUGH_REPLICAS")

    run(tmp_path, monkeypatch, scenario)


@pytest.mark.parametrize("partition", [2, 1 << 16, (1 << 31) - 1])
def test_a_partition_that_the_topic_does_not_have_is_unknown_however_large_its_number(
    partition: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        with pytest.raises(UnknownTopicOrPartition):
            await service.partition("t", partition, None)

    run(tmp_path, monkeypatch, scenario)


def test_a_new_topic_is_placed_on_nodes_that_are_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        for node_id in ("n2", "n3", "n4", "n5"):
            url, raft = f"http://{node_id}:1", f"{node_id}:2"
            command = RegisterNode(
                now_ms=0, node_id=node_id, url=url, raft=raft, zone=None, incarnation=1, controllers=["n1"]
            )
            await host.groups[CONTROLLER_GROUP].propose(encode_command(command), 1.0)
        host.connected = {"n3", "n4"}
        control, topics = service.at_controller().control, service.at_controller().topics
        waiting = asyncio.create_task(topics.create_topic("new", 9, None, TopicConfig()))
        while (placement := control.placement("new")) is None:  # noqa: ASYNC110 (nothing else tells)
            await asyncio.sleep(0)
        assert {node_id for replicas in placement.replicas for node_id in replicas} == {"n1", "n3", "n4"}
        host.connected = set()
        with pytest.raises(NotEnoughReplicas, match="no majority of replicas is up without n2, n3, n4, n5"):
            await topics.create_topic("other", 1, 3, TopicConfig())
        with pytest.raises(NotEnoughReplicas):
            await topics.change_topic("new", None, partitions=10, seal=False, config={})
        assert not (await topics.create_topic("t", 2, None, TopicConfig()))[1]
        await topics.change_topic("new", None, partitions=None, seal=True, config={})
        host.connected = {"n3", "n4"}
        proposed: list[CreateTopic] = []

        async def keep(make: Callable[[int], CreateTopic], _: object) -> None:
            proposed.append(make(0))
            raise LeaderNotAvailable

        monkeypatch.setattr(control, "decide", keep)
        with pytest.raises(LeaderNotAvailable):
            await topics.create_topic("other", 1, None, TopicConfig())
        # A node that begins to leave before the command is applied takes its place, and not the replicas, with it.
        assert (proposed[0].replication_factor, len(proposed[0].nodes)) == (3, 3)
        waiting.cancel()

    run(tmp_path, monkeypatch, scenario)
