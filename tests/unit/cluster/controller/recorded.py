"""The controller's machine with a ledger, and the entries that commands leave in it."""

from collections.abc import Iterable
from typing import Any

import msgspec

from stockade.cluster.controller.commands import (
    Acquire,
    Command,
    CreateTopic,
    OpenSession,
    RegisterNode,
    encode_command,
)
from stockade.cluster.controller.ledger import (
    BeginLedger,
)
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.model import By
from stockade.partition.api.ledger import LedgerEntry
from stockade.partition.api.topics import TopicConfig

ROOT = By("root", evicts=True, request="r-1", client="10.0.0.7")
NODES: list[tuple[str, str | None]] = [("n1", None), ("n2", None), ("n3", None)]


class Recorded:
    """Two machines that apply the same bytes, one of them restored from the other before each command."""

    def __init__(self, begins: bool = True) -> None:
        self.machine = ControllerMachine()
        self.index = 0
        self.now_ms = 0
        for number in (1, 2, 3):
            self.do(
                RegisterNode(
                    now_ms=0, node_id=f"n{number}", url="u", raft="r", zone=None, incarnation=1, controllers=[]
                )
            )
        if begins:
            self.do(BeginLedger(now_ms=0))

    def do(self, command: Command, *, is_stamped: bool = True) -> Any:
        self.index += 1
        twin = ControllerMachine()
        twin.restore(None, self.machine.capture().state, [])
        data = encode_command(msgspec.structs.replace(command, wall_ms=(1_000 + self.index) * is_stamped))
        answer = self.machine.apply(self.index, 1, data)
        assert twin.apply(self.index, 1, data) == answer
        assert twin.capture().state == self.machine.capture().state, "replicas have other entries"
        return answer

    def told(self, *commands: Command) -> list[LedgerEntry]:
        """The entries that these commands made."""
        before = self.machine.ledger.next
        for command in commands:
            self.do(command)
        return [entry for entry in self.entries if entry.number >= before]

    @property
    def entries(self) -> list[LedgerEntry]:
        first, waiting = self.machine.ledger.oldest(1 << 30, 1 << 40)
        found = [msgspec.json.decode(entry, type=LedgerEntry) for entry in waiting]
        assert [entry.number for entry in found] == list(range(first, first + len(found)))
        return found

    def topic(self, name: str = "t", partitions: int = 2) -> int:
        created = self.do(topic(name, partitions))
        return int(created.topic_id)

    def session(self, name: str) -> str:
        self.do(OpenSession(now_ms=self.now_ms, by=ROOT, session=name, client_id="c", ttl_ms=10_000))
        return name


def node(node_id: str, zone: str | None = None) -> RegisterNode:
    return RegisterNode(now_ms=0, node_id=node_id, url="u", raft="r", zone=zone, incarnation=1, controllers=[])


def topic(name: str = "t", partitions: int = 2) -> CreateTopic:
    return CreateTopic(
        now_ms=0,
        by=ROOT,
        name=name,
        partitions=partitions,
        replication_factor=1,
        config=TopicConfig(),
        nodes=NODES,
        scattered=True,
    )


def acquire(session: str, mode: str = "Exclusive", partitions: list[int] | None = None, name: str = "t") -> Acquire:
    return Acquire(
        now_ms=0, by=ROOT, session=session, topic=name, partitions=partitions, mode=mode, producer_name="writer"
    )


def acts_of(entries: Iterable[LedgerEntry]) -> list[str]:
    return [entry.act for entry in entries]
