"""One cluster, never two: who may decide that it is new."""

import asyncio
import random
from pathlib import Path

import pytest
from waiting import until

from stockade.cluster.discovery.bootstrap import AwaitMembers, Bootstrap, BootstrapNow, JoinBootstrapped, decide
from stockade.cluster.rpc import Standing
from stockade.raft.wal.errors import DiskRefused

THREE = ["n1", "n2", "n3"]


def new(incarnation: int) -> Standing:
    return Standing("new", incarnation)


def test_the_first_controller_founds_once_every_other_one_said_that_it_is_new() -> None:
    assert decide("n1", 1, THREE, {"n2": new(2)}) == AwaitMembers(("n3",))
    assert decide("n1", 1, THREE, {"n2": new(2), "n3": Standing("busy", 3)}) == AwaitMembers(("n3",))
    assert decide("n1", 1, THREE, {"n2": new(2), "n3": new(3)}) == BootstrapNow({"n1": 1, "n2": 2, "n3": 3})
    assert decide("n1", 1, ["n1"], {}) == BootstrapNow({"n1": 1})


def test_the_others_wait_for_the_first_one_even_when_all_are_new() -> None:
    assert decide("n2", 2, THREE, {"n1": new(1), "n3": new(3)}) == AwaitMembers(("n1",))


def test_a_node_that_finds_a_founded_cluster_joins_it() -> None:
    known = {"n1": 8, "n2": 2, "n3": 3}
    for node_id in THREE:
        assert decide(node_id, 1, THREE, {"n2": new(2), "n3": Standing("founded", 3, known)}) == JoinBootstrapped(known)
    assert decide("n1", 1, THREE, {"n9": Standing("founded", 9)}) == JoinBootstrapped({}), (
        "it joined: so there is a cluster"
    )


class Node:
    """A node of a small world: its disk, what it has on it, and what it heard."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.kept: dict[str, int] | None = None
        self.keeping: dict[str, int] | None = None
        self.heard: dict[str, Standing] = {}

    def standing(self) -> Standing:
        if self.kept is not None:
            return Standing("founded", self.incarnation, self.kept)
        return Standing("busy" if self.keeping is not None else "new", self.incarnation)


def founded_by_a_majority(nodes: dict[str, Node]) -> list[dict[str, int]]:
    """The maps of which a majority is there to vote by them, with the disks that they name."""
    maps = [node.kept for node in nodes.values() if node.kept]
    return [
        founders
        for founders in maps
        if 2 * sum(n.kept == founders and n.incarnation == founders[i] for i, n in nodes.items()) > len(nodes)
    ]


@pytest.mark.parametrize("seed", range(100))
def test_lost_disks_never_found_a_second_cluster(seed: int) -> None:
    """Answers may be old when they count, and disks are lost at any moment, one at a time until all have founders."""
    rng = random.Random(seed)
    disks = iter(range(1, 1000))
    nodes = {node_id: Node(next(disks)) for node_id in THREE}
    founded: list[dict[str, int]] = []
    for _ in range(60):
        node_id = rng.choice(THREE)
        node = nodes[node_id]
        other = rng.choice([n for n in THREE if n != node_id])
        match rng.randrange(8):
            case 0 | 1 | 2:
                node.heard[other] = nodes[other].standing()
            case 3 | 4 if node.kept is None and node.keeping is None:
                decision = decide(node_id, node.incarnation, THREE, node.heard)
                if isinstance(decision, BootstrapNow | JoinBootstrapped):
                    node.keeping = decision.founders
            case 5 | 6 if node.keeping is not None:
                node.kept, node.keeping = node.keeping, None
            case 7 if rng.random() < 0.3:
                nodes[node_id] = Node(next(disks))
        for founders in founded_by_a_majority(nodes):
            if founders not in founded:
                founded.append(founders)
        assert len(founded) <= 1 or lost_majority(nodes, founded[0])


def lost_majority(nodes: dict[str, Node], founders: dict[str, int]) -> bool:
    """Of the first founders' disks a majority is gone: that cluster is lost for good."""
    return 2 * sum(node.incarnation != founders[node_id] for node_id, node in nodes.items()) > len(nodes)


