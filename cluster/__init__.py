"""Floor 3: one node, and what the nodes decide together: topics, replicas, sessions, grants, producers.

`api` is what fronts may ask of a node.

In: requests of a front, configuration of the node.
Out: answers and refusals.
May import: cluster.access, cluster.controller, cluster.controller.topology, cluster.tiered, partition, partition.api,
partition.log, raft, raft.core, raft.net.
"""
