"""A run as JSON: everything that the page is made of, so that it can be written again without measuring again. Pure."""

import json
from dataclasses import asdict

from figures import Quartiles, Sample
from page import Machine
from runner import Results
from workloads import Cell, Options


def written(machine: Machine, options: Options, results: Results) -> str:
    """The record as JSON."""
    samples = [
        {**cell._asdict(), "rounds": [each and each._asdict() for each in rounds]}
        for cell, rounds in results.samples.items()
    ]
    parts = {"machine": machine._asdict(), "options": asdict(options), "samples": samples}
    return json.dumps(parts | {"versions": results.versions, "reasons": results.reasons}, indent=1)


def read(text: str) -> tuple[Machine, Options, Results]:
    """The arguments that `written` was given, from the JSON that it returned."""
    parts = json.loads(text)
    machine = Machine(**parts["machine"])
    machine = machine._replace(sync_ms=Quartiles(*machine.sync_ms), loads=(machine.loads[0], machine.loads[1]))
    lists = {name: tuple(value) for name, value in parts["options"].items() if isinstance(value, list)}
    options = Options(**parts["options"] | lists)
    samples = {
        Cell(row["workload"], row["system"], row["partitions"]): [each and Sample(**each) for each in row["rounds"]]
        for row in parts["samples"]
    }
    return machine, options, Results(options.rounds, samples, parts["reasons"], parts["versions"])
