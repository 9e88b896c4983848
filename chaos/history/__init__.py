"""What clients asked and were answered, and the final logs: events, their files, and questions about them.

In: events as they happen, logs as they were read back. Out: JSON lines, Parquet, `Evidence` for checkers, `Observed`
for reports. Pure but for reading and writing those files. Imports nothing of chaos.
May import: partition.
"""
