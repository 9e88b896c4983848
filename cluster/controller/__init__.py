"""The controller's replicated state machine: topics, nodes, sessions, grants, producers. Pure.

In: commands in the order of the controller group's log.
Out: answers, and the installs that partitions are owed.
May import: cluster, cluster.access, cluster.controller.ownership, cluster.controller.topology, partition,
partition.api, partition.log, partition.state, raft.
"""
