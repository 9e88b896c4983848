"""`stockade doctor`: looks at a cluster and at a disk, says what is wrong, and what to do about it."""

import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..client.config import ClientConfig
from .connection import connected
from .diagnosis import Finding, Verdict, look_at_cluster
from .exits import CLIENT, REFUSED, UNREACHABLE
from .manual import Manual
from .output import output_option, show_json, show_table

FILES_MIN = 4_096
"""Open files that a node with some hundred partitions and clients may need."""
FREE_BYTES_MIN = 2 << 30
SYNCS = 50
SYNC_SLOW_MS = 20.0
"""A disk that syncs more slowly than this makes every append wait."""

HEADINGS = ("", "about", "found", "what to do")
_STYLES = {"ok": "green", "warning": "yellow", "wrong": "bold red"}


@click.command(
    cls=Manual,
    short_help="Say what is wrong with a cluster or a machine.",
    exits=CLIENT,
    means={
        0: "All is well, or there are only warnings.",
        REFUSED: "Something is wrong.",
        UNREACHABLE: "No node could be reached.",
    },
    examples=[
        ("Is the cluster well?", "stockade doctor"),
        ("Is this machine fit for a node?", "stockade doctor --data /var/lib/stockade"),
        ("For an alarm", "stockade doctor --output json | jq '.[] | select(.verdict == \"wrong\")'"),
    ],
)
@click.option(
    "--data", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder to try the disk of."
)
@output_option
@connected
async def doctor(config: ClientConfig, data: Path | None, output: str) -> None:
    """Look at every node and every topic of a cluster; with --data also at the disk and the limits of this machine."""
    findings = list(look_at_machine(data)) if data is not None else []
    seen, is_reached = await look_at_cluster(config)
    findings += seen
    if output == "json":
        show_json(findings)
    elif sys.stdout.isatty():
        Console(highlight=False).print(_table(findings))
    else:
        show_table(HEADINGS, [(each.verdict, each.about, each.found, each.advice) for each in findings])
    if not is_reached:
        sys.exit(UNREACHABLE)
    sys.exit(any(finding.verdict == "wrong" for finding in findings))


def look_at_machine(data: Path) -> Iterator[Finding]:
    """This machine as a home for a node: its disk, and how many files may be open."""
    free = shutil.disk_usage(data).free
    verdict: Verdict = "ok" if free >= FREE_BYTES_MIN else "warning"
    yield Finding("disk space", verdict, f"{free / (1 << 30):.1f} GiB free", "" if verdict == "ok" else "Make room.")
    yield _look_at_speed(data)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = files < FILES_MIN
    advice = f"Raise it to {FILES_MIN} or more (ulimit -n, LimitNOFILE=)." if few else ""
    yield Finding("open files", "warning" if few else "ok", f"{files:,} allowed", advice)


def _look_at_speed(data: Path) -> Finding:
    try:
        times = sorted(_sync_times_ms(data))
    except OSError as error:
        advice = "A node would end here: make room, or let it write to its folder."
        return Finding("disk speed", "wrong", f"{data} cannot be written to: {error.strerror}", advice)
    slowest = times[int(len(times) * 0.95)]
    slow = slowest > SYNC_SLOW_MS
    advice = "Appends wait for this: a disk with a power-safe cache makes them faster." if slow else ""
    found = f"fdatasync of 4 KiB: p50 {median(times):.2f} ms, p95 {slowest:.2f} ms"
    return Finding("disk speed", "warning" if slow else "ok", found, advice)


def _sync_times_ms(data: Path) -> Iterator[float]:
    path = data / f".doctor-{os.getpid()}"
    with path.open("xb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, SYNCS * 4096)
            file.write(bytes(SYNCS * 4096))  # the write-ahead log writes its blocks before it needs them
            file.flush()
            os.fsync(file.fileno())
            for number in range(SYNCS):
                began = time.perf_counter()
                os.pwrite(file.fileno(), b"\xa5" * 4096, number * 4096)
                os.fdatasync(file.fileno())
                yield (time.perf_counter() - began) * 1000
        finally:
            path.unlink()


def _table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for finding in findings:
        verdict = Text(finding.verdict, style=_STYLES[finding.verdict])
        table.add_row(verdict, *map(Text, (finding.about, finding.found, finding.advice)))
    return table
