"""The workloads that are measured, the options of a run, and the order of its turns. Pure."""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

COUNTS = (1, 16, 64, 256)
"""Partitions that a load is spread over."""
IDLE_PARTITIONS = 256
IN_FLIGHT = 256
SIZES = {"producer": 1024, "small": 100}
"""Bytes of a record's value, by the workloads of producers."""


class Workload(NamedTuple):
    """One workload. ``figure``: the field of `figures.Sample` that counts; ``better``: "more" or "less" of it."""

    name: str
    title: str
    unit: str
    figure: str
    better: str
    text: str


WORKLOADS = (
    Workload(
        "idle",
        f"Idle, with {IDLE_PARTITIONS} partitions",
        "% of a core, a node",
        "core_percent",
        "less",
        "No client is there. Processor time of an average node.",
    ),
    Workload(
        "latency",
        "One in flight, one record a request",
        "ms, p50",
        "p50_ms",
        "less",
        "One connection to the leader, each request with one record of 1 KiB, sent when the one before is answered.",
    ),
    Workload(
        "requests",
        f"One record a request, {IN_FLIGHT} in flight",
        "records/s",
        "per_s",
        "more",
        f"{IN_FLIGHT} connections with one request in flight each, straight to the leader of their partition; "
        "records of 1 KiB.",
    ),
    Workload(
        "fenced",
        f"Fenced and numbered, one record a request, {IN_FLIGHT} in flight",
        "records/s",
        "per_s",
        "more",
        "The same, under a grant and with sequence numbers, to one partition.",
    ),
    Workload(
        "producer",
        "Producers",
        "records/s",
        "per_s",
        "more",
        "One producer with the defaults of its client sends records of 1 KiB, record i to partition i modulo their "
        "number, as fast as it can; a record counts when it is acknowledged.",
    ),
    Workload(
        "small",
        "Producers, small records",
        "records/s",
        "per_s",
        "more",
        "The same with records of 100 bytes, to one partition.",
    ),
    Workload(
        "consumer",
        "Consumers",
        "records/s",
        "per_s",
        "more",
        "One consumer with the defaults of its client reads records back from one partition.",
    ),
    Workload(
        "arrow",
        "A consumer of Arrow batches",
        "records/s",
        "per_s",
        "more",
        "The same, with `Consumer.pieces`: batches as they are stored, without an object for each record.",
    ),
)
"""The workloads, in the order in which they are measured for each number of partitions."""

BY_NAME: Mapping[str, Workload] = {workload.name: workload for workload in WORKLOADS}


class Cell(NamedTuple):
    """One figure of a table: a workload, a system, a number of partitions."""

    workload: str
    system: str
    partitions: int


@dataclass(frozen=True)
class Options:
    """A run: so many ``rounds`` in which each system has a turn, and loads of so many ``seconds``."""

    rounds: int = 5
    seconds: float = 3.0
    systems: tuple[str, ...] = ()
    """Names, in the order of the tables; the first one is what others are compared with."""
    only: tuple[str, ...] = tuple(BY_NAME)
    counts: tuple[int, ...] = COUNTS
    again: str = ""
    """File with the record of a run: then nothing is measured, and its page is written again."""

    @property
    def warm_up_s(self) -> float:
        """Seconds of the load that warms up, before each load that counts."""
        return min(1.0, self.seconds)

    @property
    def turn_warm_up_s(self) -> float:
        """Seconds of the load that warms up a system whose code is compiled while it runs, at the start of its turn."""
        return 5 * self.seconds

    @property
    def idle_s(self) -> float:
        """How long the nodes are watched when idle: a quiescent group of Stockade sends a message each 10 to 18 s."""
        return min(60.0, 20 * self.seconds)

    @property
    def read_count(self) -> int:
        """Records that a consumer reads: some seconds' worth."""
        return int(50_000 * self.seconds)


def parsed(arguments: Sequence[str] | None, peers: Sequence[str]) -> Options:
    """The options of the command line. ``peers``: the names of all other systems."""
    parser = argparse.ArgumentParser(
        prog="python bench/main.py", description="Stockade beside its peers; writes docs/benchmarks.md."
    )
    parser.add_argument("--rounds", type=int, default=5, help="in which each system has a turn (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load (3)")
    parser.add_argument("--peers", default=",".join(peers), help=f"some of {','.join(peers)}, or none; all by default")
    parser.add_argument("--only", default=",".join(BY_NAME), help=f"some of {','.join(BY_NAME)}; all by default")
    parser.add_argument("--partitions", default=",".join(map(str, COUNTS)), help="numbers of partitions (1,16,64,256)")
    parser.add_argument("--again", default="", help="a file of bench/results: only write its page again")
    chosen = parser.parse_args(arguments)
    names = _listed(parser, "--peers", chosen.peers, peers)
    counts = _listed(parser, "--partitions", chosen.partitions, list(map(str, COUNTS)))
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error("--rounds: at least 1; --seconds: more than 0")
    only = _listed(parser, "--only", chosen.only, list(BY_NAME))
    return Options(chosen.rounds, chosen.seconds, ("stockade", *names), only, tuple(map(int, counts)), chosen.again)


def command_line(options: Options, peers: Sequence[str]) -> str:
    """The command that repeats a run: ``make bench`` with the options that are not the defaults."""
    default = Options()
    chosen = [name for name in options.systems if name in peers]
    given = {
        "ROUNDS": str(options.rounds) if options.rounds != default.rounds else "",
        "SECONDS": f"{options.seconds:g}" if options.seconds != default.seconds else "",
        "PEERS": (",".join(chosen) or "none") if chosen != list(peers) else "",
        "ONLY": ",".join(options.only) if options.only != default.only else "",
        "PARTITIONS": ",".join(map(str, options.counts)) if options.counts != default.counts else "",
    }
    return " ".join(["make bench", *(f"{name}={value}" for name, value in given.items() if value)])


def _listed(parser: argparse.ArgumentParser, option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The parts of a list with commas, in the order of ``known``; "none" is the empty list."""
    wanted = [] if text == "none" else text.split(",")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        parser.error(f"{option}: no {', '.join(unknown)}; there are {', '.join(known)}")
    return tuple(name for name in known if name in wanted)


def turns(rounds: int, systems: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Each system once a round; each round begins with another one, so that no system is always the first."""
    for number in range(rounds):
        first = number % len(systems) if systems else 0
        for name in (*systems[first:], *systems[:first]):
            yield number, name


def cells_of(system: str, able: Mapping[str, Iterable[int]], options: Options) -> list[Cell]:
    """The cells of a turn of a system, in the order of their measurement: the fewest partitions first. ``able``: the
    numbers of partitions with which the system can be measured, by workload.
    """
    cells = [
        Cell(workload.name, system, count)
        for workload in WORKLOADS
        if workload.name in options.only
        for count in able.get(workload.name, ())
        if count in options.counts
    ]
    return sorted(cells, key=lambda cell: cell.partitions)
