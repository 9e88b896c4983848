"""One history of a sink: drivers of one query that die, wake up again and get in each other's way, until every batch is
committed; then the topics must have each row once, in the order that was decided.
"""

import json
import random
from collections import Counter
from collections.abc import Callable

from stockade.spark.sink.committer import SinkCommitter
from stockade.spark.sink.history import Piece
from stockade.spark.sink.store import CheckpointWentBack, SinkRefused, StageLost

from .sink_world import Actor, Died, ModelStore, Turns, World

TOPIC, PARTITIONS, SINK = "out", 3, "s"
BATCHES = 5
RUNS_MAX = 200

Committers = Callable[[ModelStore, str, str, str], SinkCommitter]


class Wrong(AssertionError):
    """The history is not exact."""


class History:
    """``committer`` makes committers of (store, sink, query, run); ``tallies`` counts what happened."""

    def __init__(self, seed: int, committer: Committers = SinkCommitter) -> None:
        self.chance = random.Random(seed)
        self.world = World(self.chance, {TOPIC: PARTITIONS})
        self.tallies: Counter[str] = Counter()
        self._committer = committer
        self._turns = Turns()
        self._actors: list[Actor] = []
        self._committed = 0  # Spark's commit log
        self._runs = 0
        self._batches = [[b"%d:%d" % (b, i) for i in range(self.chance.randrange(8))] for b in range(BATCHES)]

    def play(self) -> None:
        """Raises Wrong."""
        try:
            while self._committed < BATCHES:
                self._step()
                if self._runs > RUNS_MAX:
                    raise Wrong(f"nothing is committed after {RUNS_MAX} runs")
            for _ in range(self.chance.randrange(60)):  # for the actors that are left
                self._step(may_start=False)
        finally:
            self._end()
        self.world.settle()
        self._check()

    def _step(self, *, may_start: bool = True) -> None:
        self._actors = [actor for actor in self._actors if not self._is_over(actor)]
        if may_start and (not self._actors or self.chance.random() < 0.01):
            self._start()
        self.world.happen()
        awake = [actor for actor in self._actors if actor.sleeps == 0]
        for actor in self._actors:
            actor.sleeps = max(0, actor.sleeps - 1)
        if awake:
            actor = self.chance.choice(awake)
            if len(self._actors) > 1 and self.chance.random() < 0.05:
                actor.sleeps = self.chance.randrange(100)
            self._turns.go(actor)

    def _start(self) -> None:
        """A driver begins with what the checkpoint has, or with an older copy of it."""
        start = self._committed
        if self.chance.random() < 0.05:
            start = self.chance.randrange(start + 1)
            self.tallies["old checkpoints"] += start < self._committed
        self._runs += 1
        run = f"run-{self._runs}"
        self.tallies["runs"] += 1
        p_die = self.chance.choice((0.0, 0.01, 0.04, 0.1))
        self._actors.append(Actor(self._turns, lambda actor: self._live(actor, run, start, p_die)))

    def _live(self, actor: Actor, run: str, start: int, p_die: float) -> None:
        store = ModelStore(self.world, actor, p_die)
        for batch in range(start, BATCHES):
            pieces = self._stage(store, run, batch)
            if not self._committer(store, SINK, "q", run).commit(batch, pieces):
                self.tallies["decided by another"] += 1
            actor.step()
            self._committed = max(self._committed, batch + 1)

    def _stage(self, store: ModelStore, run: str, batch: int) -> list[Piece]:
        """What the tasks of a batch do: another order, other partitions, other tasks at each attempt."""
        rows = self._batches[batch][:]
        self.chance.shuffle(rows)
        tasks = self.chance.randint(1, 3)
        pieces = []
        for task in range(tasks):
            made: list[Piece] = []
            for attempt in range(1 + (self.chance.random() < 0.2)):  # the first one failed, after it had staged
                made = []
                for partition in range(PARTITIONS):
                    values = [row for row in rows[task::tasks] if self._partition(row, run) == partition]
                    name = f"{SINK}~{batch}~{task}~{attempt}~{run}~{partition}"
                    if values:
                        store.put_stage(TOPIC, partition, name, values)
                        made.append(Piece(TOPIC, partition, name, len(values)))
            pieces += made
        return pieces

    def _partition(self, row: bytes, run: str) -> int:
        return hash_of(row + run.encode()) % PARTITIONS

    def _is_over(self, actor: Actor) -> bool:
        if not actor.ended:
            return False
        error = actor.error
        self.tallies[type(error).__name__ if error else "ended or died"] += 1
        if error is not None and not isinstance(error, SinkRefused | StageLost):
            raise Wrong(f"{type(error).__name__}: {error}") from error
        if isinstance(error, CheckpointWentBack) and self._runs == 1:
            raise Wrong("a checkpoint went back that did not")
        return True

    def _end(self) -> None:
        for actor in self._actors:
            actor.doomed = True
            while not actor.ended:
                self._turns.go(actor)

    def _check(self) -> None:
        self.world.check()
        logs = [self.world.values((TOPIC, partition)) for partition in range(PARTITIONS)]
        got = Counter(row for log in logs for row in log)
        want = Counter(row for rows in self._batches for row in rows)
        if got != want:
            raise Wrong(f"lost {sorted(want - got)}, doubled {sorted(got - want)}")
        manifests = [record for record in map(json.loads, self.world.appended) if record["kind"] == "manifest"]
        if [each["batch"] for each in manifests] != sorted({each["batch"] for each in manifests}):
            raise Wrong("a batch was decided twice, or too late")
        for partition, log in enumerate(logs):
            pieces = [Piece(*piece) for each in manifests for piece in each["pieces"]]
            ordered = [self.world.staged[piece.stage] for piece in pieces if piece.partition == partition]
            if log != [row for rows in ordered for row in rows]:
                raise Wrong(f"partition {partition} is not in the order that was decided")


def hash_of(data: bytes) -> int:
    """A number that is the same in every process."""
    return random.Random(data).randrange(1 << 30)


__all__ = ["Died", "History", "Wrong"]
