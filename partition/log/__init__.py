"""The log of one partition on disk: segments, their index, their files, and the images that checkpoints are made of.

No clock and no randomness; files, and the rights to read them, are its purpose.

In: batches with their offsets and times.
Out: slices of stored batches, by offset or by time.
May import: partition, partition.records.
"""
