"""The working tree beside another revision, in pairs: is it faster or slower?

``python bench/pairs.py main [--workload requests] [--partitions 1] [--starts 3] [--rounds 20] [--seconds 1]`` runs a
cluster of each at one time and loads them in turns; each round begins with the other one, and a ratio is that of the
two loads of a round. A machine that is faster in one second than in the next bends no ratio much, and the clusters
start anew several times, the other one first, so one lucky start does not decide. A loss of 2 % shows in some hundred
rounds.
"""

# ruff: noqa: T201  # it prints tables

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from figures import Sample, paired_ratio, quartiles, sample_of
from systems.common import loaded
from systems.stockade import clusters
from workloads import turns

TREE, TREE_NAME = "", "this tree"
WORKLOADS = ("requests", "latency", "fenced", "producer", "small")
"""Those whose amount is seconds."""


def report(samples: Mapping[str, Sequence[Sample]]) -> None:
    """Print a table of two clusters' samples, by name, and the ratios of their pairs: more than 1 is better for the
    first one.
    """
    (one, first), (other, second) = samples.items()
    width = max(len(one), len(other))
    print(f"{'':>{width}} {'records/s':>10} {'p50 ms':>8} {'servers us':>11} {'client us':>10}")
    for name, found in samples.items():
        columns = [[each.per_s for each in found], [each.p50_ms or 0 for each in found]]
        columns += [[each.server_us or 0 for each in found], [each.client_us or 0 for each in found]]
        rate, p50, server, client = (quartiles(column).median for column in columns)
        print(f"{name:>{width}} {rate:10,.0f} {p50:8.2f} {server:11.1f} {client:10.1f}")
    rates = ([each.per_s for each in first], [each.per_s for each in second])
    costs = ([each.server_us for each in second], [each.server_us for each in first])
    for what, values in (
        (f"rate, {one} / {other}", rates),
        (f"processor time of nodes, {other} / {one}", costs),
    ):
        ratio = paired_ratio(*values)
        assert ratio is not None
        print(f"{what}: {ratio.median:.3f} (quartiles {ratio.low:.2f} to {ratio.high:.2f}, {len(first)} pairs)")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="what to compare this tree with: a branch, a tag or a commit")
    parser.add_argument("--workload", choices=WORKLOADS, default="requests", help="(requests)")
    parser.add_argument("--partitions", type=int, default=1, help="of the topic that is loaded (1)")
    parser.add_argument("--starts", type=int, default=3, help="how often both clusters start anew (3)")
    parser.add_argument("--rounds", type=int, default=20, help="of each start, in which each has a load (20)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each load (1)")
    chosen = parser.parse_args()
    samples: dict[str, list[Sample]] = {TREE_NAME: [], chosen.revision: []}
    names = dict(zip(samples, (TREE, chosen.revision), strict=True))
    for start in range(chosen.starts):
        with clusters(list(names.values())[:: -1 if start % 2 else 1]) as running:
            for nodes in running.values():
                nodes.create(chosen.partitions)
            begun = len(samples[TREE_NAME])
            for number, name in turns(chosen.rounds + 1, tuple(samples)):
                nodes = running[names[name]]
                command = nodes.command(chosen.workload, chosen.partitions, chosen.seconds)
                found = sample_of(loaded(nodes.pids, command))
                if number:  # the first round warms up
                    samples[name].append(found)
        print(f"start {start + 1} of {chosen.starts}", flush=True)
        report({name: found[begun:] for name, found in samples.items()})
    if chosen.starts > 1:
        print("all")
        report(samples)


if __name__ == "__main__":
    main()
