"""The logs of replicas are read once each has what was committed."""

import asyncio
from typing import Any

import pytest

from stockade.chaos.harness import readback
from stockade.chaos.harness.readback import read_back, read_what_can_be
from stockade.chaos.history.history import payload
from stockade.chaos.system.raw import Page, StoredRecord
from stockade.chaos.system.waiting import NotInTime

RECORDS = [StoredRecord(k, 0, f"w@0/{k}", (payload("w@0", k) or b"").decode()) for k in range(4)]


class Node:
    """A node whose replica has ``count`` records; one more after each request for one it lacks, up to ``most``."""

    def __init__(self, count: int, most: int = len(RECORDS)) -> None:
        self.count, self.most = count, most

    async def fetch(self, topic: str, partition: int, offset: int, *, local: bool, **_: object) -> Page:
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
    lost, told = set[str](), list[tuple[str, str]]()
    found = read_what_can_be(
        nodes(n1=Node(4), n2=Node(1, most=3)), {0: ["n1", "n2"]}, "t", lost, lambda *why: told.append(why)
    )
    assert ([log.node for log in asyncio.run(found)], lost) == (["n1"], {"n2"})
    assert told == [("n2", "t/0: n2 has not caught up with partition 0 to 4 within 0 s")]