def kept(path: Path, node_id: str, incarnation: int, answers: dict[str, Standing | None]) -> Bootstrap:
    async def ask(other: str) -> Standing | None:
        return answers[other]

    return Bootstrap(node_id, incarnation, path, ask, is_member=lambda: False)


def test_founders_are_kept_and_a_lost_disk_is_no_founder(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "founders.json"
        first = kept(path, "n1", 5, {"n2": new(6), "n3": new(7)})
        assert await first.settle(THREE, THREE) == {"n1": 5, "n2": 6, "n3": 7}
        again = kept(path, "n1", 5, {})
        assert await again.settle(THREE, THREE) == {"n1": 5, "n2": 6, "n3": 7}
        assert again.standing() == Standing("founded", 5, {"n1": 5, "n2": 6, "n3": 7})
        other_disk = kept(path, "n1", 9, {})
        assert await other_disk.settle(THREE, THREE) == {}
        await again.keep({})
        assert again.founders() == {}, "it gave up its place"

    asyncio.run(scenario())


def test_a_node_that_waits_names_the_controllers_without_an_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        answers: dict[str, Standing | None] = {"n2": new(6), "n3": None}
        founding = kept(tmp_path / "founders.json", "n1", 5, answers)
        settling = asyncio.ensure_future(founding.settle(THREE, THREE))
        await until(founding.status)
        assert founding.status() == "waiting for n3 to be sure that this is a new cluster"
        assert founding.standing().state == "new"
        answers["n3"] = Standing("founded", 7, {"n1": 1, "n2": 6, "n3": 7})
        assert await settling == {}, "the cluster knew another disk of this node"
        assert founding.status() is None

    asyncio.run(scenario())


def test_a_member_of_a_cluster_never_founds_one(tmp_path: Path) -> None:
    async def ask(other: str) -> Standing | None:
        raise AssertionError(other)

    async def scenario() -> None:
        founding = Bootstrap("n1", 5, tmp_path / "founders.json", ask, is_member=lambda: True)
        assert founding.standing() == Standing("founded", 5)
        assert await founding.settle(["n1"], ["n1"]) == {}

    asyncio.run(scenario())


def test_no_cluster_is_founded_with_members_of_another_one(tmp_path: Path) -> None:
    """Nodes that joined a cluster said that they were new until they were started again: when all its founders had been
    replaced by such nodes, one that came with an empty disk founded a second cluster with them.
    """
    catalogs: set[str] = set()

    async def nobody(node_id: str) -> Standing | None:
        raise AssertionError(node_id)

    def joining(name: str) -> Bootstrap:
        return Bootstrap(name, int(name[1]), tmp_path / name, nobody, is_member=lambda: name in catalogs)

    others = {name: joining(name) for name in ("n2", "n3")}
    assert [other.standing().state for other in others.values()] == ["new", "new"]
    catalogs.update(others)
    answers: dict[str, Standing | None] = {name: other.standing() for name, other in others.items()}
    wiped = kept(tmp_path / "founders.json", "n1", 9, answers)
    assert asyncio.run(wiped.settle(THREE, THREE)) == {}, "it joins"


def test_a_damaged_file_of_founders_is_named(tmp_path: Path) -> None:
    (tmp_path / "founders.json").write_bytes(b'{"n1": ')
    with pytest.raises(DiskRefused, match=r"founders\.json: damaged"):
        kept(tmp_path / "founders.json", "n1", 5, {})


def test_each_round_asks_all_nodes_again_also_those_that_have_answered(tmp_path: Path) -> None:
    rounds: list[str] = []

    async def ask(node_id: str) -> Standing | None:
        rounds.append(node_id)
        return Standing("new", int(node_id[1])) if node_id == "n2" or len(rounds) > 2 else None

    bootstrap = Bootstrap("n1", 1, tmp_path / "founders.json", ask, is_member=lambda: False)
    founders = asyncio.run(asyncio.wait_for(bootstrap.settle(THREE, THREE), 60))
    assert founders == {"n1": 1, "n2": 2, "n3": 3}
    assert rounds == ["n2", "n3", "n2", "n3"]
