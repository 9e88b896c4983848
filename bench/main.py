"""Stockade beside its peers: ``make bench``, or ``python bench/main.py`` in an environment that has what tox.ini names.

Finds or installs the peers, measures everything in rounds, and writes docs/benchmarks.md with its pictures, and all
samples to bench/results. What is measured stands in `workloads`, how in `runner`.
"""

# ruff: noqa: T201  # it tells what it does

import os
import sys
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

import record
from machine import described
from page import Machine, written
from runner import Results, prepare, run
from systems.common import System
from systems.etcd import etcd
from systems.kafka import kafka
from systems.nats import nats
from systems.rabbitmq import rabbitmq
from systems.stockade import stockade
from workloads import Options, command_line, parsed

ROOT = Path(__file__).resolve().parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "bench" / "results"
PEERS = {
    system.name: system
    for system in (
        etcd(),
        kafka(is_synced=True),
        kafka(is_synced=False),
        nats(is_synced=True),
        nats(is_synced=False),
        rabbitmq(),
    )
}


def main() -> None:
    """Run, keep the samples, and write the page; with ``--again`` only write the page."""
    options = parsed(None, list(PEERS))
    if options.again:
        write(*record.read(Path(options.again).read_text(encoding="utf-8")))
        return
    machine = described()
    systems = chosen(options)
    results = prepare(systems, options, partial(print, flush=True))
    run(systems, options, results)
    machine = machine._replace(loads=(machine.loads[0], os.getloadavg()[0]))
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{machine.when.replace(' ', '-').replace(':', '')}.json"
    file.write_text(record.written(machine, options, results), encoding="utf-8")
    print(f"all samples: {file.relative_to(ROOT)}")
    write(machine, options, results)


def chosen(options: Options) -> dict[str, System]:
    """The systems of a run by name, Stockade's first."""
    return {name: PEERS.get(name) or stockade() for name in options.systems}


def write(machine: Machine, options: Options, results: Results) -> None:
    """Write the page and its pictures into docs/."""
    command = command_line(options, list(PEERS))
    for name, text in written(machine, options, chosen(options), results, command).items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
