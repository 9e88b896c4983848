"""How a node finds its cluster: bootstrap, registration, the cluster view on disk, connections to its members.

In: the configured peers, and the controller's catalog.
Out: a founded or joined cluster; addresses of its nodes.
May import: cluster, cluster.controller, cluster.controller.topology, partition, partition.api, partition.log, raft,
raft.wal.
"""
