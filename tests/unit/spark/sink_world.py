"""A cluster in memory for the sink: real machines of partitions, the real registry of producers, and drivers that run
in turns, one request at a time, in an order that a seed decides.

All that may go wrong with a request does: its answer is lost, it is sent twice, it arrives late, its sender dies
before or after it, the partition fails over, hours pass.
"""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from memory_log import MemoryLog

from stockade.client.blocking.writer import Pair, StageSeen, TopicShape
from stockade.cluster.controller.commands import Enrol, InitProducer
from stockade.cluster.controller.producers import ProducerRegistry
from stockade.cluster.features import NEWEST_LEVEL
from stockade.partition.commands import (
    Append,
    Appended,
    AppendStage,
    ChangeStages,
    Command,
    InstallProducer,
    NotEnrolled,
    PutStage,
    Retain,
    Stamp,
    Trim,
    encode_command,
)
from stockade.partition.config import PartitionConfig
from stockade.partition.errors import OffsetMismatch, StockadeError, UnknownTopicOrPartition
from stockade.partition.records.batch import batch_from_columns, decode_batch
from stockade.partition.state import snapshot
from stockade.partition.state.invariants import check
from stockade.partition.state.machine import PartitionMachine

Place = tuple[str, int]
_Answer = TypeVar("_Answer")
STAGE_TTL_MS = 1000
HOUR_MS = 10 * STAGE_TTL_MS
"""Longer than a stage lives."""


class Died(BaseException):
    """The process ends here, as if by SIGKILL: no handler of the product may stop it."""


