"""Commands that act on one node's machine: serve, rebuild, certs.

In: a configuration file or a data folder. Out: a running node, moved files, certificates. May import `..ui`, cluster,
http_api and raft.
May import: cli.ui, client, client.api, cluster, cluster.access, cluster.discovery, cluster.node, http_api,
http_api.request, partition, partition.api, partition.log, raft.net, raft.wal.
"""
