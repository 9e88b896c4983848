import asyncio
import subprocess
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner
from sources import ROOT

from stockade.cli.commands.cluster import _wait_until_whole, machine_rows
from stockade.cli.main import main
from stockade.cli.orders.progress import AWAY_LOOKS, UNSEEN_MAX, Absent, Leaving, Moving
from stockade.client.api.client import Client
from stockade.partition.api.cluster import Cluster, LeaderInfo, Node, PartitionCounts, Reassignment
from stockade.partition.api.topics import PartitionState, Topic, TopicConfig


class OnItsWay(Client):
    """A cluster in which ``t/0`` is on ``n1``, on its way to ``heading``."""

    def __init__(self, heading: list[str]) -> None:
        super().__init__()
        self.heading = heading
        self.replicas = ["n1"]

    async def topic(self, name: str, *, patience_ms: int | None = None) -> Topic:
        return Topic("t", 1, 1, False, TopicConfig(), [PartitionState(0, None, None, 1, self.replicas)])

    async def cluster(self) -> Cluster:
        moves = [Reassignment("t", 0, self.heading)] if self.heading != self.replicas else []
        return Cluster("c", "n1", "1", LeaderInfo(None, "n1", 1), [], moves)


def test_a_command_that_waits_for_a_move_ends_when_another_order_takes_its_place() -> None:
    async def run() -> None:
        client = OnItsWay(["n2"])
        move = Moving(client, "t", 0, ["n2"], lambda _: None)
        assert not await move.is_done()
        client.heading = ["n3"]
        for _ in range(UNSEEN_MAX - 1):
            assert not await move.is_done()
        with pytest.raises(click.ClickException, match="another order has replaced this one"):
            await move.is_done()

    asyncio.run(run())


