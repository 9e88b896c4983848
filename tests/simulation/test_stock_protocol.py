"""The same accidents on pysyncobj as it comes: it loses what it acknowledged, or breaks another promise.

Each test has its twin in test_defects.py, where the hardened engine meets the accident. If one of these fails, the
library has changed: read what it does now before anything else.
"""

import os
import pickle
from pathlib import Path

import pysyncobj.pickle
import pytest
from pysyncobj.node import Node
from simulation.stock import SUCCESS, acknowledged, stock_cluster


def test_d1_stock_counts_late_acks_of_an_earlier_leadership_and_loses_four_commands() -> None:
    with stock_cluster("ABCDE") as cluster:
        nodes, wires = cluster.nodes, cluster.wires
        wires.hold("B", "A")  # B's acks are slow
        wires.hold("A", "CDE")
        cluster.put("A", *(f"first {number}" for number in range(6)))
        cluster.step("A", times=2)
        wires.drop("A", "CDE")
        cluster.elect("C")
        cluster.step("C", times=8)
        cluster.step("ABCDE", times=8)
        cluster.elect("A")
        cluster.step("A", times=6)
        wires.hold("A", "BCE")  # the entries of the third term reach only D
        answers = cluster.put("A", *(f"third {number}" for number in range(4)))
        for _ in range(3):
            cluster.step("AD")
        assert acknowledged(answers) == 0
        wires.held.discard(("B", "A"))
        wires.pump()
        cluster.step("A", times=2)
        assert acknowledged(answers) == 4, "two of five have them"
        for node in "BCE":
            wires.join(node, "AD", up=False)
        cluster.elect("C")
        cluster.step("BCE", times=8)
        assert nodes["C"]._isLeader()
        assert not [command for command in nodes["C"].applied if str(command).startswith("third")]


def test_d2_stock_cuts_committed_entries_from_a_follower() -> None:
    with stock_cluster() as cluster:
        answers = cluster.put("A", *range(5))
        cluster.step("ABC", times=8)
        leader, follower = cluster.nodes["A"], cluster.nodes["B"]
        assert acknowledged(answers) == 5
        before = follower.entries
        end = cluster.wires.ends["B"]
        message = {"type": "append_entries", "term": leader.raftCurrentTerm, "commit_index": leader.raftCommitIndex}
        place = {"entries": [], "prevLogIdx": 3, "prevLogTerm": before[2][1]}
        end._onMessageReceived(end.nodes["A"], message | place)
        assert follower.entries == before[:3]
        assert follower.raftLastApplied == before[-1][0] > 3, "they were committed and applied"


def test_d2_stock_resends_entries_in_flight_and_a_crash_then_loses_acknowledged_commands() -> None:
    with stock_cluster(appendEntriesBatchSizeBytes=4096) as cluster:
        wires, follower = cluster.wires, cluster.nodes["B"]
        for way in ("AC", "BA", "AB"):  # C is slow, B's connection has some latency
            wires.hold(way[0], way[1])
        answers = []
        for _ in range(8):
            answers += cluster.put("A", "y" * 2500, "y" * 2500)
            cluster.step("A", times=2, pump=False)
        wires.deliver("A", "B")
        follower.doTick(0.0)
        acks = wires.queues["B", "A"]
        late = list(acks)
        acks.clear()
        while (ack := pickle.loads(late.pop(0)))["next_node_idx"] <= 3 or not ack["success"]:
            acks.append(pickle.dumps(ack))
            wires.deliver("B", "A")
        acks.append(pickle.dumps(ack))
        wires.deliver("B", "A")
        cluster.nodes["A"]._SyncObj__newAppendEntriesTime = 0.0
        cluster.step("A", pump=False)  # from where the first success ack says
        acks.extend(late)
        wires.deliver("B", "A")
        cluster.step("A", pump=False)
        assert acknowledged(answers) == 16
        wires.deliver("A", "B", 1)
        wires.held.clear()
        wires.join("A", "BC", up=False)  # A crashes
        cluster.elect("B")
        cluster.step("BC", times=8)
        assert follower._isLeader()
        assert len(follower.applied) < 16


def test_d3_stock_commits_the_stray_tail_of_a_leader_that_comes_back() -> None:
    with stock_cluster() as cluster:
        old, new = cluster.nodes["A"], cluster.nodes["B"]
        cluster.wires.join("A", "BC", up=False)
        answers = cluster.put("A", *(f"isolated {number}" for number in range(5)))
        cluster.step("A", times=2)
        cluster.elect("B")
        cluster.put("B", *(f"good {number}" for number in range(50)))
        cluster.step("BC", times=8)
        new.forceLogCompaction()
        cluster.step("B", times=3)
        cluster.wires.join("A", "BC", up=True)
        for _ in range(4):
            cluster.step("B", pump=False)
            cluster.wires.deliver("B", "A", 1)
            old.doTick(0.0)
            cluster.wires.deliver("A", "B")
        assert acknowledged(answers) == 5, "commands that no other node has"
        assert not [command for command in new.applied if str(command).startswith("isolated")]


def test_d4_stock_accepts_three_membership_changes_at_once() -> None:
    with stock_cluster(dynamicMembershipChange=True) as cluster:
        leader = cluster.nodes["A"]
        cluster.wires.hold("A", "BC")
        refused: list[int] = []
        for node in "DEF":
            leader.addNodeToCluster(Node(node), callback=lambda _, code: refused.append(code))
        cluster.step("A")
        assert sorted(str(node.id) for node in leader.otherNodes) == [*"BCDEF"]
        assert leader.raftCommitIndex < leader.entries[-1][0]
        assert refused == []


