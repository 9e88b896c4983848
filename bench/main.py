"""Stockade beside its peers: ``make bench``, or ``python bench/main.py`` in an environment that has what tox.ini names.

Finds or installs the peers, measures everything in rounds, and writes docs/benchmarks.md with its pictures, and all
samples to bench/results. What is measured stands in `workloads`, how in `runner`.
"""

# ruff: noqa: T201  # it tells what it does

import json
import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

from machine import described
from page import Machine, written
from runner import Results, prepare, run
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
    """Run, and write."""
    options = parsed(None, list(PEERS))
    own = {name: stockade(name.partition("@")[2]) for name in options.systems if name.startswith("stockade")}
    systems = own | PEERS
    machine = described()
    results = prepare(systems, options, partial(print, flush=True))
    run(systems, options, results)
    machine = machine._replace(loads=(machine.loads[0], os.getloadavg()[0]))
    save(machine, options, results)
    measured = {name: systems[name] for name in options.systems}
    for name, text in written(machine, options, measured, results, command_line(options, list(PEERS))).items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/{name}")


def save(machine: Machine, options: Options, results: Results) -> None:
    """All samples, beside those of other runs."""
    RESULTS.mkdir(exist_ok=True)
    samples = [
        {**cell._asdict(), "rounds": [each and each._asdict() for each in rounds]}
        for cell, rounds in results.samples.items()
    ]
    kept = {"machine": machine._asdict(), "options": asdict(options), "samples": samples}
    kept |= {"versions": results.versions, "reasons": results.reasons}
    file = RESULTS / f"{machine.when.replace(' ', '-').replace(':', '')}.json"
    file.write_text(json.dumps(kept, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
