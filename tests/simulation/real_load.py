"""What clients, owners and reconcilers ask of real machines: also late, twice, and with what is no longer theirs."""

import random
import zlib
from collections.abc import Callable
from itertools import count

import msgspec
from simulation.checker import Attempt
from simulation.real_machines import MARK, PARTITION, TOPIC_ID, RealWorld
from simulation.world import Process

from stockade.cluster.controller import commands as controller
from stockade.partition import commands as partition
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import (
    Append,
    Appended,
    ClearFence,
    InstallFence,
    InstallProducer,
    NotEnrolled,
    Stamp,
    Token,
)
from stockade.partition.errors import OutOfOrderSequence
from stockade.raft.core.group import Committed

PIDS = (2, 4, 5)
NODES: list[tuple[str, str | None]] = [("n1", None), ("n2", None), ("n3", None)]


class PartitionLoad:
    """Commands for a partition. Owners and producers learn what became of what they asked, and repeat themselves."""

    def __init__(self, rng: random.Random, answer: Callable[[Attempt], object]) -> None:
        """``answer`` tells what the machine answered to a proposal, None as long as that is unknown."""
        self._rng = rng
        self._answer = answer
        self._grants: list[InstallFence] = []
        self._epochs = dict.fromkeys(PIDS, 0)
        self._batches = count(1)
        self._under_way: dict[int, Append] = {}
        """The batch that a producer repeats until it is stored."""
        self._attempts: dict[int, list[Attempt]] = {pid: [] for pid in PIDS}
        self._old: list[Append] = []
        self._installs: list[tuple[InstallFence, Attempt]] = []

    def command(self) -> partition.Command:
        kinds = (self._stamped, self._plain, self._old_batch, self._install, self._clear, self._enrol)
        return self._rng.choices(kinds, (70, 8, 6, 8, 1, 4))[0]()

    def proposed(self, asked: partition.Command, attempt: Attempt) -> None:
        """What became of a command, for the caller that waits for it."""
        if isinstance(asked, InstallFence):
            self._installs.append((asked, attempt))
        if isinstance(asked, Append) and asked.stamp is not None:
            pid = asked.stamp.pid
            if asked.message == self._under_way[pid].message:
                self._attempts[pid].append(attempt)

    def _append(self, stamp: Stamp | None, if_log_end: int | None = None) -> Append:
        message = b"batch %d" % next(self._batches)
        return Append(
            message,
            self._rng.randint(1, 3),
            zlib.crc32(message),
            timestamp_ms=1,
            max_timestamp_ms=1,
            topic_id=TOPIC_ID,
            token=self._token(),
            stamp=stamp,
            if_log_end=if_log_end,
        )

    def _token(self) -> Token | None:
        """Mostly the latest grant's; a zombie's now and then."""
        if not self._grants or self._rng.random() < 0.05:
            return None
        done = [asked for asked, attempt in self._installs[-8:] if self._answer(attempt) is not None]
        latest = max(done or self._grants, key=lambda grant: grant.grant_index)
        grant = latest if self._rng.random() < 0.85 else self._rng.choice(self._grants)
        return Token(grant.grant_id, grant.epoch, grant.session)

    def _stamped(self) -> partition.Command:
        """The next batch of a producer if its last one is stored; otherwise that one again, with today's token."""
        pid = self._rng.choice(PIDS)
        batch = self._under_way.get(pid)
        answers = [self._answer(attempt) for attempt in self._attempts[pid]]
        if any(isinstance(answer, NotEnrolled) for answer in answers):
            self._attempts[pid].clear()
            return InstallProducer(pid, self._epochs[pid])
        stamp = Stamp(pid, self._epochs[pid], 0)
        if batch is not None and batch.stamp is not None and batch.stamp.epoch == stamp.epoch:
            expected = [each.fields["expected_seq"] for each in answers if isinstance(each, OutOfOrderSequence)]
            is_stored = any(isinstance(answer, Appended) for answer in answers)
            if not (is_stored or expected or self._rng.random() < 0.05):
                return msgspec.structs.replace(batch, token=self._token())
            next_seq = expected[-1] if expected and not is_stored else batch.stamp.first_seq + batch.count
            stamp = Stamp(pid, self._epochs[pid], next_seq)
        self._attempts[pid].clear()
        fresh = self._under_way[pid] = self._append(stamp)
        self._old.append(fresh)
        return fresh

    def _plain(self) -> Append:
        return self._append(None, self._rng.choice([None, None, self._rng.randint(0, 60)]))

    def _old_batch(self) -> partition.Command:
        """A batch that was sent before, with the token that it had then."""
        recent = self._old[-6:] if self._rng.random() < 0.8 else self._old
        return self._rng.choice(recent) if recent else self._plain()

    def _install(self) -> InstallFence:
        """A new grant, or the latest one or an older one again."""
        if self._grants and self._rng.random() < 0.8:
            return self._grants[-1] if self._rng.random() < 0.8 else self._rng.choice(self._grants)
        number = len(self._grants) + 1
        grant = InstallFence(f"g-{TOPIC_ID}-{number}", number, f"s{number}", "name", "Exclusive", number)
        self._grants.append(grant)
        return grant

    def _clear(self) -> partition.Command:
        if not self._grants:
            return self._install()
        grant = self._rng.choice(self._grants[-2:])
        return ClearFence(grant.grant_id, grant.epoch, grant.grant_index)

    def _enrol(self) -> InstallProducer:
        """A producer is made known, or a new epoch of it, in which it numbers anew."""
        pid = self._rng.choice(PIDS)
        if self._rng.random() < 0.1:
            self._epochs[pid] += 1
        return InstallProducer(pid, self._epochs[pid])


