"""Carries a run out: systems take turns, one at a time; each load is a process of its own.

A turn is: three nodes start on an empty folder; for each figure a topic is made, loaded and removed; the nodes stop,
and the pages that the kernel has not written back are written back. So no system's memory, processor time or unwritten
pages affect another's figures. A measurement that fails costs its own figures only, and the page gives the reason.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from figures import Load, Sample, sample_of
from processor import processor_s
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from setup_tools import CannotHave
from systems.common import NODES, Failed, Running, System, last_line, loaded
from workloads import Cell, Options, cells_of, turns

SPARE_S = 120.0
"""Seconds that a load may take beyond its own: for its start, and the last acknowledgements."""
SETTLE_S = 5.0
"""Pause before the processor time of idle nodes is measured."""
WARM_UP_READ, WARM_UP_PARTITIONS = 1000, 16
READING = ("consumer", "arrow")
"""Workloads whose amount is a number of records to read, where it is seconds for the others."""


@dataclass
class Results:
    """Samples by cell and round; None where a measurement failed. ``reasons``: the first failure, by cell or system."""

    rounds: int
    samples: dict[Cell, list[Sample | None]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def put(self, number: int, cell: Cell, sample: Sample | None) -> None:
        """Keep the sample of round ``number``."""
        self.samples.setdefault(cell, [None] * self.rounds)[number] = sample


def prepare(systems: Mapping[str, System], options: Options, tell: Callable[[str], None]) -> Results:
    """Find or install what is to be measured; a system that cannot be had is left out, with the reason."""
    results = Results(options.rounds)
    for name in options.systems:
        tell(f"{systems[name].title}: looking for it, or installing it")
        try:
            results.versions[name] = systems[name].had()
        except CannotHave as error:
            results.reasons[name] = f"cannot be had: {error}"
            tell(f"{systems[name].title} {results.reasons[name]}")
    return results


def run(systems: Mapping[str, System], options: Options, results: Results) -> None:
    """Carry out all rounds. Ctrl-C ends them early; what was measured by then counts."""
    console = Console(stderr=True)
    plan = list(turns(options.rounds, list(results.versions)))
    cells = {name: cells_of(name, systems[name].workloads, options) for name in results.versions}
    total = sum(map(len, cells.values())) * options.rounds
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed} of {task.total}"))
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=total)

        def told(text: str, advance: int) -> None:
            bar.update(task, description=text, advance=advance)
            if not console.is_terminal and not advance:
                console.print(text)

        try:
            for number, name in plan:
                turn(systems[name], cells[name], options, results, number, told)
        except KeyboardInterrupt:
            console.print("interrupted: what was measured by now counts")


def turn(
    system: System,
    cells: Sequence[Cell],
    options: Options,
    results: Results,
    number: int,
    told: Callable[[str, int], None],
) -> None:
    """Carry out the turn of a system in round ``number``. If the system fails, the turn ends, with the reason."""
    if not cells:
        return
    title = f"round {number + 1} of {options.rounds}: {system.title}"
    told(title, 0)
    with tempfile.TemporaryDirectory(prefix="stockade-bench-", ignore_cleanup_errors=True) as folder:
        try:
            with system.start(Path(folder)) as running:
                if system.warms_up:
                    running.create(WARM_UP_PARTITIONS)
                    _load(running, Cell("producer", system.name, WARM_UP_PARTITIONS), options.turn_warm_up_s)
                    running.delete(WARM_UP_PARTITIONS)
                for cell in cells:
                    told(f"{title}, {cell.workload}, {cell.partitions}", 1)
                    running.create(cell.partitions)
                    _measure(running, cell, options, results, number)
                    running.delete(cell.partitions)
        except Exception as error:
            results.reasons.setdefault(system.name, f"round {number + 1}: {_reason(error)}")
    os.sync()


def _measure(running: Running, cell: Cell, options: Options, results: Results, number: int) -> None:
    try:
        sample = _idle(running, options) if cell.workload == "idle" else _loaded(running, cell, options)
    except Failed as error:
        results.reasons.setdefault(f"{cell.system}, {cell.workload}, {cell.partitions}", _reason(error))
        sample = None
    results.put(number, cell, sample)


def _idle(running: Running, options: Options) -> Sample:
    time.sleep(SETTLE_S)
    began, before_s = time.perf_counter(), processor_s(running.pids)
    time.sleep(options.idle_s)
    used_s, took_s = processor_s(running.pids) - before_s, time.perf_counter() - began
    return Sample(core_percent=used_s / took_s / NODES * 100)


def _loaded(running: Running, cell: Cell, options: Options) -> Sample:
    """The sample of a load, after one that warms up. Before a consumer's loads a producer fills the topic."""
    warm_up, amount = options.warm_up_s, options.seconds
    if cell.workload in READING:
        filled = _load(running, cell._replace(workload="producer"), options.seconds).count
        warm_up, amount = WARM_UP_READ, min(options.read_count, filled - 2 * WARM_UP_READ)
        if amount < 1:  # consumers of none, or fewer, would read all, or have a figure of 0
            raise Failed(f"the producer stored {filled:,} records; to read, more than {2 * WARM_UP_READ:,} are needed")
    _load(running, cell, warm_up)
    return sample_of(_load(running, cell, amount))


def _load(running: Running, cell: Cell, amount: float) -> Load:
    command = running.command(cell.workload, cell.partitions, amount)
    timeout_s = SPARE_S + (0 if cell.workload in READING else amount)
    return loaded(running.pids, command, timeout_s=timeout_s)


def _reason(error: Exception) -> str:
    return last_line(str(error) or repr(error))
