"""What clients do while a cluster is broken: one file for each workload; `catalogue.py` lists all of them.

In: the context of one actor (`protocol.ActorContext`): topic, history, random generator. Out: events in the history.
Actors never judge.
May import: chaos.history, chaos.system, client, client.api, client.producer, client.session, client.transport,
partition, partition.api, partition.records.
"""
