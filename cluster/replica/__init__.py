"""The replicas of partitions on this node: opened and erased as the catalog says, written, read, moved, scrubbed.

In: appends and reads; placements from the catalog.
Out: verdicts of apply; committed batches.
May import: cluster, cluster.controller, cluster.controller.topology, cluster.discovery, cluster.tiered, partition,
partition.api, partition.durable, partition.log, partition.places, partition.records, partition.state, raft,
raft.core, raft.log, raft.wal.
"""
