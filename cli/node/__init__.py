"""Commands that act on one node's machine: serve, probe, rebuild, certs.

In: a configuration (file, environment) or a data folder. Out: a running node, moved files, certificates.
May import: cli.service, cli.ui, client, client.api, cluster, cluster.access, cluster.discovery, cluster.node,
cluster.tiered, http_api, http_api.request, partition, partition.api, partition.log, raft.net, raft.wal.
"""
