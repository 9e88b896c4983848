"""Finite or endless streams of known records, one for each partition, and the writers that send them.

In: lines of files, or made-up lines. Out: appends with a history, and how far each stream is. `demo` and `crash_rounds`
write them.
May import: chaos.history, client.producer, client.session, partition.api.
"""
