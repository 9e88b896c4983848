"""Topics, nodes, which node has which replica, and the steps of moving one. Pure.

In: decoded commands, reports of leaders.
Out: placements, the next step of a move.
May import: cluster, cluster.access, cluster.controller, partition, partition.api, raft.log.
"""
