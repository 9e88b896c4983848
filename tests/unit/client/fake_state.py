"""What a fake cluster knows: topics of real partition machines, and the least of sessions, grants and producer names.

The machines are the product's, so a verdict about sequences, duplicates and tokens is the real one.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from memory_log import MemoryLog

from stockade.cluster.controller.ownership.resources import Resource, judge, partition_named
from stockade.partition.commands import (
    Append,
    ClearFence,
    Command,
    InstallFence,
    InstallProducer,
    InstallReader,
    InstallSeats,
    NotEnrolled,
    SharedHolder,
    Stamp,
    Token,
    encode_command,
)
from stockade.partition.errors import (
    GenerationFenced,
    InvalidProducerIdMapping,
    NotOwner,
    ProducerBusy,
    StockadeError,
    TopicAlreadyExists,
    UnknownSession,
    UnknownTopicOrPartition,
)
from stockade.partition.records.batch import batch_from_stream, decode_batch
from stockade.partition.state.machine import PartitionConfig, PartitionMachine

NAMED_PID_FIRST = 1001


@dataclass
class Topic:
    name: str
    topic_id: int
    machines: list[PartitionMachine]
    batch_bytes_max: int
    require_fence: bool
    config: dict[str, Any]


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
    renewed_s: dict[str, float] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    forgotten: set[int] = field(default_factory=set)
    """Producer ids of forgotten names."""
    owned: dict[tuple[str, str], Resource] = field(default_factory=dict)
    line: dict[str, tuple[str, Topic, list[int]]] = field(default_factory=dict)
    """Tickets in line: session, topic, partitions. The session that asks first gets a free set, which is unfair."""
    index: int = 0

    def create(
        self,
        name: str,
        partitions: int = 1,
        *,
        require_fence: bool = False,
        batch_bytes_max: int = 1_048_576,
        **config: Any,
    ) -> Topic:
        if name in self.topics:
            topic = self.topics[name]
            if len(topic.machines) != partitions or topic.require_fence != require_fence:
                raise TopicAlreadyExists(topic_id=topic.topic_id)
            return topic
        self.index += 1
        own = PartitionConfig(self.index, require_fence, **config)
        machines = [PartitionMachine(own, MemoryLog()) for _ in range(partitions)]
        self.topics[name] = Topic(name, self.index, machines, batch_bytes_max, require_fence, config)
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

    def append(
        self, topic: str, partition: int, body: bytes, stamp: Stamp | None, token: Token | None, **conditions: Any
    ) -> Any:
        """``conditions``: if_log_end, fence_epoch, message_id."""
        machine = self.machine(topic, partition)
        if stamp is not None and stamp.pid in self.forgotten:
            raise InvalidProducerIdMapping
        now_ms = time.time_ns() // 1_000_000
        batch = batch_from_stream(body, now_ms=now_ms, batch_bytes_max=self.topics[topic].batch_bytes_max)
        times = now_ms, batch.max_timestamp_ms
        command = Append(batch.message, batch.count, batch.crc, *times, None, token=token, stamp=stamp, **conditions)
        answer = self.apply(machine, command)
        if isinstance(answer, NotEnrolled):
            epoch = next(epoch for pid, epoch in self.producers.values() if pid == answer.pid)
            self.apply(machine, InstallProducer(answer.pid, epoch))
            answer = self.apply(machine, command)
        return raised(answer)

    def init_producer(self, name: str) -> tuple[int, int]:
        fresh = NAMED_PID_FIRST + 2 * (len(self.producers) + len(self.forgotten))
        pid, epoch = self.producers.get(name, (fresh, -1))
        self.producers[name] = pid, epoch + 1
        for topic in self.topics.values():
            for machine in topic.machines:
                self.apply(machine, InstallProducer(pid, epoch + 1))
        return self.producers[name]

    def forget_producer(self, name: str) -> None:
        """The name has not been used for days: neither the registry nor any partition knows its id."""
        self.forgotten.add(self.producers.pop(name)[0])

    def open_session(self, ttl_ms: int) -> str:
        self.index += 1
        self.renew(f"s-{self.index}", ttl_ms)
        return f"s-{self.index}"

    def renew(self, session: str, ttl_ms: int) -> None:
        self.sessions[session] = ttl_ms
        self.renewed_s[session] = time.monotonic()

    def _end_lapsed(self) -> None:
        """Close the sessions whose client was not heard for their ttl, as a client on a busy machine may be."""
        now_s = time.monotonic()
        for session in [key for key, ttl_ms in self.sessions.items() if now_s > self.renewed_s[key] + ttl_ms / 1000]:
            self.close_session(session)

    def acquire(self, topic: Topic, session: str, partitions: list[int], mode: str) -> Grant:
        self._end_lapsed()
        if session not in self.sessions:
            raise UnknownSession()
        held = [grant for grant in self.grants.values() if grant.topic is topic and {*grant.partitions} & {*partitions}]
        in_the_way = [each for each in held if mode != "Shared" or each.mode != "Shared"]
        if in_the_way and mode != "ExclusiveWithFencing":
            first = in_the_way[0]
            reason = "shared_present" if first.mode == "Shared" else "exclusive_present"
            raise ProducerBusy(reason=reason, holder_mode=first.mode, current_epoch=first.epoch)
        if mode == "Shared":
            return self._share(topic, session, partitions)
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

    def _share(self, topic: Topic, session: str, partitions: list[int]) -> Grant:
        self.index += 1
        grant_id, epoch = (
            f"g-{topic.topic_id}-{self.index}",
            max(topic.machines[each].topic_epoch for each in partitions),
        )
        self.grants[grant_id] = Grant(grant_id, self.index, session, topic, partitions, epoch, "Shared")
        self._seat(topic, partitions)
        return self.grants[grant_id]

    def _seat(self, topic: Topic, partitions: list[int]) -> None:
        """Install the Shared grants of these partitions."""
        self.index += 1
        for partition in partitions:
            sharing = [each for each in self.grants.values() if each.topic is topic and partition in each.partitions]
            seats = [SharedHolder(each.grant_id, each.session, "name") for each in sharing]
            machine = topic.machines[partition]
            self.apply(machine, InstallSeats(machine.topic_epoch, self.index, seats))

    def release(self, grant_id: str) -> None:
        grant = self.grants.pop(grant_id, None)
        if grant is not None and grant.mode == "Shared":
            self._seat(grant.topic, grant.partitions)
            return
        for partition in grant.partitions if grant else ():
            assert grant is not None
            self.apply(grant.topic.machines[partition], ClearFence(grant_id, grant.epoch, grant.index))

    def close_session(self, session: str) -> None:
        self.sessions.pop(session, None)
        for ticket in [ticket for ticket, (waiting, _, _) in self.line.items() if waiting == session]:
            del self.line[ticket]
        self.sever(session)

    def sever(self, session: str) -> None:
        """Take all that a session holds; it lives on."""
        for grant in [grant for grant in self.grants.values() if grant.session == session]:
            self.release(grant.grant_id)
        for group, resource in [key for key, row in self.owned.items() if row.owner == session]:
            self.disown(group, session, resource)

    def own(self, group: str, session: str, claims: list[dict[str, Any]], *, atomic: bool, sever: str) -> list[Any]:
        if session not in self.sessions:
            raise UnknownSession()
        wanted = {
            each["resource"]: judge(self.owned.get((group, each["resource"])), session, each.get("generation"))
            for each in claims
        }
        refused = [name for name, row in wanted.items() if row is None]
        if refused and atomic:
            raise GenerationFenced(resource=refused[0], generation=self.owned[group, refused[0]].generation)
        for name, row in wanted.items():
            if row is not None:
                before = self.owned.get((group, name))
                if before and before.owner not in (None, session) and sever == "session":
                    self.sever(str(before.owner))
                self._install_owner(group, name, row)
        rows = [(name, self.owned[group, name]) for name in wanted]
        return [
            {"resource": n, "granted": r.owner == session, "generation": r.generation, "fence_epoch": r.fence_epoch}
            for n, r in rows
        ]

    def disown(self, group: str, session: str, resource: str) -> None:
        row = self.owned.get((group, resource))
        if row is None or row.owner != session:
            raise NotOwner(group=group, resource=resource)
        self._install_owner(group, resource, Resource(None, row.generation, row.fence_epoch))

    def _install_owner(self, group: str, resource: str, row: Resource) -> None:
        self.owned[group, resource] = row
        named = partition_named(resource)
        if named is not None and named[0] in self.topics:
            install = InstallReader(group, row.fence_epoch, row.owner is not None)
            self.apply(self.machine(*named), install)

    def take_over(self, topic: str, partition: int = 0) -> None:
        """Another session throws the holder out."""
        self.acquire(self.topics[topic], self.open_session(60_000), [partition], "ExclusiveWithFencing")

    def apply(self, machine: PartitionMachine, command: Command) -> Any:
        self.index += 1
        return machine.apply(self.index, 1, encode_command(command))


def raised(answer: Any) -> Any:
    if isinstance(answer, StockadeError):
        raise answer
    return answer
