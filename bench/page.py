"""The page docs/benchmarks.md: conditions, tables, and sentences about the figures. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from figures import Quartiles, Sample, paired_ratio, quartiles
from plot import plot
from runner import Results
from systems.common import System
from workloads import BY_NAME, WORKLOADS, Cell, Options, Workload

OURS = "stockade"
ASSETS = "assets"
PLOTTED = ("requests", "producer")
"""Workloads over several numbers of partitions."""


class Machine(NamedTuple):
    """Where and when it was measured. ``loads``: load averages of the machine when the run began and ended."""

    when: str
    processor: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    file_system: str
    sync_ms: Quartiles
    loads: tuple[float, float]


def written(
    machine: Machine, options: Options, systems: Mapping[str, System], results: Results, command: str
) -> dict[str, str]:
    """The page and its pictures: the content of each file, by its path below docs/."""
    report = Report(systems, results)
    files = {f"{ASSETS}/benchmark-{name}.svg": report.picture(BY_NAME[name]) for name in PLOTTED if report.has(name)}
    parts = [
        _HEAD.format(command=command),
        _conditions(machine, options),
        report.systems_table(options),
        *(() if is_busy(machine) else report.comparisons()),
        *(report.section(workload) for workload in WORKLOADS if report.has(workload.name)),
        report.many_partitions(),
        report.fencing(),
        "## What failed\n\n" + bullets(f"{name}: {reason}" for name, reason in results.reasons.items()),
        _TAIL,
    ]
    return {"benchmarks.md": "\n".join(part for part in parts if part)} | files


class Report:
    """Tables and sentences made of the samples."""

    def __init__(self, systems: Mapping[str, System], results: Results) -> None:
        self._systems = systems
        self._results = results

    def has(self, workload: str) -> bool:
        """Whether any cell of the workload was measured."""
        return any(self.quartiles(cell) for cell in self._cells(workload))

    def quartiles(self, cell: Cell) -> Quartiles | None:
        """The quartiles of the workload's figure over the rounds; None if no round has one."""
        values = [value for value in self._values(cell) if value is not None]
        return quartiles(values) if values else None

    def picture(self, workload: Workload) -> str:
        """The SVG of a workload: a line for each system over the number of partitions."""
        lines: dict[str, dict[int, Quartiles]] = {}
        for cell in self._cells(workload.name):
            if found := self.quartiles(cell):
                lines.setdefault(self._systems[cell.system].title, {})[cell.partitions] = found
        return plot(workload.title, workload.unit, lines)

    def systems_table(self, options: Options) -> str:
        """The table of the systems: versions, clients, and what an acknowledgement means."""
        rows = []
        for name in options.systems:
            system = self._systems[name]
            version = self._results.versions.get(name, f"**not measured**: {self._results.reasons.get(name, '')}")
            rows.append([system.title, version, system.client, system.sync])
        return "## What is compared\n\n" + table(["", "version", "client", "an answer means that the record is"], rows)

    def section(self, workload: Workload) -> str:
        """The text, picture and table of a workload."""
        rows = []
        for cell in self._cells(workload.name):
            if found := self.quartiles(cell):
                ratio = self._ratio(cell) if cell.system != OURS else None
                rows.append(
                    [
                        self._systems[cell.system].title,
                        str(cell.partitions),
                        number(found.median),
                        f"{number(found.low)} to {number(found.high)}",
                        number(self._median(cell, "server_us")),
                        number(self._median(cell, "client_us")),
                        f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" if ratio else "",
                    ]
                )
        heads = ["", "partitions", workload.unit, "quartiles", "µs of servers", "µs of client", "Stockade / it"]
        kept = [place for place in range(len(heads)) if any(row[place] not in {"", "-"} for row in rows)]
        body = table([heads[place] for place in kept], [[row[place] for place in kept] for row in rows])
        shown = f"![{workload.title}]({ASSETS}/benchmark-{workload.name}.svg)\n\n" if workload.name in PLOTTED else ""
        hint = "less is better" if workload.better == "less" else "more is better"
        return f"## {workload.title}\n\n{workload.text} In {workload.unit}: {hint}.\n\n{shown}{body}"

    def comparisons(self) -> Iterable[str]:
        """Sections: where a peer is better, where Stockade is, and where the rounds do not agree, if there are such."""
        for title, verdict in (("a peer is better", False), ("Stockade is better", True), ("rounds differ", None)):
            said = self._better(verdict)
            if said or verdict is not None:
                yield f"## Where {title}\n\n{bullets(said)}"

    def _better(self, verdict: bool | None) -> list[str]:
        """A sentence for each workload and peer: the figures with this verdict of ``_compared``."""
        found: dict[tuple[str, str], list[str]] = {}
        for cell, ours, is_ours in self._compared():
            if is_ours is verdict:
                workload, theirs, mine = BY_NAME[cell.workload], self._figure(cell), self._figure(ours)
                place = f" at {counted(ours.partitions)}" if workload.name in PLOTTED else ""
                said = f"{theirs} against Stockade's {mine}{place}"
                head = f"{workload.title} ({workload.unit})"
                found.setdefault((head, self._systems[cell.system].title), []).append(said)
        return [f"{head}, **{peer}**: {'; '.join(said)}" for (head, peer), said in found.items()]

    def many_partitions(self) -> str:
        """The ratios of Stockade's figures to those at one partition in the same rounds; "" if there are none."""
        rows = []
        for name in PLOTTED:
            one = Cell(name, OURS, 1)
            for cell in self._cells(name):
                ratio = paired_ratio(self._values(cell), self._values(one)) if cell.system == OURS else None
                if ratio and cell.partitions > 1:
                    spread = f"{ratio.low:.2f} to {ratio.high:.2f}"
                    rows.append([BY_NAME[name].title, str(cell.partitions), f"{ratio.median:.2f}", spread])
        if not rows:
            return ""
        return "## Stockade: many partitions beside one\n\n" + table(["", "partitions", "ratio", "quartiles"], rows)

    def fencing(self) -> str:
        """The cost of a fence and a sequence number, as the ratio of two rates; "" if it was not measured."""
        ratio = paired_ratio(self._values(Cell("fenced", OURS, 1)), self._values(Cell("requests", OURS, 1)))
        if ratio is None:
            return ""
        return (
            "## Stockade: fenced and numbered beside plain\n\nAppends with a fence and a sequence number have "
            f"**{ratio.median:.2f}** of the rate of plain ones ({ratio.low:.2f} to {ratio.high:.2f}).\n"
        )

    def _cells(self, workload: str) -> list[Cell]:
        order = list(self._systems)
        found = [cell for cell in self._results.samples if cell.workload == workload]
        return sorted(found, key=lambda cell: (order.index(cell.system), cell.partitions))

    def _values(self, cell: Cell) -> list[float | None]:
        samples = self._results.samples.get(cell, [None] * self._results.rounds)
        return [figure_of(sample, BY_NAME[cell.workload].figure) for sample in samples]

    def _median(self, cell: Cell, figure: str) -> float | None:
        values = [figure_of(sample, figure) for sample in self._results.samples[cell]]
        there = [value for value in values if value is not None]
        return quartiles(there).median if there else None

    def _ratio(self, cell: Cell) -> Quartiles | None:
        return paired_ratio(self._values(cell._replace(system=OURS)), self._values(cell))

    def _compared(self) -> list[tuple[Cell, Cell, bool | None]]:
        """Each peer's cell, Stockade's, and whether Stockade's is better; None: 1 lies between the quartiles of the
        rounds' ratios, so that another run may say the opposite.
        """
        found = list[tuple[Cell, Cell, bool | None]]()
        for workload in WORKLOADS:
            for ours in self._cells(workload.name):
                peers = [cell for cell in self._cells(workload.name) if cell.system != OURS]
                for cell in peers if ours.system == OURS else ():
                    alone = len({each.partitions for each in peers if each.system == cell.system}) == 1
                    ratio = paired_ratio(self._values(ours), self._values(cell))
                    if ratio and (cell.partitions == ours.partitions or alone):
                        differ = ratio.low < 1 < ratio.high
                        is_ours = None if differ else (ratio.median >= 1) == (workload.better == "more")
                        found.append((cell, ours, is_ours))
        return found

    def _figure(self, cell: Cell) -> str:
        return number(self._median(cell, BY_NAME[cell.workload].figure))


