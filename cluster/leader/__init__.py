"""Services of the controller group's leader, and the loops that carry its decisions out.

In: requests about sessions, grants, topics, producers, members.
Out: commands proposed to the controller group; answers once their fences are installed.
May import: cluster, cluster.access, cluster.balance, cluster.controller, cluster.controller.ownership,
cluster.controller.topology, cluster.discovery, cluster.replica, partition, partition.api, partition.records, raft,
raft.core.
"""