def test_d5_stock_applies_a_command_again_when_its_callback_fails() -> None:
    with stock_cluster() as cluster:

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        cluster.nodes["A"].put("once", callback=fail)
        cluster.step("ABC", times=6)
        assert cluster.nodes["A"].applied[:2] == ["once", "once"]
        assert cluster.nodes["B"].applied == ["once"]


def test_d6_stock_tries_a_failing_command_for_ever_and_stalls() -> None:
    with stock_cluster() as cluster:
        told: list[int] = []
        cluster.nodes["A"].put(callback=lambda _, code: told.append(code))  # too few arguments for apply
        after = cluster.put("A", "after")
        cluster.step("ABC", times=30)
        assert len(cluster.errors) > 20
        assert (told, after, cluster.nodes["A"].applied) == ([], [[]], [])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the library leaves files open
def test_d8_stock_commits_alone_when_its_commit_index_outlived_its_log(tmp_path: Path) -> None:
    with stock_cluster(journalFile=lambda node: str(tmp_path / node)) as cluster:
        cluster.put("A", *range(5))
        cluster.step("ABC", times=20)
        meta_file = tmp_path / "A.meta"
        cluster.stop()
        meta = pickle.loads(meta_file.read_bytes())
        meta["raftCommitIndex"] += 4  # the file was written back at power loss, the end of the log was not
        meta_file.write_bytes(pickle.dumps(meta, 2))
        cluster.start_all()
        cluster.step("ABC")
        cluster.elect("A")
        cluster.wires.join("A", "BC", up=False)
        answers = cluster.put("A", "alone 1", "alone 2")
        cluster.step("A", times=3)
        assert acknowledged(answers) == 2


def test_d13_stock_repairs_one_entry_a_period() -> None:
    with stock_cluster() as cluster:
        cluster.wires.join("A", "BC", up=False)
        cluster.put("A", *range(300))
        cluster.step("A")
        cluster.elect("B")
        cluster.put("B", *range(300, 600))
        cluster.step("BC", times=8)
        cluster.elect("C")
        cluster.step("BC", times=4)
        cluster.wires.join("A", "BC", up=True)
        began = cluster.now
        while cluster.nodes["A"].applied != cluster.nodes["C"].applied and cluster.now < began + 100:
            cluster.step("ABC", seconds=0.02)
        assert 25 < cluster.now - began < 100


def test_d15_stock_never_answers_proposals_in_flight_when_it_steps_down() -> None:
    with stock_cluster(leaderFallbackTimeout=1.0) as cluster:
        cluster.wires.join("A", "BC", up=False)
        appended = cluster.put("A", "appended")
        cluster.step("A", times=100)
        assert not cluster.nodes["A"]._isLeader()
        queued = cluster.put("A", "queued")
        cluster.step("A", times=100)
        assert (appended, queued) == ([[]], [[]])


def test_d16_stock_forgets_its_vote_and_loses_a_committed_entry() -> None:
    with stock_cluster() as cluster:
        cluster.wires.join("C", "AB", up=False)
        answers = cluster.put("A", "committed")
        cluster.step("AB", times=6)
        assert acknowledged(answers) == 1
        cluster.wires.join("A", "B", up=False)
        cluster.restart("B")
        cluster.wires.join("B", "C", up=True)
        cluster.elect("C")
        cluster.step("BC", times=6)
        assert cluster.nodes["C"]._isLeader()
        assert "committed" not in cluster.nodes["C"].applied + cluster.nodes["B"].applied


def test_d17_stock_mislabels_the_last_chunk_of_some_large_entries() -> None:
    with stock_cluster() as cluster:
        for size in range(131072 - 150, 131072 - 20, 6):
            cluster.put("A", "k" * size)
            cluster.step("ABC", times=6)
        assert cluster.errors, "followers cannot read what they put together, and it is sent again and again"


def test_d20_stock_lets_a_node_that_was_cut_off_unseat_the_leader() -> None:
    with stock_cluster() as cluster:
        term = cluster.nodes["A"].raftCurrentTerm
        cluster.wires.join("C", "AB", up=False)
        cluster.wires.join("C", "B", up=True)  # it sees another node, though not the leader, which is well
        cluster.elect("C")
        assert cluster.nodes["C"].raftCurrentTerm > term
        cluster.wires.join("C", "A", up=True)
        cluster.step("ABC", times=3)
        assert cluster.nodes["A"].raftCurrentTerm > term
        assert not cluster.nodes["A"]._isLeader()


def test_d20_a_stock_leader_that_no_follower_hears_leads_on_for_half_a_minute() -> None:
    with stock_cluster() as cluster:
        cluster.wires.join("A", "BC", up=False)
        cluster.step("A", seconds=1.0, times=25)
        assert cluster.nodes["A"]._isLeader()
        cluster.step("A", seconds=1.0, times=10)
        assert not cluster.nodes["A"]._isLeader()


def test_d20_a_deposed_stock_leader_forwards_proposals_of_its_old_term() -> None:
    with stock_cluster() as cluster:
        cluster.wires.join("A", "BC", up=False)
        cluster.elect("B")
        cluster.put("A", "asked of the leader of the old term")
        cluster.wires.join("A", "BC", up=True)
        cluster.step("B", times=3)
        cluster.step("ABC", times=6)
        assert cluster.nodes["B"].applied == ["asked of the leader of the old term"]


def test_d21_stock_pickles_bytes_as_text_and_they_grow_by_half() -> None:
    command = os.urandom(1 << 16)
    assert len(pysyncobj.pickle.dumps(command)) > 1.4 * len(command)


def test_the_code_of_success_is_the_librarys() -> None:
    assert hasattr(pysyncobj, "FAIL_REASON")
    assert pysyncobj.FAIL_REASON.SUCCESS == SUCCESS