def is_busy(machine: Machine) -> bool:
    """Whether other programs took more than half of its cores just before the run."""
    return machine.loads[0] > machine.cores / 2


def figure_of(sample: Sample | None, figure: str) -> float | None:
    """A figure by name; None if it was not measured."""
    value = None if sample is None else sample._asdict()[figure]
    return None if value is None else float(value)


def counted(partitions: int) -> str:
    """A number of partitions, with its noun."""
    return f"{partitions} partition{'s' * (partitions > 1)}"


def number(value: float | None) -> str:
    """A figure with three digits, or, from 100 on, as a whole number with commas; "-" for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *lines]) + "\n"


def bullets(sentences: Iterable[str]) -> str:
    """A Markdown list; "Nothing." without sentences."""
    return (
        "\n".join(f"- {sentence}" for sentence in sentences) + "\n" if (sentences := list(sentences)) else "Nothing.\n"
    )


def _conditions(machine: Machine, options: Options) -> str:
    before, after = machine.loads
    busy = (
        f" **The machine was busy with other things (load average {before:.1f} before, {after:.1f} at the end): rates "
        "and latencies of this run are no measure of any system, and processor time is a rough one. So this page does "
        "not say which system is better: run it again on a quiet machine.**"
    )
    sync = machine.sync_ms
    return (
        "## Conditions\n\n"
        f"{machine.when}; {machine.processor}, {machine.cores} cores for three nodes *and* the client, "
        f"{machine.memory_gib:.0f} GiB, Linux {machine.kernel}, Python {machine.python}. Disk: {machine.file_system}; "
        f"an append of 4 KiB and its fdatasync take {sync.median:.2f} ms ({sync.low:.2f} to {sync.high:.2f}). "
        f"{options.rounds} round{'s' * (options.rounds > 1)}, loads of {options.seconds:g} s."
        f"{busy if is_busy(machine) else f' Load average before: {before:.1f}.'}\n"
    )


_HEAD = """\
# Benchmarks

