"""A page can be written again from what a run kept."""

import record
from figures import Quartiles, Sample
from page import Machine
from runner import Results
from workloads import Cell, Options


def test_the_record_of_a_run_is_read_as_it_was_written() -> None:
    machine = Machine("now", "CPU", 2, 23.5, "6.1", "3.11", "ext4", Quartiles(0.1, 0.2, 0.3), (0.5, 1.5))
    options = Options(2, 0.5, ("stockade", "etcd"), ("idle", "requests"), (1, 16))
    samples: dict[Cell, list[Sample | None]] = {
        Cell("requests", "stockade", 16): [Sample(100.0, 1.0, 2.0, 30.0, 4.0), None],
        Cell("idle", "etcd", 256): [Sample(core_percent=1.5), Sample(core_percent=2.5)],
    }
    results = Results(2, samples, {"kafka": "cannot be had: no java"}, {"stockade": "abc"})
    assert record.read(record.written(machine, options, results)) == (machine, options, results)
