"""What a command costs does not grow with what it does not concern: eight times the partitions, or the installs that
are due, cost a decision about one of them no more. Counted in steps, never in time.
"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.cluster.controller import commands
from stockade.cluster.controller.commands import (
    Acquire,
    CloseSession,
    Command,
    CreateTopic,
    DeleteTopic,
    MoveDone,
    OpenSession,
    Reassign,
    RegisterNode,
    Release,
    RemoveNode,
)
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.topology.placement import Candidates, Load
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import StockadeError

from ..steps import steps

SMALL, LARGE = 100, 800
SAME = 1.3
"""LARGE may cost so many times SMALL: there are logarithms."""
CONTROLLERS = ["n0", "n1", "n2"]


class House:
    """Ten nodes with ``partitions``, each held exclusively by a session of its own, and nothing installed yet; and the
    topic ``t``, which is on a node that holds nothing else, and of which a session holds partition 0.
    """

    def __init__(self, partitions: int) -> None:
        self.machine = ControllerMachine()
        self.index = 0
        self.nodes: list[tuple[str, str | None]] = [(f"n{number}", f"z{number % 5}") for number in range(10)]
        for node_id, zone in [*self.nodes, ("spare", "z0"), ("other", "z0")]:
            raft, url = f"{node_id}:2", f"http://{node_id}:1"
            self.do(
                RegisterNode(
                    now_ms=0, node_id=node_id, url=url, raft=raft, zone=zone, incarnation=1, controllers=CONTROLLERS
                )
            )
        for number in range(partitions // 10):
            self.create(f"topic-{number}", 10)
            for partition in range(10):
                self.hold(f"s-{number}-{partition}", f"topic-{number}", partition)
        self.create("t", 1)
        self.hold("mine", "t", 0)
        self.grant = self.machine.slots.grants.of_session("mine")[0].grant_id
        self.reassign("spare", "n1", "n2")
        self.arrive()

    def do(self, command: Command) -> None:
        self.index += 1
        answer = self.machine.apply(self.index, 1, commands.encode_command(command))
        assert not isinstance(answer, StockadeError), answer

    def create(self, name: str, partitions: int) -> None:
        self.do(
            CreateTopic(
                now_ms=0,
                name=name,
                partitions=partitions,
                replication_factor=3,
                config=TopicConfig(),
                nodes=self.nodes,
            )
        )

    def hold(self, session: str, topic: str, partition: int) -> None:
        self.do(OpenSession(now_ms=0, session=session, client_id=session, ttl_ms=10_000))
        self.do(
            Acquire(now_ms=0, session=session, topic=topic, partitions=[partition], mode="Exclusive", producer_name="p")
        )

    def reassign(self, *replicas: str) -> None:
        self.do(Reassign(now_ms=0, topic="t", partition=0, replicas=list(replicas)))

    def arrive(self) -> None:
        group = self.machine.catalog.find("t", None).groups()[0]
        self.do(MoveDone(now_ms=0, group_id=group, version=self.machine.assignment.moves[group].version))

    def drain(self) -> None:
        self.do(RemoveNode(now_ms=0, node_id="spare"))


def _arrive(house: House) -> Callable[[], None]:
    house.drain()
    return house.arrive


def _drain(house: House) -> Callable[[], None]:
    return house.drain


def _create(house: House) -> Callable[[], None]:
    return lambda: house.create("another", 1)


def _delete(house: House) -> Callable[[], None]:
    return lambda: house.do(DeleteTopic(now_ms=0, name="t"))


def _release(house: House) -> Callable[[], None]:
    return lambda: house.do(Release(now_ms=0, session="mine", grant_id=house.grant))


def _close(house: House) -> Callable[[], None]:
    return lambda: house.do(CloseSession(now_ms=0, session="mine"))


@pytest.mark.parametrize("prepare", [_arrive, _drain, _create, _delete, _release, _close])
def test_a_decision_about_one_partition_costs_the_same_beside_many(
    prepare: Callable[[House], Callable[[], None]],
) -> None:
    few, many = (steps(prepare(House(partitions))) for partitions in (SMALL, LARGE))
    assert many <= few * SAME


def test_a_replica_finds_its_new_node_without_looking_at_all_nodes() -> None:
    def take_ten(count: int) -> Callable[[], None]:
        candidates = Candidates([(f"n{number}", f"z{number % (count // 4)}") for number in range(count)], {})

        def take() -> None:
            for _ in range(10):
                candidates.take(["n1", "n2"])

        return take

    few, many = (steps(take_ten(count)) for count in (SMALL, LARGE))
    assert many <= few * SAME


@given(
    st.lists(st.sampled_from([None, "x", "y", "z"]), min_size=1, max_size=9),
    st.lists(st.integers(0, 3), min_size=9, max_size=9),
    st.lists(st.sets(st.integers(0, 9), max_size=5), min_size=1, max_size=12),
    st.sets(st.integers(0, 9), max_size=3),
)
def test_the_node_that_is_taken_is_the_emptiest_of_the_zones_with_fewest_replicas(
    zones: list[str | None], held: list[int], asked: list[set[int]], absent: set[int]
) -> None:
    zone_of = {f"n{number}": zone or f"alone-{number}" for number, zone in enumerate(zones)}
    count = {node_id: held[number] for number, node_id in enumerate(zone_of)}
    candidates = Candidates(
        [(f"n{number}", zone) for number, zone in enumerate(zones)],
        {node_id: Load(replicas=replicas) for node_id, replicas in count.items()},
        away := {f"n{number}" for number in absent},
    )
    for numbers in asked:
        replicas = [f"n{number}" for number in sorted(numbers)]  # n9 is being removed, say
        free = [node_id for node_id in zone_of if node_id not in replicas and node_id not in away]
        used = [zone_of[node_id] for node_id in replicas if node_id in zone_of]
        wanted = min(free, key=lambda node_id: (used.count(zone_of[node_id]), count[node_id], node_id), default=None)
        assert candidates.take(replicas) == wanted
        if wanted is not None:
            count[wanted] += 1
