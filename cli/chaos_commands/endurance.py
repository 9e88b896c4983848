"""`stockade chaos endurance`: runs one cluster for hours or days under load and faults; its page shows leaks."""

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import click
import msgspec
import uvloop
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ...chaos.endurance.samples import Sample, sample
from ...chaos.endurance.steady import TOPIC, Steady
from ...chaos.endurance.trends import FAULTS_EVERY
from ...chaos.faults.catalogue import CATALOGUE
from ...chaos.harness.campaign import Options, Outcome, Status, possible
from ...chaos.harness.campaign import run as run_campaign
from ...chaos.harness.judging import Judgement
from ...chaos.harness.results import HISTORY, Summary
from ...chaos.history.history import Event, History
from ...chaos.history.observed import MARGIN_NS, Observed, Strike
from ...chaos.report.endurance import Endurance, judged, page, verdict
from ...chaos.system.disks import DiskFailed
from ...chaos.system.hosts import NetworkFailed
from ...chaos.system.proxies import ProxyError
from ...chaos.system.waiting import NotInTime
from ...chaos.workloads.catalogue import WORKLOADS
from ...cluster.build import commit
from ...partition.errors import StockadeError
from ...partition.version import VERSION
from ..local_cluster.cluster import ClusterFailed
from ..ui.exits import JUDGED, LOCAL, REFUSED
from ..ui.manual import Manual
from ..ui.output import stdout_console
from ..ui.parameters import Number, WholeNumber
from .arena import SETUPS, LocalArena, local_arena
from .results import show_verdicts
from .run import ALL, chosen

PAGE, SAMPLES, ROUND = "endurance.html", "samples.jsonl", "round"
SAMPLES_MAX = 20_000
"""Samples of a node at most, which bounds memory and page: a longer run takes samples less often."""
SAMPLE_S_MIN = 2.0
PAGE_S = 60.0
"""Seconds between two writings of the page."""
BACKUP_S = 60.0
BACKUP_TIMEOUT_S = 120
ROLLING = "rolling-restart"
HOURS_MAX = 24.0 * 31
_FAILED = (ClusterFailed, DiskFailed, NetworkFailed, ProxyError, NotInTime, StockadeError)


class FailedBackup(msgspec.Struct, frozen=True):
    """A backup that failed, from its beginning to its end (monotonic clock), and what it said last."""

    began_ns: int
    ended_ns: int
    why: str


class Course(msgspec.Struct):
    """The state of a run so far: samples, strikes, judgement and counters."""

    began_ns: int
    samples: list[Sample] = []
    strikes: list[Strike] = []
    judged: Judgement = msgspec.field(default_factory=Judgement)
    failures: list[str] = []
    kept: list[Path] = []
    """Folders of the rounds with a violation, or with a failure of the harness."""
    rounds: int = 0
    backups: int = 0
    failed_backups: list[FailedBackup] = []
    doing: str = "starting"

    def fault_of_backups(self) -> str:
        """What is wrong with the backups; "" if one was made, and strikes explain all failures, or if none was due."""
        failed = [each for each in self.failed_backups if not self._is_struck(each)]
        if not failed and (self.backups or not self.failed_backups):
            return ""
        why = (failed or self.failed_backups)[-1].why
        if not self.backups:
            return f"no backup was made, and {len(self.failed_backups)} failed: {why}"
        return (
            f"backups failed while no fault struck, {len(failed)} of {self.backups + len(self.failed_backups)}: {why}"
        )

    def _is_struck(self, failed: FailedBackup) -> bool:
        return any(
            each.at_ns <= failed.ended_ns and failed.began_ns <= each.healed_ns + MARGIN_NS for each in self.strikes
        )


