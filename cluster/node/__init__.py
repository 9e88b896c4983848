"""One node, composed of its parts. The top of `cluster`.

In: a checked configuration.
Out: a running node, whose services fronts call.
May import: cluster, cluster.access, cluster.controller, cluster.controller.ownership, cluster.controller.topology,
cluster.discovery, cluster.leader, cluster.replica, cluster.tiered, partition, partition.api, partition.durable,
partition.log, partition.state, raft, raft.core, raft.log, raft.net, raft.wal.
"""
