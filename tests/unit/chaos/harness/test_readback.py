"""The logs of replicas are read once each has what was committed."""

import asyncio
from typing import Any

import pytest

from stockade.chaos.harness import readback
from stockade.chaos.harness.readback import committed_end, read_back, read_what_can_be
from stockade.chaos.history.history import payload
from stockade.chaos.system.raw import Page, StoredRecord
from stockade.chaos.system.waiting import NotInTime
from stockade.partition.errors import LeaderNotAvailable, UnknownTopicOrPartition

RECORDS = [StoredRecord(k, 0, f"w@0/{k}", (payload("w@0", k) or b"").decode()) for k in range(4)]


class Node:
    """A node whose replica has ``count`` records; one more after each request for one it lacks, up to ``most``.

    ``led``: the partitions that it leads; None: all of them.
    """

    def __init__(self, count: int, most: int = len(RECORDS), led: set[int] | None = None) -> None:
        self.count, self.most, self.led = count, most, led

    async def fetch(self, topic: str, partition: int, offset: int, *, local: bool, **_: object) -> Page:
        if not local and self.led is not None and partition not in self.led:
            raise LeaderNotAvailable("no leader is known")
        end = self.count
        if offset >= end:
            self.count = min(end + 1, self.most)
        records = RECORDS[offset : min(offset + 2, end)]
        return Page(0, end, offset + len(records), False, records)


def nodes(**found: Node) -> dict[str, Any]:
    return {**found}


def test_a_replica_that_is_behind_is_read_when_it_has_caught_up() -> None:
    logs = asyncio.run(read_back(nodes(n1=Node(4), n2=Node(1)), {0: ["n1", "n2"]}, "t"))
    assert [(log.node, log.log_end, list(log.names)) for log in logs] == [
        (name, 4, [record.name for record in RECORDS]) for name in ("n1", "n2")
    ]


def test_a_replica_that_never_catches_up_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it lacks would be its node's loss; in a run that node is one that did not come back."""
    monkeypatch.setattr(readback, "CATCH_UP_TIMEOUT_S", 0.05)
    with pytest.raises(NotInTime, match="n2 has not caught up"):
        asyncio.run(read_back(nodes(n1=Node(4), n2=Node(1, most=3)), {0: ["n1", "n2"]}, "t"))
    lost, leaderless, told = set[str](), dict[tuple[str, int], str](), list[tuple[str, str]]()
    found = read_what_can_be(
        nodes(n1=Node(4), n2=Node(1, most=3)), {0: ["n1", "n2"]}, "t", lost, leaderless, lambda *why: told.append(why)
    )
    assert ([log.node for log in asyncio.run(found)], lost, leaderless) == (["n1"], {"n2"}, {})
    assert told == [("n2", "t/0: n2 has not caught up with partition 0 to 4 within 0 s")]


def test_a_partition_without_a_leader_takes_no_node_and_no_other_partition_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the sound partitions behind it would be judged as lost, too."""
    monkeypatch.setattr(readback, "CATCH_UP_TIMEOUT_S", 0.05)
    monkeypatch.setattr(readback, "NEXT_LEADER_TIMEOUT_S", 0.05)
    lost, leaderless, holders = set[str](), dict[tuple[str, int], str](), ["n1", "n2"]
    there = nodes(n1=Node(4, led={1, 2}), n2=Node(4, led=set()))
    replicas = {0: holders, 1: holders, 2: holders}
    logs = asyncio.run(read_what_can_be(there, replicas, "t", lost, leaderless, lambda *_: None))
    assert [(log.partition, log.node) for log in logs] == [(p, node) for p in (1, 2) for node in holders]
    assert not lost
    assert leaderless == {("t", 0): "t/0: no leader of partition 0 answered within 0 s"}


class Forgetful(Node):
    """A node that does not know the topic."""

    async def fetch(self, *_: Any, **__: Any) -> Page:
        raise UnknownTopicOrPartition("t")


def test_a_node_that_does_not_know_the_topic_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it ended the reading, the round would not be judged, and what its clients saw thrown away."""
    assert asyncio.run(committed_end(nodes(n1=Forgetful(0), n2=Node(4)), "t", 0)) == 4
    with pytest.raises(NotInTime):
        asyncio.run(committed_end(nodes(n1=Forgetful(0)), "t", 0, 0.05))
