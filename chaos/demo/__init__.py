"""`stockade demo`: files written by exclusive producers while leaders are killed and one producer is replaced.

In: a running cluster and a folder of text files. Out: a history, verdicts over every replica read back byte by byte,
and one page with a plot.
May import: chaos.checkers, chaos.harness, chaos.history, chaos.report, chaos.streams, chaos.system, client,
client.api, client.producer, client.transport, partition, partition.api, partition.records.
"""
