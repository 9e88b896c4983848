"""The history of a run, and the final logs of its replicas: their types, their files, and figures taken from them.

In: events as they happen, logs as they were read back. Out: JSON lines, Parquet, `Evidence` for checkers, `Observed`
for reports. Pure but for reading and writing those files.
May import: partition.
"""
