"""Hosts with real sockets and real logs: what is acked survives leaders, restarts and failing disks."""

import asyncio
from pathlib import Path
from unittest.mock import patch

import pytest
from waiting import until

from stockade.cli.local_cluster.ports import free_ports
from stockade.raft.core.group import Committed, NotLeader, Outcome, Rejected, Unknown
from stockade.raft.core.quiescence import QUIESCENT_S_MIN
from stockade.raft.host import RaftHost, RaftSettings

from .cluster import FAST, GROUP, Cluster, MemoryMachine
from .transports import Run


def test_committed_commands_are_applied_on_every_node_and_again_after_a_restart(tmp_path: Path, run: Run) -> None:
    commands = [b"%d" % number for number in range(100)]

    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            leader = await cluster.led()
            outcomes = await asyncio.gather(*[cluster.group(leader).propose(command, 60.0) for command in commands])
            assert [outcome.result for outcome in outcomes if isinstance(outcome, Committed)] == list(range(1, 101))
            await until(lambda: all(machine.commands == commands for machine in cluster.machines.values()))
            for node in list(cluster.hosts):
                await cluster.stop(node)
            for node in cluster.addresses:
                await cluster.start(node)
            await until(lambda: all(machine.commands == commands for machine in cluster.machines.values()))
            assert all(cluster.group(node).ready for node in cluster.hosts)

    run(scenario)