class World:
    """``chance`` decides everything."""

    def __init__(self, chance: random.Random, topics: Mapping[str, int]) -> None:
        self.chance = chance
        self.machines: dict[Place, PartitionMachine] = {}
        self.registry = ProducerRegistry()
        self.late: list[Callable[[], object]] = []
        self.clock_ms = 0
        self.index = 0
        self.staged: dict[str, list[bytes]] = {}
        self.appended: list[bytes] = []  # directly, and not by reference: the records of control partitions
        for topic, partitions in topics.items():
            self.create(topic, partitions)

    def create(self, topic: str, partitions: int) -> None:
        for partition in range(partitions):
            config = PartitionConfig(len(self.machines) + 1)
            self.machines.setdefault((topic, partition), PartitionMachine(config, MemoryLog()))

    def delete(self, topic: str) -> None:
        """Its partitions keep their places, which are their numbers as groups, under a name that none asks for."""
        renamed = {place: (f"{topic} {number}", place[1]) for number, place in enumerate(self.machines)}
        self.machines = {
            renamed[place] if place[0] == topic else place: machine for place, machine in self.machines.items()
        }

    def apply(self, place: Place, command: Command) -> Any:
        """The answer; a refusal is raised."""
        result = self._apply(place, command)
        while isinstance(result, NotEnrolled):
            group = list(self.machines).index(place)
            enrolled = self.registry.enrol(self._next(), self.clock_ms, Enrol(now_ms=0, pid=result.pid, group_id=group))
            self._apply(place, InstallProducer(enrolled.pid, enrolled.epoch, enrolled.order, self.clock_ms))
            result = self._apply(place, command)
        if isinstance(result, StockadeError):
            raise result
        return result

    def init_producer(self, name: str | None, nonce: str) -> Pair:
        command = InitProducer(now_ms=0, name=name, nonce=nonce)
        made = self.registry.init(self._next(), self.clock_ms, command, NEWEST_LEVEL)
        for fence in made.pending:
            place = list(self.machines)[fence.group_id]
            self._apply(place, InstallProducer(fence.pid, fence.epoch, self._next(), self.clock_ms))
            self.registry.enrolments.installed(fence.pid, fence.epoch, fence.group_id)
        return Pair(made.pid, made.epoch)

    def happen(self) -> None:
        """What happens without a request: late messages arrive, partitions fail over, time passes."""
        chance = self.chance
        if self.late and chance.random() < 0.2:
            self._arrive(self.late.pop(chance.randrange(len(self.late))))
        if chance.random() < 0.03:
            self.fail_over(chance.choice(list(self.machines)))
        if chance.random() < 0.02:
            self.pass_time(chance.choice((1, STAGE_TTL_MS // 2, HOUR_MS)))

    def settle(self) -> None:
        """Every request that is under way arrives."""
        while self.late:
            self._arrive(self.late.pop())

    def fail_over(self, place: Place) -> None:
        """Another replica goes on: what it has is what a checkpoint of this one has."""
        before = self.machines[place]
        after = PartitionMachine(PartitionConfig(before.config.topic_id), before.log)
        after.stages.files = before.stages.files
        snapshot.put_back(after, snapshot.decode(snapshot.encode(before)))
        self.machines[place] = after

    def pass_time(self, elapsed_ms: int) -> None:
        self.clock_ms += elapsed_ms
        for place in self.machines:
            self._apply(place, Retain(0, self.clock_ms))

    def values(self, place: Place) -> list[bytes]:
        log = self.machines[place].log
        return [
            value
            for message in log.read(log.log_start, 1 << 40).messages()
            for value in decode_batch(message).column("value").to_pylist()
        ]

    def check(self) -> None:
        for machine in self.machines.values():
            check(machine)

    def _arrive(self, request: Callable[[], object]) -> None:
        with suppress(StockadeError):  # no caller waits for the answer any more
            request()

    def _apply(self, place: Place, command: Command) -> Any:
        if place not in self.machines:
            raise UnknownTopicOrPartition(topic=place[0], partition=None)
        result = self.machines[place].apply(self._next(), 1, encode_command(command))
        if isinstance(command, Append) and isinstance(result, Appended):
            self.appended += decode_batch(command.message).column("value").to_pylist()
        return result

    def _next(self) -> int:
        self.index += 1
        return self.index


class Turns:
    """Lets threads run one at a time, each from one request to its next."""

    def __init__(self) -> None:
        self._back = threading.Semaphore(0)

    def go(self, actor: "Actor") -> None:
        """Let an actor do one step."""
        actor.turn.release()
        self._back.acquire()

    def wait(self, actor: "Actor") -> None:
        """In the actor's thread: the step is over."""
        self._back.release()
        actor.turn.acquire()

    def end(self) -> None:
        """In the actor's thread: there is no next step."""
        self._back.release()


class Actor:
    """A driver in a thread of its own."""

    def __init__(self, turns: Turns, life: Callable[["Actor"], None]) -> None:
        self.turn = threading.Semaphore(0)
        self.ended = False
        self.doomed = False
        self.error: BaseException | None = None
        self._turns = turns
        self._life = life
        self.sleeps = 0
        threading.Thread(target=self._run, daemon=True).start()

    def step(self) -> None:
        """Called before each step that another actor may come before."""
        self._turns.wait(self)
        if self.doomed:
            raise Died

    def _run(self) -> None:
        self.turn.acquire()
        try:
            if not self.doomed:
                self._life(self)
        except Died:
            pass
        except BaseException as error:
            self.error = error
        self.ended = True
        self._turns.end()


class ModelStore:
    """Implements spark.sink.store.Store for one actor; ``p_die``: chance to die around a request."""

    def __init__(self, world: World, actor: Actor, p_die: float) -> None:
        self._world, self._actor, self._p_die = world, actor, p_die

    def create_topic(self, name: str, partitions: int, config: Mapping[str, Any]) -> None:
        self._ask(lambda: self._world.create(name, partitions))

    def shape(self, name: str) -> TopicShape:
        def found() -> TopicShape:
            machines = [machine for (topic, _), machine in self._world.machines.items() if topic == name]
            if not machines:
                raise UnknownTopicOrPartition(topic=name, partition=None)
            return TopicShape(len(machines), 1 << 20, machines[0].config.topic_id)

        return self._ask(found)

    def init_producer(self, name: str | None, nonce: str, *, patience_s: float | None = None) -> Pair:
        return self._ask(lambda: self._world.init_producer(name, nonce))

    def next_sequences(self, name: str, pair: Pair) -> dict[Place, int]:
        def found() -> dict[Place, int]:
            entries = {place: machine.producer(pair.pid) for place, machine in self._world.machines.items()}
            return {p: entry.run.next_seq for p, entry in entries.items() if entry and entry.run.epoch == pair.epoch}

        return self._ask(found)

    def put_stage(self, topic: str, partition: int, name: str, values: list[bytes]) -> None:
        batch = batch_from_columns([None] * len(values), values, None, None, now_ms=5, batch_bytes_max=1 << 20)
        fields = (name, repr(values), batch.message, batch.count, batch.crc, batch.max_timestamp_ms, STAGE_TTL_MS)
        self._world.staged[name] = values
        self._ask(lambda: self._world.apply((topic, partition), PutStage(*fields, now_ms=self._world.clock_ms)))

    def stages(self, topic: str, partition: int, prefix: str) -> list[StageSeen]:
        def found() -> list[StageSeen]:
            if (topic, partition) not in self._world.machines:
                raise UnknownTopicOrPartition(topic=topic, partition=None)
            stages = self._world.machines[topic, partition].stages.stages.values()
            return [StageSeen(s.name, s.kept, s.is_appended) for s in stages if s.name.startswith(prefix)]

        return self._ask(found)

    def keep_stages(self, topic: str, partition: int, names: Sequence[str], pair: Pair) -> None:
        self._change(topic, partition, list(names), [], pair)

    def delete_stages(
        self, topic: str, partition: int, names: Sequence[str], pair: Pair, *, patience_s: float | None = None
    ) -> None:
        self._change(topic, partition, [], list(names), pair)

    def append_stage(self, topic: str, partition: int, name: str, pair: Pair, sequence: int) -> bool:
        command = AppendStage(name, 5, stamp=Stamp(*pair, sequence))
        appended = self._ask(lambda: self._world.apply((topic, partition), command))
        assert isinstance(appended, Appended)
        return not appended.duplicate

    def append_at(self, topic: str, partition: int, value: bytes, log_end: int) -> bool:
        batch = batch_from_columns([None], [value], None, None, now_ms=5, batch_bytes_max=1 << 20)
        command = Append(batch.message, 1, batch.crc, 5, 5, if_log_end=log_end)
        try:
            self._ask(lambda: self._world.apply((topic, partition), command))
        except OffsetMismatch:
            return False
        return True

    def read(self, topic: str, partition: int) -> tuple[list[tuple[int, bytes]], int]:
        def found() -> tuple[list[tuple[int, bytes]], int]:
            if (topic, partition) not in self._world.machines:
                raise UnknownTopicOrPartition(topic=topic, partition=None)
            log = self._world.machines[topic, partition].log
            return list(enumerate(self._world.values((topic, partition)), log.log_start)), log.log_end

        return self._ask(found)

    def trim(self, topic: str, partition: int, before: int) -> None:
        self._ask(lambda: self._world.apply((topic, partition), Trim(before)))

    def _change(self, topic: str, partition: int, keep: list[str], delete: list[str], pair: Pair) -> None:
        command = ChangeStages(keep, delete, *pair)
        self._ask(lambda: self._world.apply((topic, partition), command))

    def _ask(self, request: Callable[[], _Answer]) -> _Answer:
        """One request, with all that happens to requests."""
        chance = self._world.chance
        self._actor.step()
        if chance.random() < self._p_die:
            if chance.random() < 0.5:
                self._world.late.append(request)  # it was sent, and is on its way
            raise Died
        fate = chance.random()
        if fate < 0.06:
            self._world._arrive(request)  # the answer is lost: the client repeats it
            self._actor.step()
        elif fate < 0.10:
            self._world.late.append(request)  # it hangs somewhere: the client repeats it
        return request()
