"""What a fake cluster knows: topics of real partition machines, and the least of sessions, grants and producer names.

The machines are the product's, so a verdict about sequences, duplicates and tokens is the real one.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from stockade.partition.commands import (
    Append,
    ClearFence,
    Command,
    InstallFence,
    InstallProducer,
    NotEnrolled,
    Stamp,
    Token,
    encode_command,
)
from stockade.partition.errors import (
    ProducerBusy,
    StockadeError,
    TopicAlreadyExists,
    UnknownSession,
    UnknownTopicOrPartition,
)
from stockade.partition.log import MemoryLog
from stockade.partition.machine import PartitionConfig, PartitionMachine
from stockade.partition.records import batch_from_stream, decode_batch

NAMED_PID_FIRST = 1001


@dataclass
class Topic:
    name: str
    topic_id: int
    machines: list[PartitionMachine]
    batch_bytes_max: int
    require_fence: bool


@dataclass
class Grant:
    grant_id: str
    index: int
    session: str
    topic: Topic
    partitions: list[int]
    epoch: int
    mode: str


@dataclass
class FakeState:
    topics: dict[str, Topic] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    line: dict[str, tuple[str, Topic, list[int]]] = field(default_factory=dict)
    """Tickets in line: session, topic, partitions. A free set is given to whoever asks first, which is unfair."""
    index: int = 0

    def create(
        self, name: str, partitions: int = 1, *, require_fence: bool = False, batch_bytes_max: int = 1_048_576
    ) -> Topic:
        if name in self.topics:
            topic = self.topics[name]
            if len(topic.machines) != partitions or topic.require_fence != require_fence:
                raise TopicAlreadyExists(topic_id=topic.topic_id)
            return topic
        self.index += 1
        config = PartitionConfig(self.index, require_fence)
        machines = [PartitionMachine(config, MemoryLog()) for _ in range(partitions)]
        self.topics[name] = Topic(name, self.index, machines, batch_bytes_max, require_fence)
        return self.topics[name]

    def topic(self, name: str) -> Topic:
        if name not in self.topics:
            raise UnknownTopicOrPartition(topic=name, partition=None)
        return self.topics[name]

    def machine(self, name: str, partition: int) -> PartitionMachine:
        machines = self.topic(name).machines
        if partition >= len(machines):
            raise UnknownTopicOrPartition(topic=name, partition=partition)
        return machines[partition]

    def values(self, topic: str, partition: int = 0) -> list[bytes]:
        """Every value stored, in order."""
        messages = self.machine(topic, partition).log.read(0, 1 << 40).messages()
        return [value for message in messages for value in decode_batch(message).column("value").to_pylist()]

    def append(self, topic: str, partition: int, body: bytes, stamp: Stamp | None, token: Token | None) -> Any:
        machine = self.machine(topic, partition)
        now_ms = time.time_ns() // 1_000_000
        batch = batch_from_stream(body, now_ms=now_ms, batch_bytes_max=self.topics[topic].batch_bytes_max)
        command = Append(
            batch.message, batch.count, batch.crc, now_ms, batch.max_timestamp_ms, None, token=token, stamp=stamp
        )
        answer = self.apply(machine, command)
        if isinstance(answer, NotEnrolled):
            epoch = next(epoch for pid, epoch in self.producers.values() if pid == answer.pid)
            self.apply(machine, InstallProducer(answer.pid, epoch))
            answer = self.apply(machine, command)
        return raised(answer)

    def init_producer(self, name: str) -> tuple[int, int]:
        pid, epoch = self.producers.get(name, (NAMED_PID_FIRST + 2 * len(self.producers), -1))
        self.producers[name] = pid, epoch + 1
        for topic in self.topics.values():
            for machine in topic.machines:
                self.apply(machine, InstallProducer(pid, epoch + 1))
        return self.producers[name]

    def open_session(self, ttl_ms: int) -> str:
        self.index += 1
        self.sessions[f"s-{self.index}"] = ttl_ms
        return f"s-{self.index}"

    def acquire(self, topic: Topic, session: str, partitions: list[int], mode: str) -> Grant:
        if session not in self.sessions:
            raise UnknownSession()
        held = [grant for grant in self.grants.values() if grant.topic is topic and {*grant.partitions} & {*partitions}]
        if held and mode != "ExclusiveWithFencing":
            raise ProducerBusy(reason="exclusive_present", holder_mode=held[0].mode, current_epoch=held[0].epoch)
        for grant in held:
            self.release(grant.grant_id)
        self.index += 1
        epoch = 1 + max(topic.machines[partition].topic_epoch for partition in partitions)
        grant_id = f"g-{topic.topic_id}-{self.index}"
        self.grants[grant_id] = Grant(grant_id, self.index, session, topic, partitions, epoch, mode)
        install = InstallFence(grant_id, epoch, session, "name", mode, self.index)
        for partition in partitions:
            self.apply(topic.machines[partition], install)
        return self.grants[grant_id]

    def release(self, grant_id: str) -> None:
        grant = self.grants.pop(grant_id, None)
        for partition in grant.partitions if grant else ():
            assert grant is not None
            self.apply(grant.topic.machines[partition], ClearFence(grant_id, grant.epoch, grant.index))

    def close_session(self, session: str) -> None:
        self.sessions.pop(session, None)
        for grant in [grant for grant in self.grants.values() if grant.session == session]:
            self.release(grant.grant_id)

    def take_over(self, topic: str, partition: int = 0) -> None:
        """Somebody else throws the holder out."""
        self.acquire(self.topics[topic], self.open_session(60_000), [partition], "ExclusiveWithFencing")

    def apply(self, machine: PartitionMachine, command: Command) -> Any:
        self.index += 1
        return machine.apply(self.index, 1, encode_command(command))


def raised(answer: Any) -> Any:
    if isinstance(answer, StockadeError):
        raise answer
    return answer
