"""For what a node is not ready, and why: partitions need no controller."""

import asyncio
import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.cluster import rpc
from stockade.cluster.config import NodeConfig
from stockade.cluster.controller.topology.catalog import CONTROLLER_GROUP
from stockade.cluster.machines import Member
from stockade.cluster.node import node_service
from stockade.cluster.node.node import Node
from stockade.cluster.node.node_service import NodeFailure, NodeService, why_stopped
from stockade.partition.errors import LeaderNotAvailable, NotLeaderOrFollower
from stockade.raft.histogram import Histogram
from stockade.raft.net.rpc import CallRefused
from stockade.raft.wal.errors import DiskRefused

from ..fakes import FakeHost
from .test_node import run


def reasons(service: NodeService) -> list[tuple[str, str]]:
    return [(each.part, each.reason) for each in service.unready()]


def partitions(host: FakeHost) -> list[Any]:
    return [group for group_id, group in host.groups.items() if group_id != CONTROLLER_GROUP]


def test_without_a_controller_leader_a_node_goes_on_serving_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        assert reasons(service) == []
        host.groups[CONTROLLER_GROUP].is_leaderless = True
        assert reasons(service) == [("control", "no_controller")]

    run(tmp_path, monkeypatch, scenario)


def test_a_node_loads_its_partitions_before_it_serves_and_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        first, second = partitions(host)
        service._was_loaded = False  # as after a start
        first.is_ready = second.is_ready = False
        assert [each.detail for each in service.unready()] == ["loading 2 partitions"]
        assert reasons(service) == [("data", "loading")]
        first.is_ready = second.is_ready = True
        assert reasons(service) == []
        first.is_ready = False  # one that moves here later takes nothing from the others
        assert reasons(service) == []

    run(tmp_path, monkeypatch, scenario)


@pytest.mark.parametrize(("grace_s", "found"), [(60.0, ("data", "loading")), (-1.0, ("partition", "no_leader"))])
def test_a_partition_without_a_leader_keeps_a_node_from_the_others_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grace_s: float, found: tuple[str, str]
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        monkeypatch.setattr(node_service, "LEADER_GRACE_S", grace_s)
        service._was_loaded = False
        lost, late = partitions(host)
        lost.is_ready, lost.is_leaderless = False, True
        assert reasons(service) == [found]
        late.is_ready = False
        assert ("data", "loading") in reasons(service)

    run(tmp_path, monkeypatch, scenario)


@pytest.mark.parametrize("led", [0, 1, 2])
def test_a_node_that_is_cut_off_since_its_start_is_not_ready_for_records_however_late_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, led: int
) -> None:
    """Restarts of one node after the other go on when it is: with a wrong certificate none may follow the first, also
    if it leads partitions by itself, or has none to load.
    """

    async def scenario(service: NodeService, host: FakeHost) -> None:
        monkeypatch.setattr(node_service, "LEADER_GRACE_S", -1.0)
        service._was_loaded = host.has_met_others = False
        host.groups[CONTROLLER_GROUP].is_leaderless = True
        service._view.urls["n2"] = "http://n2"
        for each in partitions(host)[led:]:
            each.is_ready, each.is_leaderless = False, True
        rest = [("control", "no_controller")]
        late = [] if led == 2 else [("partition", "no_leader")]
        for _ in range(2):
            assert reasons(service) == [*rest, ("data", "loading"), *late]
            assert service.unready()[1].detail == "no other node has been connected since this node started"
        host.has_met_others = True
        assert reasons(service) == [*rest, *late]

    run(tmp_path, monkeypatch, scenario)


def test_a_cluster_of_one_node_waits_for_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        host.has_met_others = False
        host.groups[CONTROLLER_GROUP].is_leaderless = True
        assert len(service._view.urls) == 1
        assert reasons(service) == [("control", "no_controller")]

    run(tmp_path, monkeypatch, scenario)


def test_the_only_node_that_is_left_serves_while_it_leads_the_controllers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        host.has_met_others = False
        service._view.urls["n2"] = "http://n2"
        assert service.controller().node_id == service.node_id
        assert reasons(service) == []

    run(tmp_path, monkeypatch, scenario)


def test_a_node_that_was_removed_refuses_requests_for_other_nodes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not take its connections: each request waited 5 s for a leader, until an operator stopped the node."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        service.held = lambda *_: None
        monkeypatch.setattr(service._member, "services", None)
        with pytest.raises(NotLeaderOrFollower):
            service.at_controller()
        with pytest.raises(NotLeaderOrFollower):
            await service.partition("t", 0, None)
        service._view.is_removed = True
        with pytest.raises(LeaderNotAvailable, match="was removed from the cluster"):
            service.at_controller()
        with pytest.raises(LeaderNotAvailable, match="was removed from the cluster"):
            await service.partition("t", 0, None)

    run(tmp_path, monkeypatch, scenario)


def test_a_node_that_is_about_to_stop_reports_nothing_so_that_no_leader_is_sent_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Balance sent leaders home to a node that had just handed them over, while it waited for its last requests."""

    async def scene() -> None:
        host = FakeHost(tmp_path)
        monkeypatch.setattr("stockade.cluster.node.node.RaftHost", lambda *_, **__: host)
        monkeypatch.setattr(host, "log", SimpleNamespace(syncs=Histogram()), raising=False)
        members = [Member("n1", "http://127.0.0.1:1", "127.0.0.1:2")]
        config = NodeConfig("n1", "c", str(tmp_path), "127.0.0.1:1", "127.0.0.1:2", members)
        failures: list[BaseException] = []
        node = await Node.start(config, failures.append)
        assert isinstance(rpc.decode(await node._answer("n2", rpc.encode(rpc.AskNode()))), rpc.NodeReport)
        assert await node._reporter.ask("n1") is not None
        await node.transfer_leadership()
        with pytest.raises(CallRefused):
            await node._answer("n2", rpc.encode(rpc.AskNode()))
        assert await node._reporter.ask("n1") is None
        await node.stop()
        assert not failures

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DiskRefused(Path("/data/x"), "damaged", "Rebuild it."), "/data/x: damaged. Rebuild it."),
        (PermissionError(errno.EACCES, "Permission denied", "/data/x"), "/data/x: Permission denied"),
        (KeyError("n1"), "KeyError('n1')"),
    ],
)
def test_the_first_and_the_last_line_about_a_failure_tell_it_in_the_same_words(
    error: Exception, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The last line showed a sentence in the quotes of its class, and the first one a bug without its class."""
    NodeFailure(lambda _: None).report(error)
    assert caplog.messages == [f"this node cannot go on: {told}"]
    assert why_stopped(error) == told
