"""One group's view of the write-ahead log: entries, their terms, configurations, and where the log begins.

In: entries of a leader, or accepted from one.
Out: entries by index, the configuration in force, `durable_index`.
May import: raft, raft.wal.
"""
