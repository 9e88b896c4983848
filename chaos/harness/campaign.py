"""A run of chaos: rounds of workloads under faults, each read back and judged before the next one begins.

A round has a seed of its own, so it can be had again without those before it: round k of seed S is round 1 of seed
S + k - 1. What a seed decides: which faults strike when, and every choice of the actors. What it cannot decide: how the
processes of the machine are scheduled, and with it who is found leading, what an actor sees, and where a strike falls
between two steps of the cluster.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ..partition.errors import StockadeError
from .arena import RunningArena
from .evidence import ReplicaLog
from .fault import Fault
from .faults.catalogue import CATALOGUE, DESTRUCTIVE
from .history import History
from .judging import Extent, Judgement, judge_events
from .round import ROUND_S_MIN, Round, RoundOver
from .schedule import schedule
from .tables import LOGS_SCHEMA, TableWriter, log_table
from .waiting import NotInTime
from .workloads.catalogue import WORKLOADS


class Options(msgspec.Struct, frozen=True):
    """What to run."""

    workloads: list[str]
    faults: list[str]
    """Faults that are drawn from."""
    seed: int
    seconds: float
    round_s: float = 60.0
    """How long the faults of a round last; reading back and judging come on top."""
    always: list[str] = []
    """Faults that strike in every round, because a workload shows nothing without them."""
    apart_s: float = 0.0
    """One strike at a time, and so long between them; 0: they may overlap."""

    @property
    def rounds(self) -> int:
        """How many rounds fit."""
        return max(1, round(self.seconds / max(self.round_s, ROUND_S_MIN)))

    @property
    def faults_s(self) -> float:
        """Of one round."""
        return min(self.round_s, max(self.seconds, ROUND_S_MIN))


class Status:
    """What is going on now, for whoever shows it."""

    def __init__(self, history: History, rounds: int) -> None:
        self.history = history
        self.rounds = rounds
        self.round = 0
        self.doing = "starting"
        self.broken: Callable[[], Sequence[str]] = lambda: ()
        self.judged: Judgement = Judgement()
        """Over all rounds that are over."""


class Outcome(msgspec.Struct, frozen=True):
    """Everything about a run that is over."""

    judged: Judgement
    rounds: Sequence[RoundOver]
    extents: Sequence[Extent]
    seconds: float

    @property
    def failures(self) -> list[str]:
        """What the harness could not do as it should, each once."""
        return [f"round {over.seed}: {failure}" for over in self.rounds for failure in over.failures]


def possible(arena: RunningArena, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Which of these faults can strike this cluster, and why the others cannot."""
    reasons = {name: CATALOGUE[name].why_not(arena) for name in names}
    return [name for name, why in reasons.items() if why is None], {n: why for n, why in reasons.items() if why}


async def run(options: Options, arena: RunningArena, history: History, status: Status, folder: Path) -> Outcome:
    """Run all rounds; every replica's log goes to ``logs.parquet`` in ``folder``.

    A round that cannot be carried out has no verdict, only a failure: it could not begin, or its nodes did not answer.
    """
    began_s = time.monotonic()
    overs: list[RoundOver] = []
    extents: list[Extent] = []
    with TableWriter(folder / "logs.parquet", LOGS_SCHEMA) as table:
        for number in range(options.rounds):
            status.round = number + 1
            try:
                over, logs = await _round(options, options.seed + number, arena, history, status)
            except (NotInTime, StockadeError) as error:
                overs.append(_given_up(options.seed + number, error))
                history.take()
                continue
            overs.append(over)
            for (topic, _), replicas in sorted(logs.items()):
                for log in replicas:
                    table.add(log_table(topic, log))
                    extents.append(Extent(topic, log.partition, log.node, log.log_start, log.log_end))
            status.doing = "judging"
            status.judged = status.judged.plus(await asyncio.to_thread(judge_events, history.take(), logs))
            history.flush()
            if over.lost:
                break
    return Outcome(status.judged, overs, extents, time.monotonic() - began_s)


def _given_up(seed: int, error: Exception) -> RoundOver:
    return RoundOver(seed, 0, 0.0, [f"could not be carried out: {type(error).__name__}: {error}"])


async def _round(
    options: Options, seed: int, arena: RunningArena, history: History, status: Status
) -> tuple[RoundOver, Mapping[tuple[str, int], Sequence[ReplicaLog]]]:
    plan = schedule(seed, options.faults, options.faults_s, options.always, DESTRUCTIVE, options.apart_s)
    workloads = [WORKLOADS[name] for name in options.workloads]
    faults: Mapping[str, Fault] = CATALOGUE
    history.note("nemesis", "round", value=str(seed))
    current = Round(seed, workloads, arena, history, faults)
    status.broken = current.broken
    return await current.run(plan, options.faults_s, lambda doing: setattr(status, "doing", doing))
