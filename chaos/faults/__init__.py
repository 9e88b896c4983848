"""The catalogue of faults: one file for each kind; `catalogue.py` lists all of them.

In: the cluster under test (`fault.Arena`) and a random generator. Out: `fault.Broken`, which says what is broken and
heals it. A fault neither schedules nor judges.
May import: chaos.system, client.api, partition, partition.api.
"""
