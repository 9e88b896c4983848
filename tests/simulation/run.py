"""Run simulated clusters from seeds: ``python tests/simulation/run.py --seed 7`` or ``--seeds 1000 --from 5000``."""

import argparse
import logging
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]


def main() -> int:
    from simulation.checker import Violation  # noqa: PLC0415  # the path above comes first
    from simulation.schedule import run_seed  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="run one seed and show where it fails")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run (100)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them (0)")
    parser.add_argument("--accident", help="let five nodes meet this fault only, as late_acks")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if arguments.seed is not None:
        run_seed(arguments.seed, arguments.accident)
        return 0
    began, failures = time.monotonic(), 0
    for number, seed in enumerate(range(arguments.first, arguments.first + arguments.seeds), 1):
        try:
            run_seed(seed, arguments.accident)
        except Violation as violation:
            failures += 1
            print(violation, flush=True)  # noqa: T201
        if number % 1000 == 0:
            print(f"{number} seeds, {failures} failures", file=sys.stderr, flush=True)  # noqa: T201
    print(f"{arguments.seeds} seeds, {failures} failures, {time.monotonic() - began:.0f} s")  # noqa: T201
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
