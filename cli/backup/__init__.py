"""Backups: the records of a cluster's topics as Arrow files, with a manifest, in a folder or an object store.

In: a client of a running cluster, and the URL of a place for files.
Out: files that pyarrow alone can verify; a cluster that has their records again.
May import: cli.ui, client, client.api, cluster.replica, partition, partition.api, partition.places,
partition.records, raft.wal.
"""
