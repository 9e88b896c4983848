"""The partition's machine together with its files, as a Raft group runs it.

No clock and no randomness.

In: commands to apply, a checkpoint to restore.
Out: applied commands on disk, images for checkpoints.
May import: partition, partition.log, partition.records, partition.state.
"""