<!-- Written by `make bench`: change bench/page.py, not this page. -->

Stockade beside its peers, three nodes each, on one machine. The command that wrote this page repeats it:

```text
{command}
```

It finds or installs the peers below `.tools/peers`, runs everything, and writes this page; `make bench ROUNDS=1
SECONDS=2` is a short run, `PEERS=etcd,kafka` and `ONLY=producer` measure less. The run leaves its samples in
`bench/results`, and `AGAIN=<one of these files>` only writes its page again.

**A measurement** is one load for some seconds, after one that warms up. The clock runs from when all connections are
there, each with its first request answered where a request has one record, until the last record is acknowledged; *µs
of servers* is the processor time that all nodes took for a record meanwhile, and says more than the rate where other
things run on the machine. **Systems take turns**, and only one runs at a time: three nodes start on empty folders,
are measured, and stop, and what they have not written back is written back before the next one. A round has a turn of
each. Figures are medians of the rounds with their quartiles; *Stockade / it* is the median of the rounds' ratios.
"""

_TAIL = """\
## How to read it

All nodes and the client share the cores of one machine, and its one disk: what costs processor time shows, what costs
network does not. A system that answers before the disks have the record does less; the rows that sync compare like
with like. Kafka is under load for a while before its first figure of each turn, so that its JVMs have compiled what
they run. etcd has one Raft group for everything; its one row stands beside each number of partitions. What the
systems offer besides is in [Compared with others](comparison.md).
"""