class ControllerLoad:
    """Commands for the controller."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._sessions = [f"s{number}" for number in range(4)]

    def command(self, now_ms: int) -> controller.Command:
        rng = self._rng
        session, topic = rng.choice(self._sessions), rng.choice(["t", "u"])
        mode = rng.choice(["Exclusive", "WaitForExclusive", "ExclusiveWithFencing"])
        kinds: list[controller.Command] = [
            controller.OpenSession(now_ms=now_ms, session=session, client_id="c", ttl_ms=10_000),
            controller.RenewSession(now_ms=now_ms, session=session),
            controller.CloseSession(now_ms=now_ms, session=session),
            controller.Acquire(
                now_ms=now_ms, session=session, topic=topic, partitions=[0], mode=mode, producer_name="p"
            ),
            controller.CreateTopic(
                now_ms=now_ms, name=topic, partitions=2, replication_factor=None, config=TopicConfig(), nodes=NODES
            ),
            controller.DeleteTopic(now_ms=now_ms, name=topic),
            controller.Tick(now_ms=now_ms),
        ]
        return rng.choices(kinds, (4, 3, 1, 6, 3, 1, 1))[0]


class RealLoad:
    """Makes proposals for a world of real machines, and knows what was acknowledged before each."""

    def __init__(self, world: RealWorld, rng: random.Random) -> None:
        self._world = world
        self._partition = PartitionLoad(rng, self._answer)
        self._controller = ControllerLoad(rng)
        self._numbers = count()
        self._decisions: list[tuple[Attempt, int]] = []
        self._floor = 0

    def propose(self, process: Process, group_id: int, timeout_s: float) -> Attempt:
        if group_id == PARTITION:
            asked = self._partition.command()
            body = partition.encode_command(asked)
        else:
            asked = None
            body = controller.encode_command(self._controller.command(int(self._world.now * 1000)))
        command = b"%d" % next(self._numbers) + MARK + body
        self._world.floors[command] = self._lowest_epoch()
        attempt = self._world.checker.propose(process, group_id, command, timeout_s)
        if asked is not None:
            self._partition.proposed(asked, attempt)
        if isinstance(asked, InstallFence | ClearFence):
            self._decisions.append((attempt, asked.epoch + isinstance(asked, ClearFence)))
        return attempt

    def _answer(self, attempt: Attempt) -> object:
        if not isinstance(attempt.outcome, Committed):
            return None
        return self._world.results[attempt.group_id, attempt.payload]

    def _lowest_epoch(self) -> int:
        """The lowest epoch that may write: it is acknowledged that a lower one was replaced, or cleared."""
        waiting = []
        for attempt, epoch in self._decisions:
            if isinstance(attempt.outcome, Committed):
                self._floor = max(self._floor, epoch)
            elif attempt.outcome is None:
                waiting.append((attempt, epoch))
        self._decisions = waiting
        return self._floor
