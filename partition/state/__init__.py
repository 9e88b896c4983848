"""The replicated state machine of one partition: slot, producers, sequences, readers, stages. Pure.

The only place that accepts or refuses a write.

In: commands in the order of the group's log.
Out: answers and refusals, equal on every replica.
May import: partition, partition.api, partition.log, partition.records.
"""
