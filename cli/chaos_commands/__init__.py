"""`stockade demo`, and `stockade chaos …`: run, replay, soak, endurance, rounds, check, faults, report, figures; all
over the package `chaos`.

In: options. Out: a local cluster to break, a folder of results, tables and exit codes.
May import: chaos.checkers, chaos.crash_rounds, chaos.demo, chaos.endurance, chaos.faults, chaos.harness,
chaos.history, chaos.report, chaos.streams, chaos.system, chaos.workloads, cli.local_cluster, cli.ui, client,
client.api, client.transport, cluster, partition, partition.api.
"""
