"""A cluster in memory for tests of the HTTP interface: real partition machines, a simple controller, leaders that tests
may move. This is what its nodes share.
"""

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stockade.cluster.condition import Condition
from stockade.cluster.controller.principals import Principals
from stockade.cluster.model import Leader
from stockade.partition.api.ownership import Grant, SessionInfo, Ticket
from stockade.partition.api.producers import ProducerPair
from stockade.partition.api.topics import TopicConfig
from stockade.partition.log.segments import SegmentLog
from stockade.partition.state.machine import PartitionConfig, PartitionMachine

TERM = 6


class Changes(Condition):
    """What wakes those that wait in a FakeCluster."""

    async def wait(self) -> None:
        seen = self.count
        await self.until(lambda: True if self.count > seen else None, 3_600)


@dataclass
class FakeTopic:
    name: str
    topic_id: int
    replication_factor: int | None
    config: TopicConfig
    machines: list[PartitionMachine]
    leaders: list[str | None]
    sealed: bool = False


@dataclass
class FakeCluster:
    """State that all nodes share. ``urls`` are filled in when the nodes listen."""

    urls: dict[str, str] = field(default_factory=dict)
    controller: str | None = "n1"
    topics: dict[str, FakeTopic] = field(default_factory=dict)
    sessions: dict[str, SessionInfo] = field(default_factory=dict)
    principals: dict[str, str] = field(default_factory=dict)
    registered: Principals = field(default_factory=Principals)
    grants: dict[str, Grant] = field(default_factory=dict)
    holders: dict[str, str] = field(default_factory=dict)
    producers: dict[str, ProducerPair] = field(default_factory=dict)
    tickets: dict[str, Ticket] = field(default_factory=dict)
    expired: set[str] = field(default_factory=set)
    owned: dict[tuple[str, str], tuple[str | None, int, int]] = field(default_factory=dict)
    orders: list[tuple[Any, ...]] = field(default_factory=list)
    acts: list[tuple[Any, ...]] = field(default_factory=list)
    changed: Changes = field(default_factory=Changes)
    may_store: asyncio.Event = field(default_factory=asyncio.Event)
    writer_came: asyncio.Event = field(default_factory=asyncio.Event)
    reader_came: asyncio.Event = field(default_factory=asyncio.Event)
    reader_left: asyncio.Event = field(default_factory=asyncio.Event)
    disk: tempfile.TemporaryDirectory[str] = field(default_factory=tempfile.TemporaryDirectory)
    logs: list[SegmentLog] = field(default_factory=list)
    index: int = 0
    news: int = 0

    def __post_init__(self) -> None:
        self.may_store.set()

    def partition_config(self, topic: FakeTopic) -> PartitionConfig:
        config = topic.config
        return PartitionConfig(
            topic.topic_id,
            config.require_fence,
            config.strict_sequence,
            dedupe_window_ms=config.dedupe_window_ms,
            writer_group=config.writer_group,
            sealed=topic.sealed,
        )

    def log(self, topic_id: int, partition: int) -> SegmentLog:
        directory = Path(self.disk.name) / f"{topic_id}-{partition}"
        directory.mkdir()
        log = SegmentLog(1 << 20)
        log.begin(directory)
        self.logs.append(log)
        return log

    def close(self) -> None:
        for log in self.logs:
            log.close()
        self.disk.cleanup()

    def next_index(self) -> int:
        self.index += 1
        return self.index

    def leader(self, node_id: str | None) -> Leader:
        return Leader(node_id, self.urls[node_id], TERM) if node_id is not None else Leader(None, None, 0)

    def lead(self, topic: str, node_id: str | None, partition: int = 0) -> None:
        """Let a node lead a partition, and everybody hear of it."""
        self.topics[topic].leaders[partition] = node_id
        self.news += 1
        self.wake()

    def wake(self) -> None:
        self.changed.notify()
