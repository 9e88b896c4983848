"""The node's write-ahead log: all groups' records in one stream of files, made durable by one stream of fdatasyncs.

To it a group is a number and a payload is bytes.

In: records to append.
Out: the durable position (LSN), and after a restart what each group had written.
May import: partition.log, partition.records, raft.
"""
