"""A run of chaos: rounds of workloads under faults, each read back and judged before the next one begins.

Each round has a seed of its own, so that it can be repeated alone: round k of seed S is round 1 of seed S + k - 1. The
seed decides which faults strike when, and every choice of the actors. It does not decide how the machine schedules
processes, and so neither which node leads, nor what an actor sees, nor between which steps of the cluster a fault
comes.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ...partition.errors import StockadeError
from ..faults.catalogue import CATALOGUE, DESTRUCTIVE
from ..faults.fault import Fault
from ..history.evidence import ReplicaLog
from ..history.history import History
from ..history.tables import LOGS_SCHEMA, TableWriter, log_table
from ..system.waiting import NotInTime
from ..workloads.catalogue import WORKLOADS
from .judging import Extent, Judgement, judge_events
from .round import ROUND_S_MIN, Round, RoundOver, RunningArena
from .schedule import Planned, schedule


class Options(msgspec.Struct, frozen=True):
    """The options of a run."""

    workloads: list[str]
    faults: list[str]
    """Faults from which the schedule chooses."""
    seed: int
    seconds: float
    round_s: float = 60.0
    """Seconds of faults in a round; reading back and judging come on top."""
    always: list[str] = []
    """Faults that strike in every round that is long enough, because a workload tests nothing without them."""
    apart_s: float = 0.0
    """Seconds between strikes, which then come one at a time; 0: strikes may overlap."""

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return max(1, round(self.seconds / max(self.round_s, ROUND_S_MIN)))

    @property
    def faults_s(self) -> float:
        """Seconds of faults in one round."""
        return min(self.round_s, max(self.seconds, ROUND_S_MIN))

    def plan(self, seed: int) -> list[Planned]:
        """The strikes in the round of ``seed``."""
        return schedule(seed, self.faults, self.faults_s, self.always, DESTRUCTIVE, self.apart_s)

    @property
    def strikes(self) -> int:
        """The number of strikes in all rounds, if all find a target."""
        return sum(len(self.plan(self.seed + number)) for number in range(self.rounds))


class Status:
    """The present state of a run, for display."""

    def __init__(self, history: History, rounds: int) -> None:
        self.history = history
        self.rounds = rounds
        self.round = 0
        self.doing = "starting"
        self.broken: Callable[[], Sequence[str]] = lambda: ()
        self.judged: Judgement = Judgement()
        """The judgement over all finished rounds."""


class Outcome(msgspec.Struct, frozen=True):
    """The result of a run."""

    judged: Judgement
    rounds: Sequence[RoundOver]
    extents: Sequence[Extent]
    seconds: float

    @property
    def failures(self) -> list[str]:
        """Failures of the harness itself, by round."""
        return [f"round {over.seed}: {failure}" for over in self.rounds for failure in over.failures]

    @property
    def never_struck(self) -> list[str]:
        """Faults that had no target at any of their turns, and those of ``Options.always`` that had no turn: the run
        says nothing about them.
        """
        struck = {fault for over in self.rounds for fault in over.struck}
        reasons = {fault: why for over in self.rounds for fault, why in over.skipped.items() if fault not in struck}
        return [f"{fault} never struck: {why}" for fault, why in sorted(reasons.items())]


def possible(arena: RunningArena, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The faults of ``names`` that can strike this cluster, and for each other one the reason why it cannot."""
    reasons = {name: CATALOGUE[name].why_not(arena) for name in names}
    return [name for name, why in reasons.items() if why is None], {n: why for n, why in reasons.items() if why}


async def run(options: Options, arena: RunningArena, history: History, status: Status, folder: Path) -> Outcome:
    """Run all rounds; every replica's log goes to ``logs.parquet`` in ``folder``.

    A round that could not start, or whose nodes did not answer, has a failure in place of a verdict.
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
    return RoundOver(seed, 0, None, [f"could not be carried out: {type(error).__name__}: {error}"])


async def _round(
    options: Options, seed: int, arena: RunningArena, history: History, status: Status
) -> tuple[RoundOver, Mapping[tuple[str, int], Sequence[ReplicaLog]]]:
    plan = options.plan(seed)
    workloads = [WORKLOADS[name] for name in options.workloads]
    faults: Mapping[str, Fault] = CATALOGUE
    history.note("nemesis", "round", value=str(seed))
    current = Round(seed, workloads, arena, history, faults)
    status.broken = current.broken
    over, logs = await current.run(plan, options.faults_s, lambda doing: setattr(status, "doing", doing))
    no_time = f"the rounds, of {options.faults_s:g} s, have no time for it"
    unplanned = dict.fromkeys(set(options.always).difference(planned.fault for planned in plan), no_time)
    return msgspec.structs.replace(over, skipped={**unplanned, **over.skipped}), logs