def test_a_node_that_is_late_to_know_of_a_move_ends_no_wait() -> None:
    async def run() -> None:
        client = OnItsWay(["n1"])
        move = Moving(client, "t", 0, ["n2"], lambda _: None)
        for _ in range(UNSEEN_MAX - 1):
            assert not await move.is_done()
        client.heading = ["n2"]
        assert not await move.is_done()
        client.heading = ["n1"]
        assert not await move.is_done()
        client.replicas = ["n2"]
        assert await move.is_done()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        ([], '--nodes 3 --port-base 7101 --data "./data"'),
        (["PORT=8101", "NODES=5", "DATA=/x"], '--nodes 5 --port-base 8101 --data "/x"'),
    ],
)
def test_make_cluster_takes_port_nodes_and_data(variables: list[str], options: str) -> None:
    told = subprocess.run(["make", "-n", "cluster", *variables], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == f"exec .venv/bin/stockade cluster {options}"


def node(name: str, zone: str | None, **more: Any) -> Node:
    return Node(name, f"http://{name}:1", f"{name}:2", zone, **({"alive": True} | more))


def cluster_of(*nodes: Node, moving: tuple[int, ...] = (), controllers: tuple[str, ...] = ()) -> Cluster:
    moves = [Reassignment("t", partition, ["b.1"]) for partition in moving]
    return Cluster("c", "b.1", "1", LeaderInfo(None, "b.1", 1), list(nodes), moves, list(controllers))


def test_machines_are_shown_with_their_nodes_and_controllers() -> None:
    leaving = node("b.1", "b", draining=True, disk="low")
    nodes = node("a.1", "a"), node("a.2", "a", alive=False), leaving, node("n9", None)
    assert machine_rows(cluster_of(*nodes, controllers=("a.1", "a.2"))) == [
        ("a", "1 of 2", "a.1,a.2", "a.1, a.2 (away)"),
        ("b", "1 of 1", "-", "b.1 (up, leaving, disk low)"),
    ]


def test_zones_of_one_node_each_are_no_machines() -> None:
    assert machine_rows(cluster_of(node("n1", "a"), node("n2", "b"), node("n3", None), node("n4", None))) == []


def test_the_progress_of_a_drain_counts_the_groups_that_moved_and_never_falls() -> None:
    here, there = node("a.1", "a", draining=True), node("b.1", "b")
    leaving = Leaving(cluster_of(here, there, moving=(0, 1), controllers=("a.1", "b.1")), ["a.1", "a.2"])
    assert (leaving.total, leaving.moved, leaving.is_done) == (3, 0, False)
    leaving.look(cluster_of(here, there, moving=(1,), controllers=("b.1",)))
    assert (leaving.moved, leaving.is_done) == (2, False)
    leaving.look(cluster_of(here, there, moving=(0, 1, 7), controllers=("a.1", "b.1")))
    assert (leaving.moved, leaving.is_done) == (2, False), "a node that is late says nothing new"
    leaving.look(cluster_of(there, moving=(7,), controllers=("b.1",)))
    assert (leaving.moved, leaving.is_done) == (3, True)


def test_a_node_that_is_older_than_feature_levels_is_named_when_an_upgrade_is_finished_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It tells no levels of any node, and the command ended with a traceback."""

    async def told(*_: Any, **__: Any) -> Cluster:
        nodes = [Node(name, f"http://{name}:1", f"{name}:2", None, True) for name in ("n1", "n2")]
        return Cluster("c", "n1", "0.1.0", LeaderInfo(None, "n2", 1), nodes)

    monkeypatch.setattr(Client, "connect", told)
    monkeypatch.setattr(Client, "cluster", told)
    refused = CliRunner().invoke(main, ["cluster", "upgrade", "--finalize"])
    assert refused.exit_code == 1
    assert "Error: n1, which answers, runs software that is older than feature levels: upgrade it" in refused.stderr


def test_the_status_says_when_the_node_that_answers_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is connected with none: right after its removal the cluster seemed to be gone."""

    async def told(*_: Any, **__: Any) -> Cluster:
        return cluster_of(*(node(name, None, alive=name == answering) for name in ("b.1", "b.2") if name in there))

    for answering, there in (("b.1", ("b.1", "b.2")), ("b.1", ("b.2",))):
        monkeypatch.setattr(Client, "connect", told)
        shown = CliRunner().invoke(main, ["cluster", "status"])
        assert shown.exit_code == 0
        assert shown.stderr.startswith("b.1, which answers, was removed") == (answering not in there)


def test_a_command_does_not_wait_for_a_removal_that_another_order_has_called_off() -> None:
    """`stockade cluster add` of the same node: the command waited for good."""
    there, leaving = node("b.1", "b"), node("a.1", "a", draining=True)
    waiting = Leaving(cluster_of(leaving, there), ["a.1"])
    for _ in range(2):
        for _ in range(UNSEEN_MAX - 1):
            waiting.look(cluster_of(node("a.1", "a"), there))  # by a node that is late
        waiting.look(cluster_of(leaving, there))
    with pytest.raises(click.ClickException, match=r"a\.1: another order has called the removal off"):
        for _ in range(UNSEEN_MAX):
            waiting.look(cluster_of(node("a.1", "a"), there))
    assert not waiting.is_done


def test_a_command_that_waits_for_a_removal_names_the_needed_node_that_is_away() -> None:
    """The command waited for good, and said nothing."""
    told: list[str] = []
    absent = Absent(told.append)
    going, back, away = node("n1", None, alive=False, draining=True), node("n3", None), node("n3", None, alive=False)
    ordered = cluster_of(going, back, moving=(0,), controllers=("n1", "n3"))
    leaving = Leaving(ordered, ["n1"])
    assert leaving.heirs(ordered) == {"b.1", "n3"}, "the node that goes need not run"
    for seen in [away] * AWAY_LOOKS + [back] + [away] * AWAY_LOOKS:
        absent.look(cluster_of(going, seen), ["n3"])
        assert not told, "a node that starts again"
    for _ in range(2 * AWAY_LOOKS):
        absent.look(cluster_of(going, away), ["n3"])
    assert [line.partition(":")[0] for line in told] == ["waiting for n3, away"]


def test_a_machine_that_cannot_be_one_is_not_added() -> None:
    words = ["cluster", "add", "d", "http://d", "d:65535", "--processes", "2"]
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 2
    assert "url of d: http://d names no port" in refused.stderr
    assert "raft of d: 2 processes from port 65535 on need ports up to 65536" in refused.stderr


def test_a_command_that_waits_between_upgrades_of_nodes_says_for_which_partitions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stockade.cli.orders.progress.LOOK_S", 0)

    def state(leaderless: int, behind: int) -> Any:
        return SimpleNamespace(node_id="n1", partitions=PartitionCounts(9, 5, 0, behind, leaderless, 0, 0))

    looks = [
        SimpleNamespace(nodes=[state(2, 1)], missing=["n2", "n3"]),
        SimpleNamespace(nodes=[state(0, 4)], missing=[]),
        SimpleNamespace(nodes=[state(0, 4)], missing=[]),
        SimpleNamespace(nodes=[state(0, 0)], missing=[]),
    ]

    async def call(*_: Any, **__: Any) -> Any:
        return looks.pop(0)

    client: Any = SimpleNamespace(calls=SimpleNamespace(call=call))
    asyncio.run(_wait_until_whole(client))
    assert looks == []
    assert capsys.readouterr().err.splitlines() == [
        "waiting for n2, n3 to answer; leaders of 2 partitions that have replicas on n1;"
        " replicas of 1 partition led by n1",
        "waiting for replicas of 4 partitions led by n1",
    ]
