"""Producing: batches, sequence numbers, order under retry, results.

`queue` decides and is pure; `sender.py` acts.

In: records.
Out: a delivery for each: receipt, refusal, or unknown outcome.
May import: client, client.api, client.producer.queue, client.session, client.transport, partition, partition.api,
partition.records.
"""
