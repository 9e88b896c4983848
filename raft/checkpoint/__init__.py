"""Checkpoints: taken, stored, sent to nodes that lack entries, copied from other nodes; and the storage of each group.

In: images of machines.
Out: the files that a restart or a new replica begins with.
May import: partition.log, partition.records, raft, raft.core, raft.log, raft.net, raft.wal.
"""
