"""A run of chaos: rounds of workloads under faults, each drained, read back and judged.

In: options and a cluster. Out: a folder of results. `campaign.py` runs rounds, `round.py` one of them, `nemesis.py` the
schedule of faults.
May import: chaos.checkers, chaos.faults, chaos.history, chaos.system, chaos.workloads, client, client.api, partition.
"""
