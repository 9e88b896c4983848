"""Replicas of one partition while the leader changes: cases of SEMANTICS 11; the number is in the name.

The log that they share is a list; what is in it is committed, and a test says who applies it when.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stockade.cluster.features import Features
from stockade.cluster.model import Conditions
from stockade.cluster.replica.replica import Replica
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import Append, Appended, InstallFence, InstallProducer, Stamp, Token, encode_command
from stockade.partition.config import PartitionConfig
from stockade.partition.durable.stored_machine import StoredMachine
from stockade.partition.errors import NotLeaderOrFollower, OutOfOrderSequence, ProducerFenced, RequestTimedOut
from stockade.partition.log.segments import SegmentLog
from stockade.partition.records.batch import batch_from_columns
from stockade.partition.state import snapshot
from stockade.partition.state.invariants import check
from stockade.partition.state.machine import PartitionMachine
from stockade.raft.core.group import Committed, NotLeader, Outcome, Rejected, Unknown

TOPIC_ID = 812
PID = 1001


class Group:
    """One member of the group."""

    group_id = 77
    ready = True
    term = 1
    on_applied: Callable[[Any], None]

    def __init__(self, machine: StoredMachine, name: str, house: "House") -> None:
        self.machine, self.name, self.house = machine, name, house
        self.applied = 0

    @property
    def leader(self) -> str:
        return self.house.leader

    @property
    def is_leader(self) -> bool:
        """As far as it knows."""
        return self.name in (self.house.leader, self.house.deposed)

    async def propose(self, command: bytes, timeout_s: float) -> Outcome:
        if self.name == self.house.deposed:
            return Rejected(self.house.leader, 2)
        if self.house.loses_before_commit:
            return Unknown(None)
        index = self.house.commit(command)
        if self.house.loses_answers:
            return Unknown(index)
        await self.house.may_apply.wait()
        return Committed(index, 1, self.catch_up(index))

    async def read_barrier(self, timeout_s: float) -> None:
        if self.name != self.house.leader:
            raise NotLeader(self.house.leader, 2)
        self.catch_up(len(self.house.log))

    def catch_up(self, index: int) -> object:
        result = None
        while self.applied < index:
            result = self.machine.apply(self.applied + 1, 1, self.house.log[self.applied])
            self.applied += 1
            self.on_applied(self)
        return result


class House:
    """Three replicas; ``leader`` leads, ``deposed`` does not know yet that it leads no more."""

    def __init__(self, directory: Path) -> None:
        self.log: list[bytes] = []
        self.leader = "n1"
        self.deposed: str | None = None
        self.loses_before_commit = self.loses_answers = False
        self.may_apply = asyncio.Event()
        self.may_apply.set()
        self.replicas = {name: self.open(directory / name, name) for name in ("n1", "n2", "n3")}

    def open(self, directory: Path, name: str) -> Replica:
        directory.mkdir()
        log = SegmentLog()
        log.begin(directory)

        async def enrol(pid: int, group: int, timeout_s: float) -> tuple[int, int, str]:
            return 0, 1000, ""

        return Replica(
            ("t", TOPIC_ID, 0),
            TopicConfig(),
            StoredMachine(PartitionConfig(TOPIC_ID), log),
            lambda machine: Group(machine, name, self),  # type: ignore[arg-type, return-value]
            features=Features(),
            urls={node_id: f"http://{node_id}" for node_id in ("n1", "n2", "n3")},
            enrol=enrol,
            timeout_s=1.0,
        )

    def commit(self, command: bytes) -> int:
        self.log.append(command)
        return len(self.log)

    async def send(self, first_seq: int, count: int = 1, at: str | None = None, token: Token | None = None) -> Appended:
        batch = batch_from_columns(
            [None] * count, [b"%d" % first_seq] * count, None, None, now_ms=7, batch_bytes_max=1 << 20
        )
        leader = self.replicas[at or self.leader]
        return await leader.append(batch, Conditions(token=token, stamp=Stamp(PID, 0, first_seq)))

    async def fail_over(self, to: str) -> None:
        self.leader, self.loses_before_commit, self.loses_answers = to, False, False
        await self.replicas[to].group.read_barrier(1.0)

    async def settle(self) -> PartitionMachine:
        """Everybody catches up, and all are the same."""
        machines = []
        for name, replica in self.replicas.items():
            await self.fail_over(name)
            check(replica.machine)
            machines.append(replica.machine)
        assert len({snapshot.encode(machine) for machine in machines}) == 1
        return machines[0]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


@pytest.mark.parametrize("was_committed", [True, False])
def test_088_a_leader_cut_off_after_the_proposal_leaves_one_copy(tmp_path: Path, was_committed: bool) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.send(0)
        house.loses_answers, house.loses_before_commit = was_committed, not was_committed
        with pytest.raises(RequestTimedOut):
            await house.send(1, 3)
        await house.fail_over("n2")
        again = await house.send(1, 3)
        assert (again.base_offset, again.last_offset, again.duplicate) == (1, 3, was_committed)
        assert (await house.settle()).log_end == 4

    run(scenario())


def test_089_a_pipeline_that_lost_its_leader_is_stored_once_and_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        for sequence in (0, 1):
            await house.send(sequence)
        house.loses_before_commit = True
        for sequence in (2, 3, 4):
            with pytest.raises(RequestTimedOut):
                await house.send(sequence)
        await house.fail_over("n3")
        with pytest.raises(OutOfOrderSequence) as refusal:
            await house.send(3)
        assert refusal.value.fields["expected_seq"] == 2
        assert [(await house.send(sequence)).base_offset for sequence in (2, 3, 4)] == [2, 3, 4]
        assert (await house.settle()).log_end == 5

    run(scenario())


def test_090_a_deposed_leader_answers_not_leader_rather_than_out_of_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.send(0)
        await house.fail_over("n2")
        await house.send(1)
        house.deposed = "n1"  # to whose machine sequence 2 is a gap
        with pytest.raises(NotLeaderOrFollower) as refusal:
            await house.send(2, at="n1")
        assert refusal.value.fields["leader"] == "http://n2"
        house.deposed = None
        assert (await house.send(2)).base_offset == 2

    run(scenario())


def test_091_no_fence_is_answered_before_it_is_committed(tmp_path: Path) -> None:
    """A refusal is what apply says of committed commands: with the fence not applied, there is no answer yet."""

    async def scenario() -> None:
        house = House(tmp_path)
        leader = house.replicas["n1"]
        house.commit(encode_command(InstallFence("g-812-1", 1, "s1", "loader", "Exclusive", 1)))
        await house.send(0, token=Token("g-812-1", 1, "s1"))
        house.may_apply.clear()
        house.commit(encode_command(InstallFence("g-812-2", 2, "s2", "loader", "Exclusive", 2)))
        append = asyncio.ensure_future(house.send(1, token=Token("g-812-1", 1, "s1")))
        for _ in range(10):
            await asyncio.sleep(0)
            assert not append.done()
        assert leader.machine.topic_epoch == 1
        house.may_apply.set()
        with pytest.raises(ProducerFenced) as refusal:
            await append
        assert (refusal.value.fields["reason"], leader.machine.topic_epoch) == ("superseded", 2)

    run(scenario())


def test_092_replicas_with_skewed_clocks_that_apply_the_same_commands_are_equal(tmp_path: Path) -> None:
    """Three leaders in turn whose clocks are hours apart: only what they stamped counts, and never backwards."""

    async def scenario() -> None:
        house = House(tmp_path)
        clocks = {"n1": 9_000_000, "n2": 5, "n3": 40_000_000}
        seen = []
        for sequence, (name, now_ms) in enumerate(clocks.items()):
            await house.fail_over(name)
            house.replicas[name].now_ms = lambda now_ms=now_ms: now_ms  # type: ignore[method-assign, misc]
            await house.send(sequence)
            seen.append(house.replicas[name].machine.clock_ms)
        assert seen == [9_000_000, 9_000_000, 40_000_000]
        assert (await house.settle()).clock_ms == 40_000_000

    run(scenario())


def test_a_late_command_is_judged_by_the_state_when_it_is_applied(tmp_path: Path) -> None:
    """121: an append that was under way when the producer's epoch rose is refused, though it was proposed before."""

    async def scenario() -> None:
        house = House(tmp_path)
        await house.send(0)
        house.commit(encode_command(InstallProducer(PID, 1, 2000)))
        batch = batch_from_columns([None], [b"late"], None, None, now_ms=7, batch_bytes_max=1 << 20)
        late = Append(batch.message, 1, batch.crc, 7, 7, stamp=Stamp(PID, 0, 1))
        house.commit(encode_command(late))
        assert (await house.settle()).log_end == 1

    run(scenario())
