"""The rules of one partition's traffic: batches, numbers, order under retry, and partitioners. Pure.

In: records, answers, the time.
Out: what to send, settle or wait for.
May import: client, client.api, client.transport, partition, partition.api, partition.records.
"""
