"""Runs of `stockade chaos` in processes of their own, and servers for them that are broken on purpose."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stockade.cli.chaos_commands.arena import why_not

from .broken_node import program

RUN_TIMEOUT_S = 500
STOCKADE = (sys.executable, "-m", "stockade")


@dataclass(frozen=True)
class Mutant:
    """A defect, the run that brings it out, and the checkers one of which must catch it."""

    defect: str
    workloads: str
    faults: str
    checkers: tuple[str, ...]
    setup: str = "processes"
    seed: int = 1
    seconds: float = 8.0
    rounds: int = 1

    @property
    def why_not(self) -> str | None:
        """Why this machine cannot have it; None if it can."""
        return why_not([self.setup])


MUTANTS = {
    mutant.defect: mutant
    for mutant in (
        Mutant("dedupe", "storm", "none", ("duplicate",), seconds=5.0),
        Mutant("epoch-check", "slots", "stall-producer", ("zombie",)),
        Mutant("release", "slots", "none", ("zombie",)),
        Mutant("close", "slots", "none", ("zombie",)),
        Mutant("certificates", "takeover", "stall-producer", ("outcome-certificate",)),
        Mutant("commit", "catch-up", "divergent-tail", ("lost-write",), seconds=12.0),
        Mutant("stale-reads", "append,slots,storm,group", "partition", ("stale-read",), "namespaces", 2, 12.0, 2),
        Mutant("fsync", "append", "power", ("lost-write",), "disks"),
    )
}


@dataclass(frozen=True)
class Verdict:
    """What became of a run: its exit code, the violations of each checker that found some, operations judged, strikes,
    and failures of the harness.
    """

    code: int
    violations: dict[str, int]
    operations: int
    strikes: int
    failures: list[str]


def run(mutant: Mutant, folder: Path, *, is_broken: bool) -> Verdict:
    """Its run, with the defect or without."""
    options = {
        "workload": mutant.workloads,
        "faults": mutant.faults,
        "setup": mutant.setup,
        "seed": mutant.seed,
        "minutes": mutant.seconds * mutant.rounds / 60,
        "round": mutant.seconds,
    }
    return chaos_run(folder, options, program(mutant.defect) if is_broken else STOCKADE)


def chaos_run(folder: Path, options: dict[str, Any], stockade: Sequence[str] = STOCKADE) -> Verdict:
    """`stockade chaos run` with these options; what it says of itself when there is no verdict."""
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    done = subprocess.run(
        [*stockade, "chaos", "run", *words, "--results", str(folder)],
        cwd=folder.parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert (folder / "run.json").exists(), done.stdout + done.stderr
    found = json.loads((folder / "run.json").read_bytes())
    violations = {each["checker"]: each["violations"] for each in found["verdicts"] if each["violations"]}
    failures = [failure for over in found["rounds"] for failure in over["failures"]]
    with (folder / "history.jsonl").open("rb") as lines:
        strikes = sum(json.loads(line)["f"] == "strike" for line in lines)
    return Verdict(done.returncode, violations, found["operations"], strikes, failures)
