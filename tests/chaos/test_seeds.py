"""Short runs of chaos with fixed seeds: whatever strikes, no checker finds anything. `make chaos` is the long one."""

from pathlib import Path

import pytest

from stockade.cli.chaos_commands.arena import why_not

from .mutating import chaos_run

RUNS = {
    "processes": ("append,slots,takeover,own", "stall-leader,stall-producer,kill-leader,transfer-leader", 11),
    "toxiproxy": ("append,storm,group", "toxic-latency,toxic-timeout,toxic-reset-peer,proxy-down", 12),
    "namespaces,disks": ("append,slots,own", "partition,partition-one-way,power,disk-full,power-one", 13),
}
"""For each setup: workloads, faults, seed."""
SECONDS = 12.0
OPERATIONS_MIN = 100
"""With fewer nothing was shown, also on a slow machine."""
STRIKES_MIN = 1
"""Without a fault nothing was shown either."""


@pytest.mark.parametrize("setup", RUNS)
@pytest.mark.timeout(600)
def test_no_checker_finds_a_broken_promise_under_faults(setup: str, tmp_path: Path) -> None:
    reason = why_not(setup.split(","))
    if reason is not None:
        pytest.skip(reason)
    workloads, faults, seed = RUNS[setup]
    options = {"workload": workloads, "faults": faults, "setup": setup, "seed": seed, "round": SECONDS}
    verdict = chaos_run(tmp_path / "results", options | {"minutes": SECONDS / 60})
    assert verdict.code == 0 and verdict.violations == {}, verdict
    assert verdict.operations >= OPERATIONS_MIN and verdict.strikes >= STRIKES_MIN, verdict
