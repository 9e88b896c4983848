"""One Raft group: election, replication, membership, commit, quiescence, proposals.

Free of sockets, files and clocks: what it needs of them comes through ports, so a simulator can replay it.

In: messages, ticks, progress of the disk, proposals.
Out: messages, entries to append, entries to apply, outcomes of proposals.
May import: raft, raft.log.
"""
