"""The machine as a whole: one state on every replica, answers in bytes, work in a steady order and at scale."""

import time

import msgspec
import pytest

from stockade.cluster.controller.commands import (
    Acquire,
    CloseSession,
    Command,
    CreateTopic,
    Done,
    Enrol,
    FenceInstalled,
    GrantState,
    InitProducer,
    OpenSession,
    RenewSession,
    Tick,
    decode_result,
    encode_command,
    encode_result,
)
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.ownership.slots import SlotInstall
from stockade.cluster.controller.ownership.work import ProducerInstall
from stockade.cluster.controller.topology.catalog import group_id
from stockade.cluster.model import By
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import ClearFence, InstallFence, InstallProducer
from stockade.partition.errors import PermissionDenied

from ..driver import TTL_MS, Driver, House
from ..lives import random_life


@pytest.mark.parametrize("seed", range(10))
def test_i6_a_replica_that_replays_the_log_holds_equal_state(seed: int) -> None:
    house = random_life(seed)
    replayed = ControllerMachine()
    answers = [replayed.apply(i, term, data) for i, (term, data) in enumerate(house.log, start=1)]
    assert replayed.capture().state == house.machine.capture().state
    assert list(replayed.work()) == list(house.machine.work())
    assert all(decode_result(encode_result(answer)) == answer for answer in answers)


def test_different_states_have_different_snapshots() -> None:
    house = House()
    seen = [house.machine.capture().state]
    house.topic()
    seen.append(house.machine.capture().state)
    house.open("a")
    seen.append(house.machine.capture().state)
    house.granted("a")
    seen.append(house.machine.capture().state)
    assert len(set(seen)) == 4


def test_a_tick_lets_time_pass_and_nothing_else() -> None:
    house = House()
    assert house.do(Tick(now_ms=5)) == Done()
    assert (house.machine.lease_clock_ms, house.machine.term, house.machine.applied_index) == (5, 1, 1)


def test_bytes_that_are_no_command_are_a_bug_and_not_a_refusal() -> None:
    with pytest.raises(msgspec.DecodeError):
        ControllerMachine().apply(1, 1, b"nonsense")


def test_work_yields_one_fence_install_a_partition_before_its_producer_installs() -> None:
    house = House()
    topic_id = house.topic()
    group = group_id(topic_id, 0)
    house.init("w")
    house.do(Enrol(now_ms=0, pid=1001, group_id=group))
    house.init("w")
    house.open("a")
    house.open("b")
    first = house.granted("a")
    assert [type(work.command) for work in house.machine.work()] == [InstallFence, InstallProducer]
    house.release("a", first.grant_id)
    assert [type(work.command) for work in house.machine.work()] == [ClearFence, InstallProducer]
    second = house.granted("b")
    fence, producer = house.machine.work()
    more = ("c-b", 0, "acquire", "released", 0, TTL_MS)
    asked = InstallFence(second.grant_id, 2, "b", "p", "Exclusive", second.grant_index, *more)
    assert fence == SlotInstall(group, second.grant_index, asked)
    assert producer == ProducerInstall(group, 1001, 1, house.index)
    house.settle()
    assert list(house.machine.work()) == []


def test_catalog_changed_is_called_for_changes_of_the_catalog_only() -> None:
    """Every node follows it: an acquire or a renewal must not wake a loop for each of them."""
    told: list[int] = []
    machine = ControllerMachine(catalog_changed=lambda: told.append(machine.catalog_index))
    topic = CreateTopic(
        now_ms=0, name="t", partitions=1, replication_factor=1, config=TopicConfig(), nodes=[("n", None)]
    )
    session = OpenSession(now_ms=0, session="a", client_id="a", ttl_ms=1)
    commands: list[Command] = [Tick(now_ms=0), topic, session, topic]
    for index, command in enumerate(commands, 1):
        machine.apply(index, 1, encode_command(command))
    assert told == [2, 4]
    machine.restore(None, machine.capture().state, [])
    assert told == [2, 4, 4]


def test_ten_thousand_partitions_are_granted_and_fenced_in_linear_time() -> None:
    """As a reconciler works: after each report it looks for something to do."""
    machine = ControllerMachine()
    log = iter(range(1, 10**6))

    def do(command: Command) -> object:
        return machine.apply(next(log), 1, encode_command(command))

    started_s = time.process_time()
    nodes: list[tuple[str, str | None]] = [(f"n{number}", f"z{number % 3}") for number in range(100)]
    do(
        CreateTopic(
            now_ms=0,
            name="t",
            partitions=10_000,
            replication_factor=3,
            config=TopicConfig(),
            nodes=nodes,
        )
    )
    do(OpenSession(now_ms=0, session="a", client_id="a", ttl_ms=300_000))
    grant = do(Acquire(now_ms=0, session="a", topic="t", partitions=None, mode="Exclusive", producer_name="p"))
    assert isinstance(grant, GrantState)
    while (work := next(machine.work(), None)) is not None:
        assert isinstance(work, SlotInstall)
        assert machine.slots.is_in_force(grant.grant_id) is False
        do(FenceInstalled(now_ms=0, group_id=work.group_id, order=work.order))
    assert machine.slots.is_in_force(grant.grant_id) is True
    assert time.process_time() - started_s < 5, "ten times what it takes on a slow machine"


def test_a_restored_controller_has_the_principals_of_sessions_and_names() -> None:
    house = Driver()
    house.topic()
    house.do(OpenSession(now_ms=0, by=By("p"), session="s", client_id="c", ttl_ms=TTL_MS))
    house.do(InitProducer(now_ms=0, by=By("p"), name="w"))
    mine = By("p")
    house.do(Acquire(now_ms=0, by=mine, session="s", topic="t", partitions=[0], mode="Exclusive", producer_name="w"))
    house.fail_over()
    for command in (
        RenewSession(now_ms=0, by=By("q"), session="s"),
        InitProducer(now_ms=0, by=By("q"), name="w"),
        CloseSession(now_ms=0, session="s"),
    ):
        assert isinstance(house.do(command), PermissionDenied)
    [grant] = house.machine.slots.grants.by_id.values()
    assert grant.principal == "p"
