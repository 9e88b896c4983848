"""Breaks clusters on purpose and judges what clients saw, as Jepsen does: nemesis, clients, history, checkers.

In: a running cluster (`faults.fault.Arena`) and a seed. Out: a history, the final log of every replica, verdicts, a
report. `system` has the means to break and mend; `faults` and `workloads` are catalogues; `harness` runs them in
rounds; `history` records, `checkers` judge, `report` shows. `demo` and `crash_rounds` are two fixed scenarios over
`streams`; `endurance` samples what nodes use for days.
A cluster is reached over HTTP only.
May import: nothing of the house.
"""
