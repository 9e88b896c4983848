"""Run simulated clusters from seeds: many (--seeds 1000 --from 5000), or one (--seed 7), which can be shrunk."""

import argparse
import logging
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from simulation.campaign import campaign  # noqa: E402  # the path above comes first
from simulation.plan import Plan, add_options, plan_of  # noqa: E402
from simulation.progress import showing  # noqa: E402
from simulation.schedule import Run  # noqa: E402
from simulation.shrink import shrunk  # noqa: E402
from simulation.trace import Trace  # noqa: E402

SHRUNK_MAX = 3
"""So many failures of a campaign are shrunk at its end, unless Ctrl-C ended it."""


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="run one seed and show what happens")
    parser.add_argument("--shrink", action="store_true", help="look for the smallest run that fails as this seed does")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run (1000)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (one for each core)")
    parser.add_argument("--failures", type=Path, help="write the line of each failure to this file, too")
    add_options(parser)
    return parser


def main() -> int:
    arguments = options().parse_args()
    logging.disable(logging.CRITICAL)
    if arguments.seed is None:
        return run_many(arguments)
    plan = plan_of(arguments, arguments.seed)
    if arguments.shrink:
        say(shrunk(plan, say).line())
        return 1
    return run_one(plan)


def run_one(plan: Plan) -> int:
    """Show the faults of a run, how it ends, and its fingerprint: equal for equal runs."""
    run = Run(plan)
    trace = Trace(run)
    for striker in (run.nemesis, run.changes):
        if striker is not None:
            striker.tell = lambda kind: say(f"{run.world.now:9.6f} s  strike {run.struck[-1]}: {kind}")
    try:
        run.go()
    except AssertionError as violation:
        say(f"{violation}\n{plan.line()}\nfingerprint {trace.fingerprint}")
        return 1
    say(f"nothing broke in {run.world.now:.1f} s\nfingerprint {trace.fingerprint}")
    return 0


def run_many(arguments: argparse.Namespace) -> int:
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    file = arguments.failures.open("w") if arguments.failures is not None else None
    with showing(len(seeds)) as show:
        tally = campaign(plan_of(arguments, 0), seeds, arguments.jobs, file, show)
    say(tally.line())
    is_whole = tally.done == len(seeds)
    for failure in tally.failures[:SHRUNK_MAX] if is_whole else ():
        say(f"shrunk: {shrunk(failure.plan).line()}")
    return 1 if tally.failures else 0 if is_whole else 130


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
