"""`stockade chaos rounds`: nodes are killed, or all lose power, under a steady load, round after round.

In: a running cluster and a fault. Out: a history, verdicts, and how long each partition took no write.
May import: chaos.checkers, chaos.harness, chaos.history, chaos.streams, chaos.system, client, client.api,
client.producer, client.transport, partition, partition.api.
"""