def test_killing_the_leader_twice_under_load_loses_nothing_that_was_acked(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        acked: list[bytes] = []
        async with Cluster(tmp_path) as cluster:

            async def write(writer: int) -> None:
                for number in range(60):
                    command = b"%d.%d" % (writer, number)
                    await cluster.commit(command)
                    acked.append(command)

            writers = [asyncio.ensure_future(write(writer)) for writer in range(8)]
            for enough in (100, 300):
                await until(lambda enough=enough: len(acked) >= enough)  # type: ignore[misc]
                leader = await cluster.led()
                await cluster.kill(leader)
                await until(lambda: cluster.leader() is not None)
                await cluster.start(leader)
            await asyncio.gather(*writers)
            last = await cluster.commit(b"last")
            await until(lambda: all(cluster.group(node).applied_index >= last for node in cluster.hosts))
            one, *others = [machine.commands for machine in cluster.machines.values()]
            assert all(other == one for other in others)
            assert set(acked) <= set(one)
            assert cluster.fatal == []

    run(scenario)


def test_a_leader_that_is_cut_off_serves_no_linearizable_read(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            leader = await cluster.led()
            group = cluster.group(leader)
            await group.read_barrier(60.0)
            for node in [node for node in cluster.hosts if node != leader]:
                await cluster.kill(node)
            with pytest.raises((NotLeader, TimeoutError)):
                await group.read_barrier(2.0)
            assert not group.is_leader

    run(scenario)


def test_a_dead_leader_is_replaced_before_the_shortest_election_timeout(tmp_path: Path, run: Run) -> None:
    """The broken connection is the hint; timeouts this long would fail the test."""
    settings = RaftSettings(election_timeout_ms_min=100_000, election_timeout_ms_max=110_000, heartbeat_ms=50)

    async def scenario() -> None:
        async with Cluster(tmp_path, settings) as cluster:
            leader = await cluster.led()
            await cluster.kill(leader)
            await until(lambda: cluster.leader() is not None, 60.0)

    run(scenario)


def test_a_quiescent_leader_that_fails_is_replaced(tmp_path: Path, run: Run) -> None:
    """Its process may take its time to end: its connections stay meanwhile, and nothing but its silence tells. A rest
    ends by itself, too, but much later.
    """

    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            leader = await cluster.led()
            await until(lambda: all(cluster.group(node).is_quiescent for node in cluster.hosts))
            cluster.hosts[leader].fail(OSError(5, "Input/output error"))
            rest = [node for node in cluster.hosts if node != leader]
            await until(lambda: any(cluster.group(node).is_leader for node in rest), QUIESCENT_S_MIN / 2)
            assert leader in cluster.hosts[rest[0]].connected

    run(scenario)


def test_no_connection_is_given_up_before_the_election_timeout_that_is_set(tmp_path: Path, run: Run) -> None:
    """With heartbeats of 3 s, quiet nodes dropped each other again and again; with an election timeout of 10 s, leaders
    that stood still for 4 s were replaced.
    """
    patient = RaftSettings(election_timeout_ms_min=20_000, election_timeout_ms_max=40_000, heartbeat_ms=100)

    async def scenario() -> None:
        async with Cluster(tmp_path, patient) as cluster:
            transport = cluster.hosts["n1"]._transport
            await until(lambda: transport.connected == {"n2", "n3"})
            connections = list(transport._admitted.values())
            for silent_s, is_over in ((21.0, False), (41.0, True)):
                for connection in connections:
                    connection.heard_at_s = asyncio.get_running_loop().time() - silent_s
                transport.send_heartbeats(awake_at=float("-inf"))
                assert [connection.is_closing for connection in connections] == [is_over] * 2

    run(scenario)


def test_groups_quiesce_over_real_connections_and_wake_at_a_proposal(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            for _ in range(2):
                await until(lambda: all(cluster.group(node).is_quiescent for node in cluster.hosts))
                index = await cluster.commit(b"wake")
                await until(lambda: all(cluster.group(node).applied_index == index for node in cluster.hosts))  # noqa: B023
            assert {cluster.group(node).term for node in cluster.hosts} == {cluster.group("n1").term}

    run(scenario)


def test_a_disk_that_fails_stops_the_node_and_acks_nothing_more(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.commit(b"on disk")  # a proposal behind an entry that is not committed would wait for that
            leader = await cluster.led()
            with patch("os.fdatasync", side_effect=OSError(28, "No space left on device")):
                outcome = await cluster.group(leader).propose(b"not on disk", 60.0)
                await until(lambda: leader in [node for node, _ in cluster.fatal])
            assert isinstance(outcome, Unknown)
            assert isinstance(await cluster.group(leader).propose(b"later", 60.0), Rejected)

    run(scenario)


def test_an_exception_in_apply_stops_the_node_once(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            leader = await cluster.led()
            outcomes: list[Outcome] = await asyncio.gather(
                *[cluster.group(leader).propose(command, 60.0) for command in (b"good", b"poison", b"after")]
            )
            assert [type(outcome) for outcome in outcomes] == [Committed, Unknown, Unknown]
            assert [node for node, _ in cluster.fatal if node == leader] == [leader]
            assert cluster.machines[leader].commands == [b"good"]
            assert isinstance(await cluster.group(leader).propose(b"later", 60.0), Rejected)

    run(scenario)


def test_an_erased_group_rejoins_bound_by_its_tombstone(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.commit(b"old")
            node, host = next(iter(cluster.hosts.items()))
            await until(lambda: cluster.machines[node].commands == [b"old"])
            term = cluster.group(node).term
            for _ in range(2):
                await host.erase_group(GROUP)
            await cluster.kill(node)
            await cluster.start(node)
            group = cluster.group(node)
            assert (group.applied_index, group.voters) == (1, ())
            assert group.term >= term > 0

    run(scenario)


def test_a_group_is_opened_once(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            host = cluster.hosts["n1"]
            with pytest.raises(ValueError, match="group 7"):
                host.open_group(GROUP, cluster.founders, MemoryMachine())

    run(scenario)


def test_a_group_of_one_commits_alone(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            host = cluster.hosts["n1"]
            group = host.open_group(8, {"n1": host.incarnation}, MemoryMachine())
            await until(lambda: group.ready)
            assert isinstance(await group.propose(b"alone", 60.0), Committed)
            await group.read_barrier(60.0)

    run(scenario)


def test_nodes_call_each_other(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await until(lambda: cluster.hosts["n1"].connected == {"n2", "n3"})
            assert await cluster.hosts["n1"].call("n2", b"the time", 60.0) == b"n1 asked the time"

    run(scenario)


def test_a_host_whose_address_is_taken_does_not_start_and_lets_go_of_its_log(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            taken = cluster.addresses["n1"]
            settings: tuple[object, ...] = (tmp_path / "other", FAST, lambda _: None)
            with pytest.raises(OSError, match="in use"):
                await RaftHost("n9", "house", taken, {}, *settings).start()  # type: ignore[arg-type]
            (port,) = free_ports(1)
            host = RaftHost("n9", "house", ("127.0.0.1", port), {}, *settings)  # type: ignore[arg-type]
            await host.start()
            assert host.address == ("127.0.0.1", port)
            for _ in range(2):
                await host.stop()

    run(scenario)


class Buffering(MemoryMachine):
    """A machine that keeps what it applied in memory until it is told to write it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def flush(self) -> None:
        self.written = len(self.commands)


def test_no_proposal_is_answered_before_the_machine_has_flushed(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, machine=Buffering) as cluster:
            leader = await cluster.led()
            machine = cluster.machines[leader]
            written: list[int] = []
            for number in range(1, 6):
                cluster.group(leader).submit(b"%d" % number, 60.0, lambda _: written.append(machine.written))
            await until(lambda: len(written) == 5)
            assert all(count >= number for number, count in enumerate(written, 1))

    run(scenario)
