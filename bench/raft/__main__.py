"""How fast Raft groups commit, what they cost idle, and how they fail over: three node processes on this machine.

``python bench/raft`` runs everything, ``--short`` a little of it, ``--only idle,failover`` some sections. Figures are
medians of ``--runs`` runs; the tables are kept as JSON, and drawn as SVG, under bench/results.
Nothing else should run on the machine: the load average before each section is kept with its figures.
"""

# ruff: noqa: T201  # it says what it does

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chart import draw
from failover import failover, flapping
from fleet import fleet
from idle import idle
from memory import memory
from tables import Options, Row
from throughput import groups, payloads, without_fsync

RESULTS = Path(__file__).resolve().parents[1] / "results"
Section = Callable[..., list[Row]]
SECTIONS: dict[str, Section] = {
    "throughput": payloads,
    "nosync": without_fsync,
    "groups": groups,
    "idle": idle,
    "failover": failover,
    "flapping": flapping,
    "memory": memory,
}


def run(names: list[str], options: Options) -> dict[str, Any]:
    """Run the sections; return their rows by name, with the load average before each, which may have disturbed it."""
    results: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "options": asdict(options),
        "load_average": {},
        "sections": {},
    }
    for number, name in enumerate(names, 1):
        busy, began = os.getloadavg()[0], time.monotonic()
        results["load_average"][name] = busy
        print(f"\n[{number}/{len(names)}] {name}: {SECTIONS[name].__doc__} (load average {busy:.2f})", flush=True)
        results["sections"][name] = SECTIONS[name](options)
        print(f"took {time.monotonic() - began:.0f} s", flush=True)
    return results


def save(results: dict[str, Any]) -> None:
    """Write the figures as JSON and the picture as SVG."""
    RESULTS.mkdir(exist_ok=True)
    name = "raft-" + results["when"].replace(":", "").replace("+0000", "Z")
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=1))
    (RESULTS / f"{name}.svg").write_text(draw(results["sections"]))
    print(f"\nsaved {RESULTS / name}.json and .svg")


def single(row: str, seconds: float, profile: str | None, *, fsync: bool) -> None:
    """Run one load, BYTESxINFLIGHTxGROUPS, and print its figures. ``profile``: file for a profile of the leader."""
    size, in_flight, count = map(int, row.split("x"))
    with fleet(fsync=fsync) as nodes:
        nodes.open(1, count)
        load = {"size": size, "in_flight": in_flight, "profile": None}
        everyone = list(range(1, count + 1))
        nodes.load(everyone, seconds=0.5, **load)
        print(json.dumps(nodes.load(everyone, seconds=seconds, **load | {"profile": profile})))


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"sections, comma separated: {', '.join(SECTIONS)}")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each load lasts (3)")
    parser.add_argument("--runs", type=int, default=3, help="how often each load is repeated (3)")
    parser.add_argument("--short", action="store_true", help="a few rows of each section, one run of each")
    parser.add_argument("--minutes", type=float, default=6.0, help="flapping: how long a row lasts (6)")
    parser.add_argument(
        "--commits", type=int, default=3_000_000, help="memory: how many commands come and go (3000000)"
    )
    parser.add_argument("--load", help="only one load, as BYTESxINFLIGHTxGROUPS")
    parser.add_argument("--without-fsync", action="store_true", help="with --load: nodes do not wait for their disks")
    parser.add_argument("--profile", help="with --load: file for a profile of the leader")
    arguments = parser.parse_args()
    if arguments.load:
        single(arguments.load, arguments.seconds, arguments.profile, fsync=not arguments.without_fsync)
        return
    names = arguments.only.split(",") if arguments.only else list(SECTIONS)
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}")
    runs = 1 if arguments.short else arguments.runs
    options = Options(arguments.seconds, runs, arguments.short, arguments.minutes, arguments.commits)
    save(run(names, options))


if __name__ == "__main__":
    main()