@click.command(
    cls=Manual,
    short_help="Run one cluster for hours; see whether it leaks.",
    exits=LOCAL,
    means={**JUDGED, REFUSED: "A checker found a violation, or memory or descriptors grow."},
    examples=[
        ("A day, faults about every 40 minutes", "stockade chaos endurance --hours 24 --results endurance"),
    ],
)
@click.option("--hours", default=1.0, show_default=True, type=Number(0.01, HOURS_MAX), help="How long.")
@click.option("--nodes", default=3, show_default=True, type=WholeNumber(3, 9), help="Nodes of the cluster.")
@click.option(
    "--setup",
    default="processes",
    show_default=True,
    help=f"How the cluster is started: {', '.join(SETUPS)}. Those of soak allow more faults.",
)
@click.option("--seed", default=1, show_default=True, help="Seed of the first round; each further one has the next.")
@click.option("--round", "round_s", default=60.0, show_default=True, type=Number(10, 3600), help="Seconds of a round.")
@click.option(
    "--faults-every",
    default=FAULTS_EVERY,
    show_default=True,
    type=WholeNumber(1, 10_000),
    help="Faults strike in one of so many rounds, the last of them, and end processes; growth shows in the time "
    "between, without the first 15 minutes of each process.",
)
@click.option(
    "--results",
    default=Path("chaos-endurance"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the page, the samples, and the histories of rounds in which something was wrong.",
)
def endurance(
    hours: float, nodes: int, setup: str, seed: int, round_s: float, faults_every: int, results: Path
) -> None:
    """Run one cluster for HOURS: all workloads in rounds that are read back and judged, a topic with retention, a
    backup each minute, and in some rounds a rolling restart and all faults that the setup allows.

    RESULTS/endurance.html shows memory, descriptors, disk, latency, stalls and leaders of each node over time, and a
    line fitted to memory and descriptors: grows, does not grow, or cannot be told yet. It is written anew each minute.
    Ctrl-C ends the run after the round, with the page.
    """
    console = stdout_console()
    results.mkdir(parents=True, exist_ok=True)
    setups = chosen(dict.fromkeys(SETUPS), setup, "--setup")
    try:
        with ExitStack() as stack:
            scratch = tempfile.TemporaryDirectory(prefix="stockade-endurance-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(scratch))
            arena = stack.enter_context(local_arena(folder / "data", nodes, setups))
            run = Run(arena, setups, hours * 3600, round_s, faults_every, seed, folder, results)
            course = uvloop.run(run.watched(console))
    except _FAILED as error:
        console.print(f"[bold red]the run could not be carried out:[/] {error}", soft_wrap=True)
        sys.exit(2)
    sys.exit(_told(console, course, results))


def _told(console: Console, course: Course, results: Path) -> int:
    memory, descriptors = verdict(judged(course.samples))
    if fault := course.fault_of_backups():
        course.failures.append(fault)
    for failure in course.failures:
        console.print(f"[yellow]{escape(failure)}[/]", soft_wrap=True)
    console.print(
        f"{course.rounds} rounds, {course.judged.operations:,} operations checked, {len(course.strikes)} strikes"
    )
    if course.judged.violations:
        show_verdicts(console, course.judged.verdicts)
    console.print(f"{course.judged.violations} violations; memory: {memory}; descriptors: {descriptors}")
    console.print(f"page: {results / PAGE}", soft_wrap=True)
    for folder in course.kept:
        console.print(f"a round in which something was wrong: stockade chaos report {folder}", soft_wrap=True)
    if course.judged.violations or "grows" in (memory, descriptors):
        return 1
    return 2 if course.failures else 0


class Run:
    """A run of ``seconds`` over a ready cluster: rounds; beside them samples, a steady load, backups and the page."""

    def __init__(
        self,
        arena: LocalArena,
        setups: Sequence[str],
        seconds: float,
        round_s: float,
        faults_every: int,
        seed: int,
        scratch: Path,
        results: Path,
    ) -> None:
        self._arena = arena
        self._setups = setups
        self._seconds = seconds
        self._round_s = round_s
        self._every = faults_every
        self._seed = seed
        self._scratch = scratch
        self._results = results
        self._steady = Steady(arena.bootstrap)
        self._course = Course(time.monotonic_ns())
        self._stopping = asyncio.Event()

    async def watched(self, console: Console) -> Course:
        """Carry the run out, with a progress bar; returns its final state."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._stopping.set)
        beside = [self._sample(), self._steady.run(), self._back_up(), self._write_pages()]
        tasks = [asyncio.ensure_future(each) for each in beside]
        rounds = asyncio.ensure_future(self._rounds())
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        try:
            with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
                task = bar.add_task("", total=self._seconds)
                while not rounds.done():
                    bar.update(task, completed=self._passed_s, description=self._line())
                    await asyncio.wait([rounds, *tasks], timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                    for each in tasks:
                        if each.done():
                            each.result()  # raises: only a bug of the harness ends one of these tasks
            await rounds
        finally:
            for each in (rounds, *tasks):
                each.cancel()
            await asyncio.gather(rounds, *tasks, return_exceptions=True)
            loop.remove_signal_handler(signal.SIGINT)
            await self._arena.close()
            self._write_page(is_final=True)
        return self._course

    @property
    def _passed_s(self) -> float:
        return (time.monotonic_ns() - self._course.began_ns) / 1e9

    def _line(self) -> str:
        course = self._course
        found = f"{course.judged.violations} violations" if course.judged.violations else "no violation"
        return f"round {course.rounds + 1}: {course.doing}; {course.judged.operations:,} checked, {found}"

    async def _rounds(self) -> None:
        while self._passed_s + self._round_s / 2 < self._seconds and not self._stopping.is_set():
            number = self._course.rounds
            is_struck = number % self._every == self._every - 1
            folder = self._results / ROUND
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            outcome = await self._round(self._seed + number, folder, is_struck=is_struck)
            self._course.rounds += 1
            self._course.judged = self._course.judged.plus(outcome.judged)
            self._course.failures += outcome.failures
            if outcome.judged.violations or outcome.failures:
                kept = self._results / f"{ROUND}-{self._seed + number}"
                folder.rename(kept)
                self._course.kept.append(kept)
            if lost := {node for over in outcome.rounds for node in over.lost}:
                why = f"round {self._seed + number}: {', '.join(sorted(lost))} lost; there is no further round"
                self._course.failures.append(why)
                return
            await self._clean()

    async def _clean(self) -> None:
        """Delete topics that are left from a round that could not be carried out: they would look like a leak."""
        client = self._arena.client
        with suppress(StockadeError):  # the next round's end tries again
            for topic in await client.topics():
                if topic.name != TOPIC:
                    await client.delete_topic(topic.name)

    async def _round(self, seed: int, folder: Path, *, is_struck: bool) -> Outcome:
        """Run one round on the running cluster, with a history of its own: a history of days would fill a disk."""
        faults = possible(self._arena, chosen(CATALOGUE, ALL, "--faults"))[0] if is_struck else []
        always = possible(self._arena, [ROLLING])[0] if is_struck else []
        options = Options(chosen(WORKLOADS, ALL, "--workload"), faults, seed, self._round_s, self._round_s, always)
        path = folder / HISTORY
        with History.create(path) as history:
            status = _Told(history, self._course, is_struck=is_struck)
            outcome = await run_campaign(options, self._arena, history, status, folder)
        if outcome.judged.violations or outcome.failures:
            summary = Summary.of(options, self._setups, len(self._arena.nodes), outcome, dict(history.counts))
            await asyncio.to_thread(summary.write, folder)
        decoder = msgspec.json.Decoder(Event)
        with path.open("rb") as lines:
            seen = await asyncio.to_thread(Observed.of, map(decoder.decode, lines))
        self._course.strikes += seen.strikes
        return outcome

    async def _sample(self) -> None:
        every_s = max(SAMPLE_S_MIN, self._seconds / SAMPLES_MAX)
        with (self._results / SAMPLES).open("wb") as file:
            while True:
                for node in self._arena.nodes:
                    pid = self._arena.pid(node)
                    found = None if pid is None else await asyncio.to_thread(sample, node, pid, self._arena.url(node))
                    if found is not None:
                        self._course.samples.append(found)
                        file.write(msgspec.json.encode(found) + b"\n")
                file.flush()
                await asyncio.sleep(every_s)

    async def _back_up(self) -> None:
        words = [sys.executable, "-m", "stockade", "backup", "create", str(self._scratch / "backup")]
        words += ["--url", ",".join(self._arena.bootstrap), "--keep-last", "10"]  # topics of past rounds go
        while True:
            await asyncio.sleep(BACKUP_S)
            began_ns = time.monotonic_ns()
            process = await asyncio.create_subprocess_exec(  # a list of words, no shell
                *words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            try:
                _, said = await asyncio.wait_for(process.communicate(), BACKUP_TIMEOUT_S)
                why = (said.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
            except TimeoutError:
                why = f"it took longer than {BACKUP_TIMEOUT_S} s"
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
            if process.returncode == 0:
                self._course.backups += 1
            else:
                self._course.failed_backups.append(FailedBackup(began_ns, time.monotonic_ns(), why))

    async def _write_pages(self) -> None:
        while True:
            await asyncio.sleep(PAGE_S)
            await asyncio.to_thread(self._write_page)

    def _write_page(self, *, is_final: bool = False) -> None:
        course, steady = self._course, self._steady
        fault = course.fault_of_backups() if is_final else ""  # before, strikes of the round are not known yet
        minutes = self._passed_s / 60
        facts = [
            ("version", f"{VERSION} ({commit()})"),
            ("cluster", f"{len(self._arena.nodes)} nodes"),
            ("time", f"{minutes:.1f} minutes; {course.rounds} rounds of {self._round_s:g} s"),
            ("faults", f"{len(course.strikes)} strikes, in one of {self._every} rounds"),
            ("checked", f"{course.judged.operations:,} operations, {course.judged.records:,} records of all replicas"),
            (
                "steady load",
                f"{steady.appended:,} records appended, {steady.read:,} read; begun anew {steady.begun} times",
            ),
            ("backups", f"{course.backups} made; {len(course.failed_backups)} failed (faults strike them, too)"),
            ("samples", f"{len(course.samples):,}"),
        ]
        told = Endurance(
            f"Endurance: {minutes / 60:.2f} hours",
            course.began_ns,
            list(course.samples),
            list(course.strikes),
            facts,
            [f"{each.checker}: {example}" for each in course.judged.verdicts for example in each.examples],
            course.judged.violations,
            [*course.failures, fault] if fault else list(course.failures),
        )
        path = self._results / PAGE
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(page(told), encoding="utf-8")
        unfinished.replace(path)


class _Told(Status):
    """The status of a round, which shows what the round does in the Course of the whole run."""

    def __init__(self, history: History, course: Course, *, is_struck: bool) -> None:
        self._course = course
        self._is_struck = is_struck
        super().__init__(history, 1)

    @property
    def doing(self) -> str:
        """What the round does now, as the campaign last set it."""
        return self._course.doing

    @doing.setter
    def doing(self, words: str) -> None:
        self._course.doing = words if self._is_struck or words != "under faults" else "under load"
